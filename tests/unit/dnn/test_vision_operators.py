"""What batch normalization, addition, pooling and operators of U-Net, MobileNetV2 and ViT keep and compute, by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.operands import Operands, of_role, operands
from tests.toy import toy_graph
from vdnnsim.dnn.convolutional import Convolution, Pooling
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.operator import SavingRule, Work
from vdnnsim.dnn.sequences import Attention, Linear
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Role
from vdnnsim.dnn.vision import ClassToken, LearnedPositions, Relu6, TransposedConvolution
from vdnnsim.dnn.workload import Mode, Optimizer, Workload, saved_by, under_autocast
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.units import ElementType

F, D, W, B, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.BACKWARD, Phase.UPDATE


def residual(
    element_type: ElementType = ElementType.FLOAT32, mode: Mode = Mode.TRAINING, optimizer: Optimizer = Optimizer.NONE
) -> Workload:
    """Two images through layers and maps, each layer with the map that it writes.

    conv 0 (1), norm 1 (2), norm/relu 2 (2), inner 3 (3), inner_norm 4 (4), sum 5 = map 4 + map 2 (5), sum/relu 6 (5),
    average 7 (6), fc 8 (7), loss 9 (8). Input 2x4x4; maps 1 to 5 are 3x4x4, map 6 is 3x2x2, the rest 1x1x1.
    """
    net = GraphBuilder("residual", MapShape(2, 4, 4))
    x = net.batch_norm("norm", net.conv("conv", 0, 3, 3, padding=1, bias=False, relu=False))
    y = net.conv("inner", x, 3, 1, bias=False, relu=False)
    y = net.add("sum", net.batch_norm("inner_norm", y, relu=False), x)
    y = net.average_pool("average", y, 2, stride=2)
    return Workload(net.build(net.fc("fc", y, 1, relu=False)), 2, element_type, optimizer, mode)


WORKLOAD = residual()
CONV, NORM, _, INNER, INNER_NORM, SUM, _, AVERAGE, _, _ = WORKLOAD.graph.layers


def test_layers_weights_statistics_and_saved_maps() -> None:
    layers = WORKLOAD.graph.layers
    assert [layer.kind.value for layer in layers] == "CONV BN ACTV CONV BN ADD ACTV POOL FC LOSS".split()
    assert [layer.inputs for layer in layers] == [(0,), (1,), (2,), (2,), (3,), (4, 2), (5,), (5,), (6,), (7,)]
    assert [layer.output for layer in layers] == [1, 2, 2, 3, 4, 5, 5, 6, 7, 8]
    assert CONV.operator == Convolution(3, (3, 3), padding=(1, 1), bias=False)
    assert AVERAGE.operator == Pooling((2, 2), (2, 2), average=True)
    # For conv 3 x 2 x 3 x 3 = 54, for inner 3 x 3 = 9, gamma and beta of 3 channels 6, fc 12 + 1 = 13.
    assert [layer.parameters for layer in WORKLOAD.graph.layers] == [54, 6, 0, 9, 6, 0, 0, 0, 13, 0]
    # A mean and an inverse deviation of 3 channels: 6 x 4 B. W, of 6 elements, halves in float16.
    half = residual(ElementType.FLOAT16)
    assert [half.statistics_bytes(layer) for layer in half.graph.layers] == [0, 24, 0, 0, 24, 0, 0, 0, 0, 0]
    assert (WORKLOAD.weight_bytes(NORM), half.weight_bytes(NORM)) == (24, 12)
    # So bn's Y under a rectifier is kept for that one, and where there is none it ends with forward: map 4.
    assert NORM.saved_maps == (1,)
    assert SUM.saved_maps == ()
    needed = [needed_in_backward(WORKLOAD, each) for each in WORKLOAD.graph.maps]
    assert needed == [True, True, True, True, False, True, True, False, True]


def test_maps_of_different_shape_cannot_be_added() -> None:
    net = GraphBuilder("odd", MapShape(2, 4, 4))

    with pytest.raises(AssertionError, match=r"^add of 2x4x4 and 3x4x4, expected equal shapes$"):
        net.add("sum", 0, net.conv("conv", 0, 3, 1))


def test_backward_of_a_normalization_is_one_phase_also_over_the_input_batch() -> None:
    first = toy_graph("norm bn relu").layers[0]

    assert NORM.training_phases == first.training_phases == (F, B)
    assert SUM.training_phases == (F, D)
    assert residual(optimizer=Optimizer.SGD).phases(NORM) == (F, B, U)


def test_inference_reads_what_it_normalizes_once_for_it_knows_the_moments() -> None:
    """2 images of 3 x 4 x 4 are 384 B; W is 24 B, the moments, which are read, 24 B."""
    inference = residual(mode=Mode.INFERENCE)
    assert inference.bytes_moved(inference.graph.layers[1], F) == 2 * 384 + 48
    assert operands(inference, NORM, F) == Operands(
        maps_read=(1,), maps_written=(2,), weights_read=True, statistics_read=True
    )


@pytest.mark.parametrize(
    ("layer", "phase", "expected"),
    [
        (NORM, F, Operands(maps_read=(1,), maps_written=(2,), weights_read=True, statistics_written=True)),
        (
            NORM,
            B,
            Operands(
                maps_read=(1,),
                gradients_read=(2,),
                gradients_written=(1,),
                weights_read=True,
                weight_gradient_written=True,
                statistics_read=True,
            ),
        ),
        (NORM, U, Operands(weights_read=True, weights_written=True, weight_gradient_read=True)),
        (SUM, F, Operands(maps_read=(4, 2), maps_written=(5,))),
        # The addition is the last reader of both and begins their gradients; `inner` then adds to that of map 2.
        (SUM, D, Operands(gradients_read=(5,), gradients_written=(4, 2))),
        (INNER, D, Operands(gradients_read=(3, 2), gradients_written=(2,), weights_read=True)),
    ],
)
def test_what_each_phase_touches(layer: Layer, phase: Phase, expected: Operands) -> None:
    assert operands(residual(optimizer=Optimizer.SGD), layer, phase) == expected


def test_a_normalization_adds_to_a_gradient_that_another_layer_has_begun() -> None:
    """Map 1 is normalized and added to that: backward of the sum begins its gradient.

    A map of 2 elements holds 8 B, W and the statistics 16 B each: X and dY twice, dX read and written, W, dW.
    """
    around = Workload(toy_graph("conv conv 2; norm bn; sum add norm conv"), batch_size=1)
    norm = around.graph.layers[1]

    assert operands(around, norm, B).gradients_read == (2, 1)
    assert around.bytes_moved(norm, B) == 6 * 8 + 2 * 16 + 16


@pytest.mark.parametrize(
    ("layer", "phase", "flop", "nbytes"),
    [
        # 2 images of 3x4x4 in float32 hold 96 elements, 384 B; W and the statistics 24 B each. X twice and Y.
        (NORM, F, 5 * 96, 3 * 384 + 24 + 24),
        # X and dY twice, dX; W read, dW written, the statistics read.
        (NORM, B, 7 * 96, 5 * 384 + 2 * 24 + 24),
        (SUM, F, 96, 3 * 384),
        (SUM, D, 0, 3 * 384),
        # 96 outputs of 18 multiplies and adds; X 256 B, W 216 B, Y 384 B.
        (CONV, F, 96 * 18 * 2, 256 + 216 + 384),
        # 24 outputs from a window of 4, whether of the maximum or the average.
        (AVERAGE, F, 24 * 4, 384 + 96),
    ],
)
def test_work(layer: Layer, phase: Phase, flop: int, nbytes: int) -> None:
    assert WORKLOAD.flop(layer, phase) == flop
    assert WORKLOAD.bytes_moved(layer, phase) == nbytes


PICTURE = MapShape(3, 2, 4)
SEQUENCE = MapShape(6, steps=5)

both_rules = pytest.mark.parametrize("rule", SavingRule)


def picture(rule: SavingRule = SavingRule.AUTOGRAD) -> Workload:
    """Two pictures of 3x4x4: 4 patches of 6 features (1), in front of them a token (2), positions (3), the head (4)."""
    net = GraphBuilder("picture", MapShape(3, 4, 4))
    y = net.append("token", ClassToken(), (net.conv("patches", 0, 6, 2, stride=2, relu=False),)).output
    y = net.layer("positions", LearnedPositions(), y)
    net.begin_classifier()
    return Workload(net.build(net.layer("head", Linear(7, first_step=True), y)), 2).saved_by(rule)


@both_rules
def test_a_transposed_convolution(rule: SavingRule) -> None:
    """Windows of 3x3 two apart, side by side 2 down and 4 across: (2 - 1) x 2 + 3 = 5 by (4 - 1) x 2 + 3 = 9.

    Each of 24 elements of X is multiplied with 5 x 9 weights: 1,080 products of two FLOPs. W is 3 x 5 x 9 and 5 biases.
    Of two windows down and two across that overlap, an element of Y sees a weight of each, for each of 3 channels.
    """
    operator = TransposedConvolution(5, (3, 3), (2, 2))

    assert operator.outputs((PICTURE,)) == (MapShape(5, 5, 9),)
    assert operator.work((PICTURE,), rule) == Work(
        forward_flop=2_160, backward_flop=2_160, weights=140, biases=5, filter_elements=12, saved_inputs=(0,)
    )
    assert replace(operator, bias=False).work((PICTURE,), rule).weights == 135


def test_a_transposed_convolution_undoes_the_shape_of_a_convolution() -> None:
    """Its Y is the X of a convolution of the same windows, whose FLOPs it has."""
    convolution, transposed = Convolution(3, (2, 3), (2, 3)), TransposedConvolution(5, (2, 3), (2, 3))
    (y,) = transposed.outputs((PICTURE,))
    assert convolution.outputs((y,)) == (PICTURE,)
    assert convolution.work((y,), SavingRule.PAPER).forward_flop == (
        transposed.work((PICTURE,), SavingRule.PAPER).forward_flop
    )
    # Its layer is a convolution to policies.
    net = GraphBuilder("larger", PICTURE)
    up = net.append("up", TransposedConvolution(5, (2, 2), (2, 2)), (net.conv("conv", 0, 4, 1),))
    assert (up.kind, up.out_shape, up.saved_maps) == (LayerKind.CONV, MapShape(5, 4, 8), (1,))
    assert up.training_phases == (F, D, W)


def test_a_rectifier_that_cuts_off_keeps_what_the_rule_says() -> None:
    """In place Y alone tells where the gradient passes; autograd's keeps X, so Y is a map of its own."""
    net = GraphBuilder("cut off", PICTURE)
    graph = net.build(net.append("relu6", Relu6(), (net.conv("conv", 0, 4, 1, relu=False),)).output)
    relu6 = graph.layers[1]
    copied = saved_by(graph, SavingRule.AUTOGRAD).layers[1]

    assert (relu6.inputs, relu6.outputs, relu6.saved_maps) == ((1,), (1,), (1,))
    assert (copied.inputs, copied.outputs, copied.saved_maps) == ((1,), (2,), (1,))
    assert relu6.kind is LayerKind.ACTV
    assert relu6.work == Work(forward_flop=32, backward_flop=32, saved_outputs=(0,))
    assert Relu6().under(SavingRule.PAPER) == Relu6()


