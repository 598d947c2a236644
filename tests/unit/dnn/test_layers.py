"""Layers of a graph, and the work of operators on one image, under both saving rules."""

from dataclasses import replace

import pytest

from tests.toy import toy_graph, with_fc
from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Concat, ElementwiseAdd
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.operator import Operator, SavingRule, Statistics, Work
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS


@pytest.fixture(scope="module")
def each_kind() -> LayerGraph:
    """One layer of each kind; maps: 0 input 2x4x4, 1 conv 3x4x4, 2 pool 3x2x2, 3 side 1x2x2, 4 join, 5 fc, 6 loss."""
    net = GraphBuilder("kinds", MapShape(2, 4, 4))
    conv = net.conv("conv", 0, 3, 3, padding=1)
    pool = net.pool("pool", conv, 2, stride=2)
    side = net.conv("side", pool, 1, 1, relu=False)
    join = net.concat("join", (pool, side))
    return with_fc(net, join, 5)


@pytest.mark.parametrize(
    ("operator", "x", "y"),
    [
        # Height (7 + 2 - 3) // 2 + 1 = 4; width (10 + 4 - 4) // 3 + 1 = 4, where the last of 10 steps by 3 is cut off.
        (Convolution(6, kernel=(3, 4), stride=(2, 3), padding=(1, 2)), MapShape(2, 7, 10), MapShape(6, 4, 4)),
        # (55 - 3) // 2 + 1 = 27 fits exactly; (28 + 2 - 3) // 2 + 1 = 14, for 27 / 2 = 13.5 steps are 13 whole ones.
        (Pooling((3, 3), (2, 2)), MapShape(64, 55, 55), MapShape(64, 27, 27)),
        (Pooling((3, 3), (2, 2), (1, 1)), MapShape(8, 28, 28), MapShape(8, 14, 14)),
        # A window may be higher than wide.
        (Pooling((2, 1), (2, 1)), MapShape(3, 4, 4), MapShape(3, 2, 4)),
    ],
)
def test_an_output_counts_the_places_of_the_window(operator: Operator, x: MapShape, y: MapShape) -> None:
    assert operator.outputs((x,)) == (y,)


def test_layers_have_kinds_shapes_and_weights(each_kind: LayerGraph) -> None:
    """The join has the 3 channels of `pool` and the 1 of `side`; the FC layer's 5 features and the loss are 5x1x1.

    `conv`: 3 filters of 2x3x3 = 18 weights and 3 biases, 57. `side`: 1 filter of 3x1x1 and 1 bias, 4.
    `fc`: 5 rows of 4x2x2 = 16 weights and 5 biases, 85. Together 146; the other layers have none.
    """
    layers = each_kind.layers
    assert [layer.name for layer in layers] == "conv conv/relu pool side join fc loss".split()
    assert [layer.kind.value for layer in layers] == "CONV ACTV POOL CONV CONCAT FC LOSS".split()
    assert [layer.index for layer in layers] == [0, 1, 2, 3, 4, 5, 6]
    assert [str(layer.out_shape) for layer in layers] == "3x4x4 3x4x4 3x2x2 1x2x2 4x2x2 5x1x1 5x1x1".split()
    assert [layer.parameters for layer in layers] == [57, 0, 0, 4, 0, 85, 0]
    assert each_kind.parameters == 146
    assert [layer.stage for layer in layers] == [Stage.FEATURES] * 5 + [Stage.CLASSIFIER] * 2


def test_maps_that_layers_read_write_and_save(each_kind: LayerGraph) -> None:
    """CONV and FC save X; POOL X and Y; ACTV and the loss Y; a concatenation nothing (II-B).

    The rectifier of `conv` reads and writes map 1; each other layer writes a map that it does not read.
    """
    assert [layer.saved_maps for layer in each_kind.layers] == [(0,), (1,), (1, 2), (2,), (), (4,), (6,)]
    assert [layer.name for layer in each_kind.layers if layer.in_place] == ["conv/relu"]
    assert [layer.inputs for layer in each_kind.layers] == [(0,), (1,), (1,), (2,), (2, 3), (4,), (5,)]
    assert [layer.output for layer in each_kind.layers] == [1, 1, 2, 3, 4, 5, 6]


def test_phases(each_kind: LayerGraph) -> None:
    """Nobody wants the gradient of the input batch, so `conv` has no data gradient; W and dW go together.

    A pool over the input batch has no backward at all.
    """
    backward = [(W,), (D,), (D,), (D, W), (D,), (D, W), (D,)]
    assert [layer.backward_phases for layer in each_kind.layers] == backward
    assert [layer.training_phases for layer in each_kind.layers] == [(F, *each) for each in backward]
    assert [phase for phase in Phase if phase.is_backward] == [D, W, Phase.BACKWARD]
    assert toy_graph("pool pool").layers[0].training_phases == (F,)


