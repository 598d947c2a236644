"""What the operators of U-Net, MobileNetV2 and ViT write, keep and compute, each derived by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.operands import of_role
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.operator import SavingRule, Work
from vdnnsim.dnn.sequences import Attention, Linear
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Role
from vdnnsim.dnn.vision import ClassToken, LearnedPositions, Relu6, TransposedConvolution
from vdnnsim.dnn.workload import Mode, Workload, saved_by, under_autocast
from vdnnsim.units import ElementType

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
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