@pytest.mark.parametrize(("mode", "moved"), [(Mode.TRAINING, 4), (Mode.INFERENCE, 2)])
def test_a_rectifier_that_cuts_off_copies_x_where_it_is_trained(mode: Mode, moved: int) -> None:
    """X is read and Y written; autograd's copy, which inference does not make, reads X once more and writes it."""
    net = GraphBuilder("cut off", PICTURE)
    graph = net.build(net.append("relu6", Relu6(), (net.conv("conv", 0, 4, 1, relu=False),)).output)
    workload = Workload(saved_by(graph, SavingRule.AUTOGRAD), 3, mode=mode)
    relu6 = workload.graph.layers[1]
    assert workload.bytes_moved(relu6, F) == moved * workload.map_bytes(relu6.output)


@pytest.mark.parametrize(("size", "saved"), [(1, ()), (2, (1,)), (4, (1,))])
def test_an_adaptive_average_keeps_its_input_unless_it_is_the_mean(size: int, saved: tuple[int, ...]) -> None:
    """Of 4x4 pixels: windows of 4, 2 or 1 squared; each of 16 elements of 3 channels counts once."""
    net = GraphBuilder("adaptive", MapShape(3, 4, 4))
    y = net.adaptive_average_pool("pool", net.conv("conv", 0, 3, 1, relu=False), size)
    pool = saved_by(net.build(y), SavingRule.AUTOGRAD).layers[1]

    assert pool.out_shape == MapShape(3, size, size)
    assert pool.work.forward_flop == 48
    assert pool.saved_maps == saved