def test_a_kernel_larger_than_its_padded_map_is_a_bug_of_the_network() -> None:
    """(2 - 3) // 1 + 1 = 0 rows are left."""
    net = GraphBuilder("small", MapShape(1, 2, 2))

    with pytest.raises(AssertionError, match=r"^conv: .* leaves no output"):
        net.conv("conv", 0, 1, 3)


PAPER, AUTOGRAD = SavingRule.PAPER, SavingRule.AUTOGRAD
MAXIMUM, AVERAGE = (Pooling((2, 2), (2, 2), average=average) for average in (False, True))
FEW, IMAGE, SQUARE, SEQUENCE = MapShape(5), MapShape(2, 3, 3), MapShape(1, 4, 4), MapShape(6, steps=5)


@pytest.mark.parametrize("rule", SavingRule)
@pytest.mark.parametrize(
    ("operator", "inputs", "work"),
    [
        # 3x2x2 outputs, each over 2x2x2 elements; three filters with a bias each.
        (
            Convolution(3, (2, 2)),
            (IMAGE,),
            Work(forward_flop=192, backward_flop=192, weights=27, biases=3, filter_elements=8, saved_inputs=(0,)),
        ),
        # Two features over 18 elements and a bias.
        (
            FullyConnected(2),
            (IMAGE,),
            Work(forward_flop=72, backward_flop=72, weights=38, biases=2, filter_elements=18, saved_inputs=(0,)),
        ),
        (Activation(), (FEW,), Work(forward_flop=5, backward_flop=5, saved_outputs=(0,))),
        (Concat(), (FEW, FEW), Work(forward_flop=0, backward_flop=0)),
        (ElementwiseAdd(), (FEW, FEW), Work(forward_flop=5, backward_flop=0)),
        # Copies; the gradient of the token is summed over the batch. Of positions each step of each feature has one.
        (ClassToken(), (IMAGE,), Work(forward_flop=0, backward_flop=2, weights=2)),
        (LearnedPositions(), (SEQUENCE,), Work(forward_flop=30, backward_flop=30, weights=30)),
        # 18 elements of 2 channels: gamma and beta, mean and inverse deviation in float32, X twice.
        (
            BatchNormalization(),
            (IMAGE,),
            Work(
                forward_flop=90,
                backward_flop=126,
                weights=4,
                saved_inputs=(0,),
                statistics=Statistics(4, element_bytes=4, of_batch=True),
                passes=2,
            ),
        ),
    ],
)
def test_both_rules_agree(operator: Operator, inputs: tuple[MapShape, ...], work: Work, rule: SavingRule) -> None:
    assert operator.work(inputs, rule) == work


@pytest.mark.parametrize(
    ("operator", "rule", "work"),
    [
        (MAXIMUM, PAPER, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), saved_outputs=(0,))),
        (AVERAGE, PAPER, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), saved_outputs=(0,))),
        # An int64 for each element of Y.
        (
            MAXIMUM,
            AUTOGRAD,
            Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), statistics=Statistics(4, element_bytes=8)),
        ),
        (AVERAGE, AUTOGRAD, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,))),
    ],
)
def test_the_rules_differ_in_pooling(operator: Operator, rule: SavingRule, work: Work) -> None:
    """4 outputs, each from a window of 4."""
    assert operator.work((SQUARE,), rule) == work


def test_autograd_takes_a_loss_in_two_and_holds_what_is_between_them() -> None:
    """Softmax's gradient is as large as the 5 logits, beside what the loss reads: them, and the label of one class."""
    work = Work(forward_flop=25, backward_flop=25, saved_outputs=(0,))

    assert SoftmaxLoss().work((FEW,), PAPER) == work
    assert SoftmaxLoss().work((FEW,), AUTOGRAD) == replace(work, temporaries=5, labels=1)


def test_channels_or_steps_are_joined() -> None:
    """Nine pixels and the token are ten steps."""
    assert ClassToken().outputs((IMAGE,)) == (MapShape(2, steps=10),)
    assert Concat().outputs((IMAGE, MapShape(5, 3, 3))) == (MapShape(7, 3, 3),)
    with pytest.raises(AssertionError, match="cannot be joined"):
        Concat().outputs((IMAGE, SQUARE))
