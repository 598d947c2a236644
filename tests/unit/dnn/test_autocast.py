"""A small network under autocast to bfloat16, by PyTorch's lists for CUDA, every byte worked out by hand.

One image of four channels: conv to two, a local response normalization, the sum of the two, fc to one, the loss. conv
and fc compute in bfloat16, the normalization and the loss in float32, the sum in the widest of its inputs:

    input float32 4 -> [conv/cast bfloat16 4] -> conv bfloat16 2 -> [lrn/cast float32 2] -> lrn float32 2
    add of conv and lrn float32 2 -> [fc/cast bfloat16 2] -> fc bfloat16 1 -> [loss/cast float32 1] -> loss float32 1

W are 2 x (4 + 1) and 2 + 1 elements, 40 B and 12 B in float32; without biases their narrow copies hold 16 B and 4 B.
"""

from dataclasses import replace

import pytest

from tests.toy import with_fc
from vdnnsim.dnn.elementwise import LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, BufferKind, Role
from vdnnsim.dnn.workload import Mode, Optimizer, Workload, saved_by, under_autocast
from vdnnsim.units import ElementType, Precision

F, D, W, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.UPDATE
WIDE, HALF = ElementType.FLOAT32, ElementType.BFLOAT16


def plain() -> LayerGraph:
    net = GraphBuilder("mixed", MapShape(4))
    y = net.conv("conv", 0, 2, 1, relu=False)
    y = net.add("add", y, net.layer("lrn", LocalResponseNormalization(1), y), relu=False)
    return with_fc(net, y)


MIXED = Workload.in_precision(plain(), 1, Precision.AMP_BFLOAT16, Optimizer.SGD)
AUTOGRAD = MIXED.saved_by(SavingRule.AUTOGRAD)


def layer_of(workload: Workload, name: str) -> Layer:
    (found,) = [layer for layer in workload.graph.layers if layer.name == name]
    return found


def test_casts_stand_where_an_operator_wants_another_type() -> None:
    """None before the sum, which takes what there is. A map has the type in which its operator writes."""
    graph = under_autocast(plain(), HALF)
    names = "conv/cast conv lrn/cast lrn add fc/cast fc loss/cast loss".split()
    assert [layer.name for layer in graph.layers] == [each.name for each in graph.maps[1:]] == names
    casts = [layer.name for layer in graph.layers if layer.kind is LayerKind.CAST]
    assert casts == [name for name in names if name.endswith("/cast")]
    assert graph.autocast is HALF
    assert graph.parameters == plain().parameters == 13
    types = [each.element_type for each in MIXED.graph.maps]
    assert types == [WIDE, HALF, HALF, WIDE, WIDE, WIDE, HALF, HALF, WIDE, WIDE]
    assert [MIXED.map_bytes(each.index) for each in MIXED.graph.maps] == [16, 8, 4, 8, 8, 8, 4, 2, 4, 4]


def test_an_input_that_has_the_type_is_not_cast() -> None:
    """The first fc writes bfloat16, and the second reads it as it is."""
    net = GraphBuilder("two", MapShape(1))
    y = net.fc("second", net.fc("first", 0, 1, relu=False), 1, relu=False)
    graph = under_autocast(net.build(y), HALF)

    assert [layer.name for layer in graph.layers] == ["first/cast", "first", "second", "loss/cast", "loss"]


def test_weights_stay_wide_and_products_have_narrow_copies() -> None:
    """W, dW and states in float32; of W a copy in bfloat16, biases aside, which backward reads in its place."""
    conv, fc = layer_of(AUTOGRAD, "conv"), layer_of(AUTOGRAD, "fc")
    step = AUTOGRAD.step
    assert (AUTOGRAD.weight_bytes(conv), AUTOGRAD.weight_bytes(fc)) == (40, 12)
    assert (AUTOGRAD.narrow_weight_bytes(conv), AUTOGRAD.narrow_weight_bytes(fc)) == (16, 4)
    assert AUTOGRAD.narrow_weight_bytes(layer_of(AUTOGRAD, "lrn")) == 0
    narrow = [each for each in step.storages if each.name.startswith("narrow weights")]
    assert [(each.name, each.nbytes, each.element_type, each.kind) for each in narrow] == [
        ("narrow weights of conv", 16, HALF.value, BufferKind.STATISTICS),
        ("narrow weights of fc", 4, HALF.value, BufferKind.STATISTICS),
    ]
    backward = step.operation(fc.index, D).operands
    assert {each.role for each in backward} == {Role.OUTPUT_GRADIENT, Role.INPUT_GRADIENT, Role.STATISTICS}
    assert [step.storages[each.memory].name for each in backward if each.role is Role.STATISTICS] == [
        "narrow weights of fc"
    ]
    assert {each.element_type for each in step.storages if each.kind is BufferKind.WEIGHT_GRADIENT} == {WIDE.value}
    # Of conv the cast input and W, of lrn its X in float32 and squares, sums and powers of two channels each. Squares
    # have no padding, for the window is of one channel. fc: the cast sum and W. The loss: its logarithms in bfloat16,
    # which stand in the place of the logits, itself and a label.
    assert [(step.storages[each].name, step.storages[each].nbytes) for each in step.saved] == [
        *(("map conv/cast", 8), ("narrow weights of conv", 16), ("map lrn/cast", 8), ("statistics of lrn", 3 * 2 * 4)),
        *(("map fc/cast", 4), ("narrow weights of fc", 4), ("map fc", 2), ("map loss", 4), ("labels", 8)),
    ]
    assert step.saved_bytes == 78