@both_rules
def test_a_product_with_the_first_step(rule: SavingRule) -> None:
    """7 features over 6, 2 FLOPs each, once instead of 5 times; W is that of a product with all steps."""
    first = Linear(7, first_step=True)

    assert first.outputs((SEQUENCE,)) == (MapShape(7),)
    assert first.work((SEQUENCE,), rule).forward_flop == 84
    assert first.work((SEQUENCE,), rule).weights == Linear(7).work((SEQUENCE,), rule).weights == 49


@both_rules
def test_attention_both_ways_has_all_pairs(rule: SavingRule) -> None:
    """5 x 5 pairs for 15, two products of 2 FLOPs over 2 features a head."""
    both, back = (Attention(1, 1, each).work((SEQUENCE,), rule).forward_flop for each in (True, False))

    assert (both, back) == (2 * 25 * 2 * 2, 2 * 15 * 2 * 2)


def test_what_a_picture_as_a_sequence_keeps() -> None:
    """The picture, all 5 steps of 6 features of each of two, though the head reads the first; 7 logits, and labels."""
    workload = picture()
    patches, token, positions, head, loss = workload.graph.layers

    assert [layer.saved_maps for layer in (patches, token, positions, head)] == [(0,), (), (), (3,)]
    assert [layer.parameters for layer in (patches, token, positions, head, loss)] == [78, 6, 30, 49, 0]
    assert workload.step.saved_bytes == 2 * (4 * (48 + 30 + 7) + 8)
    assert replace(workload, mode=Mode.INFERENCE).step.saved_bytes == 0


