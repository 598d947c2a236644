import pytest

from vdnnsim.dnn.convolutional import Convolution, Pooling
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.shapes import MapShape

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS


@pytest.fixture(scope="module")
def each_kind() -> LayerGraph:
    """One layer of each kind; maps: 0 input 2x4x4, 1 conv 3x4x4, 2 pool 3x2x2, 3 side 1x2x2, 4 join, 5 fc, 6 loss."""
    net = GraphBuilder("kinds", MapShape(2, 4, 4))
    conv = net.conv("conv", 0, 3, 3, padding=1)
    pool = net.pool("pool", conv, 2, stride=2)
    side = net.conv("side", pool, 1, 1, relu=False)
    join = net.concat("join", (pool, side))
    net.begin_classifier()
    return net.build(net.fc("fc", join, 5, relu=False))


def test_a_strided_padded_convolution_counts_the_places_of_its_kernel() -> None:
    """Height (7 + 2 - 3) // 2 + 1 = 4; width (10 + 4 - 4) // 3 + 1 = 4, where the last of 10 steps by 3 is cut off."""
    operator = Convolution(6, kernel=(3, 4), stride=(2, 3), padding=(1, 2))

    assert operator.outputs((MapShape(2, 7, 10),)) == (MapShape(6, 4, 4),)


def test_pooling_leaves_the_last_incomplete_window_out() -> None:
    """(55 - 3) // 2 + 1 = 27 fits exactly; (28 + 2 - 3) // 2 + 1 = 14, for 27 / 2 = 13.5 steps are 13 whole ones."""
    assert Pooling((3, 3), (2, 2)).outputs((MapShape(64, 55, 55),)) == (MapShape(64, 27, 27),)
    assert Pooling((3, 3), (2, 2), (1, 1)).outputs((MapShape(8, 28, 28),)) == (MapShape(8, 14, 14),)


def test_backward_and_its_two_halves_are_backward() -> None:
    assert [phase for phase in Phase if phase.is_backward] == [D, W, Phase.BACKWARD]


def test_layers_run_in_the_order_in_which_they_were_added(each_kind: LayerGraph) -> None:
    assert [layer.name for layer in each_kind.layers] == "conv conv/relu pool side join fc loss".split()
    assert [layer.kind.value for layer in each_kind.layers] == "CONV ACTV POOL CONV CONCAT FC LOSS".split()
    assert [layer.index for layer in each_kind.layers] == [0, 1, 2, 3, 4, 5, 6]


def test_output_shapes(each_kind: LayerGraph) -> None:
    """The join has the 3 channels of `pool` and the 1 of `side`; the FC layer's 5 features and the loss are 5x1x1."""
    shapes = [str(layer.out_shape) for layer in each_kind.layers]
    assert shapes == "3x4x4 3x4x4 3x2x2 1x2x2 4x2x2 5x1x1 5x1x1".split()


def test_parameters_are_filters_and_biases(each_kind: LayerGraph) -> None:
    """`conv`: 3 filters of 2x3x3 = 18 weights and 3 biases, 57. `side`: 1 filter of 3x1x1 and 1 bias, 4.

    `fc`: 5 rows of 4x2x2 = 16 weights and 5 biases, 85. Together 146; the other layers have none.
    """
    assert [layer.parameters for layer in each_kind.layers] == [57, 0, 0, 4, 0, 85, 0]
    assert each_kind.parameters == 146


def test_what_backward_reads(each_kind: LayerGraph) -> None:
    """CONV and FC read X; POOL reads X and Y; ACTV and the loss read Y; a concatenation reads nothing (II-B)."""
    assert [layer.saved_maps for layer in each_kind.layers] == [(0,), (1,), (1, 2), (2,), (), (4,), (6,)]


def test_only_an_activation_works_in_place(each_kind: LayerGraph) -> None:
    """The rectifier of `conv` reads and writes map 1; each other layer writes a map that it does not read."""
    assert [layer.name for layer in each_kind.layers if layer.in_place] == ["conv/relu"]
    assert [layer.inputs for layer in each_kind.layers] == [(0,), (1,), (1,), (2,), (2, 3), (4,), (5,)]
    assert [layer.output for layer in each_kind.layers] == [1, 1, 2, 3, 4, 5, 6]


def test_phases(each_kind: LayerGraph) -> None:
    """Nobody wants the gradient of the input batch, so `conv` has no data gradient; W and dW go together."""
    backward = [(W,), (D,), (D,), (D, W), (D,), (D, W), (D,)]
    assert [layer.backward_phases for layer in each_kind.layers] == backward
    assert [layer.training_phases for layer in each_kind.layers] == [(F, *each) for each in backward]


def test_the_classifier_begins_where_the_builder_says(each_kind: LayerGraph) -> None:
    assert [layer.stage for layer in each_kind.layers] == [Stage.FEATURES] * 5 + [Stage.CLASSIFIER] * 2


def test_a_pooling_layer_over_the_input_batch_has_no_backward() -> None:
    """It has no weights, and the gradient of the input batch is wanted by nobody."""
    net = GraphBuilder("pool first", MapShape(1, 2, 2))
    graph = net.build(net.fc("fc", net.pool("pool", 0, 2, stride=2), 1, relu=False))

    assert graph.layers[0].training_phases == (F,)


def test_a_kernel_larger_than_its_padded_map_is_a_bug_of_the_network() -> None:
    """(2 - 3) // 1 + 1 = 0 rows are left."""
    net = GraphBuilder("small", MapShape(1, 2, 2))

    with pytest.raises(AssertionError, match=r"^conv: .* leaves no output"):
        net.conv("conv", 0, 1, 3)