@pytest.mark.parametrize("workload", [MIXED, AUTOGRAD], ids=["paper", "autograd"])
def test_backward_casts_gradients_the_other_way(workload: Workload) -> None:
    """All but the cast of the input batch have a backward, and conv no data gradient: nothing below it has weights."""
    phases = [(workload.step.path_of(each), each.phase) for each in workload.step.operations[9:]]

    assert phases == [
        *(("loss", D), ("loss/cast", D), ("fc", D), ("fc", W), ("fc/cast", D), ("add", D), ("lrn", D)),
        *(("lrn/cast", D), ("conv", W), ("conv", U), ("fc", U)),
    ]


def test_a_sum_hands_its_gradient_on_where_types_agree_and_a_narrow_copy_where_they_do_not() -> None:
    """The dY of add is float32, as is the gradient of lrn: the same; that of conv is a copy in bfloat16.

    lrn/cast then adds to it what it computes apart, 4 B.
    """
    step = AUTOGRAD.step

    def touched(name: str) -> list[tuple[str, Role, Access]]:
        operands = step.operation(layer_of(AUTOGRAD, name).index, D).operands
        return [(step.storages[each.memory].name, each.role, each.access) for each in operands]

    assert touched("add") == [
        ("gradient of add", Role.OUTPUT_GRADIENT, Access.READ),
        ("gradient of conv", Role.INPUT_GRADIENT, Access.WRITE),
        ("gradient of add", Role.INPUT_GRADIENT, Access.READ),
    ]
    assert touched("lrn/cast")[-1] == ("gradient of conv", Role.INPUT_GRADIENT, Access.UPDATE)
    assert step.operation(layer_of(AUTOGRAD, "lrn/cast").index, D).temporary_bytes == 4


def test_casts_and_narrow_copies_move_their_bytes() -> None:
    """A cast of the input moves 16 + 8 B; conv reads 8 B of X, 40 B of W, writes and reads its copy, 16 B, writes 4 B.

    The weight gradient of conv reads X and dY, and writes dW narrow, 16 B, and again in float32.
    """
    conv, cast = layer_of(MIXED, "conv"), layer_of(MIXED, "conv/cast")

    assert MIXED.bytes_moved(cast, F) == 24
    assert MIXED.bytes_moved(conv, F) == 8 + 40 + 2 * 16 + 4
    assert MIXED.bytes_moved(conv, W) == 8 + 4 + 2 * 16 + 40
    assert MIXED.bytes_moved(layer_of(MIXED, "fc"), D) == 4 + 2 + 4
    assert MIXED.flop(cast, F) == 0


def test_in_inference_a_narrow_copy_is_a_temporary() -> None:
    workload = replace(MIXED, mode=Mode.INFERENCE, optimizer=Optimizer.NONE)
    step = workload.step

    assert not any(each.name.startswith("narrow") for each in step.storages)
    assert [step.operation(layer.index, F).temporary_bytes for layer in workload.graph.layers] == [
        *(0, 16, 0, 0, 0, 0, 4, 0, 0)
    ]


@pytest.mark.parametrize(
    ("name", "phase", "computed"),
    [
        *(("conv/cast", F, WIDE), ("conv", F, HALF), ("conv", W, HALF), ("conv", U, WIDE), ("lrn", F, WIDE)),
        *(("add", F, WIDE), ("fc", D, HALF), ("loss/cast", D, WIDE), ("loss", F, WIDE)),
    ],
)
def test_each_kernel_computes_in_a_type(name: str, phase: Phase, computed: ElementType) -> None:
    """A product in the narrow type, a cast in the wider of its two, an update as weights are stored."""
    assert MIXED.arithmetic_type(layer_of(MIXED, name), phase) is computed


@pytest.mark.parametrize(
    ("precision", "product", "other", "update"),
    [
        (Precision.FLOAT32, WIDE, WIDE, WIDE),
        (Precision.TF32, ElementType.TF32, WIDE, WIDE),
        (Precision.BFLOAT16, HALF, HALF, HALF),
        (Precision.FLOAT16, *[ElementType.FLOAT16] * 3),
        (Precision.AMP_FLOAT16, ElementType.FLOAT16, WIDE, WIDE),
    ],
)
def test_a_precision_decides_for_products_and_for_the_rest(
    precision: Precision, product: ElementType, other: ElementType, update: ElementType
) -> None:
    """TF32 is how products of float32 are multiplied, and nothing else; normalizations stay in float32 under AMP."""
    workload = Workload.in_precision(plain(), 1, precision, Optimizer.SGD)
    computed = [
        workload.arithmetic_type(layer_of(workload, name), phase) for name, phase in (("fc", F), ("lrn", F), ("fc", U))
    ]

    assert computed == [product, other, update]
    assert workload.precision is precision


def test_a_cast_of_the_input_is_as_constant_as_it_is() -> None:
    """Nothing computes its gradient; for autograd, not for the paper, the same holds of a pooling over the input."""
    net = GraphBuilder("pooled", MapShape(1, 2, 2))
    graph = net.build(net.fc("fc", net.pool("pool", 0, 1, stride=1), 1, relu=False))

    def constant(one: LayerGraph) -> list[str]:
        return [each.name for each in one.maps if each.is_constant]

    assert constant(graph) == ["input"]
    assert constant(under_autocast(graph, HALF)) == ["input"]
    assert constant(saved_by(graph, SavingRule.AUTOGRAD)) == ["input", "pool"]
    assert constant(saved_by(under_autocast(graph, HALF), SavingRule.AUTOGRAD)) == ["input", "pool", "fc/cast"]
    assert constant(MIXED.graph) == ["input", "conv/cast"]