@pytest.mark.parametrize(("rule", "same"), [(SavingRule.AUTOGRAD, True), (SavingRule.PAPER, False)])
def test_positions_hand_their_gradient_on(rule: SavingRule, same: bool) -> None:  # noqa: FBT001 - as pytest gives it
    """By autograd the token's dY is that of the sum; by the paper's rule it is copied, as for any addition."""
    operation = picture(rule).step.operation(2, D)
    (dy,), (dx,) = of_role(operation, Role.OUTPUT_GRADIENT), of_role(operation, Role.INPUT_GRADIENT)

    assert (dy.memory == dx.memory) is same


def test_a_kernel_in_time_and_space_is_refused() -> None:
    with pytest.raises(ValueError, match="3, 3"):
        Convolution(4, (3, 3), steps=3)


def test_a_picture_under_autocast() -> None:
    """The token, positions and what they are added to are float32; patches and the head's copy of X are not.

    Of X the first step alone, of 6 features, is copied and kept, by an operator of its own.
    """
    narrow = under_autocast(picture().graph, ElementType.BFLOAT16)
    types = {each.name: each.element_type for each in narrow.maps}
    assert types["patches"] is types["head"] is ElementType.BFLOAT16
    assert types["token"] is types["positions"] is ElementType.FLOAT32
    (head,) = (each for each in picture().graph.layers if each.name == "head")
    cast, product = next(pair for pair in pairwise(narrow.layers) if pair[1].name == "head")
    assert (cast.kind, cast.in_shapes, cast.out_shape) == (LayerKind.CAST, (SEQUENCE,), MapShape(6))
    assert product.saved_maps == cast.outputs
    assert (product.work, product.out_shape) == (head.work, head.out_shape)
