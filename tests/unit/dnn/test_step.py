"""The iteration of a small network as plain data, every number worked out by hand.

Two images of 1x2x2 in float32: conv 0 (one filter of one element, map 1), conv/relu 1 over it, pool 2 (map 2), fc 3
(map 3), loss 4 (map 4). Maps 0 and 1 hold 32 B, the rest 8 B; each W is a weight and a bias, 8 B. Momentum has a state.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from tests.operands import of_role
from tests.toy import toy_graph, with_fc
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.operator import Arithmetic, Operator, SavingRule, Work
from vdnnsim.dnn.shapes import MapShape, Shapes
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Tensor
from vdnnsim.dnn.workload import Mode, Optimizer, Workload

F, D, W, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.UPDATE
READ, WRITE, UPDATE = Access.READ, Access.WRITE, Access.UPDATE


def small() -> Workload:
    net = GraphBuilder("small", MapShape(1, 2, 2))
    y = net.pool("pool", net.conv("conv", 0, 1, 1), 2, stride=2)
    return Workload(with_fc(net, y), batch_size=2, optimizer=Optimizer.MOMENTUM)


SMALL = small()
STEP = SMALL.step


def test_operations_storages_tensors_and_arithmetic() -> None:
    """Nothing below conv wants a gradient, so it has no data gradient."""
    assert [(STEP.path_of(each), each.phase) for each in STEP.operations] == [
        *(("conv", F), ("conv/relu", F), ("pool", F), ("fc", F), ("loss", F)),
        *(("loss", D), ("fc", D), ("fc", W), ("pool", D), ("conv/relu", D), ("conv", W)),
        *(("conv", U), ("fc", U)),
    ]
    # By the positions of the operations above; what is held from iteration to iteration is never freed.
    assert [(each.name, each.nbytes, each.freed_after) for each in STEP.storages] == [
        *(("map input", 32, 10), ("map conv", 32, 9), ("map pool", 8, 8), ("map fc", 8, 4), ("map loss", 8, 5)),
        *(("gradient of conv", 32, 10), ("gradient of pool", 8, 8), ("gradient of fc", 8, 7)),
        *(("weights of conv", 8, None), ("weight gradient of conv", 8, 11), ("state 1 of conv", 8, None)),
        *(("weights of fc", 8, None), ("weight gradient of fc", 8, 12), ("state 1 of fc", 8, None)),
    ]
    assert [each.name for each in STEP.storages if each.given] == [
        *("map input", "weights of conv", "state 1 of conv", "weights of fc", "state 1 of fc")
    ]
    assert {each.element_type for each in STEP.storages} == {"float32"}
    assert STEP.storages[11].stage is Stage.CLASSIFIER
    # Each storage has a tensor with the batch first.
    assert STEP.tensors[:3] == tuple(
        Tensor(number, (2, 1, size, size), "float32") for number, size in enumerate((2, 2, 1))
    )
    assert STEP.tensors[8] == Tensor(8, (2,), "float32")
    # fc: a multiply and an add for each of two images; the update 4 operations for each of 2 weights.
    assert STEP.operation(3, F).flop == {Arithmetic.PRODUCT: 4}
    assert STEP.operation(3, U).flop == {Arithmetic.ELEMENTWISE: 8}
    assert not any(each.random for each in STEP.operations)


def test_operands_have_roles() -> None:
    """A rectifier works in place: its X and Y are one storage, its dX and dY another."""
    assert STEP.operation(0, F).operands == (
        Operand(Role.INPUT, 0, READ),
        Operand(Role.WEIGHTS, 8, READ),
        Operand(Role.OUTPUT, 1, WRITE),
    )
    assert STEP.operation(1, F).operands == (Operand(Role.INPUT, 1, READ), Operand(Role.OUTPUT, 1, WRITE))
    assert STEP.operation(1, D).operands == (
        Operand(Role.OUTPUT, 1, READ),
        Operand(Role.OUTPUT_GRADIENT, 5, READ),
        Operand(Role.INPUT_GRADIENT, 5, WRITE),
    )
    assert STEP.operation(3, W).operands == (
        Operand(Role.INPUT, 2, READ),
        Operand(Role.OUTPUT_GRADIENT, 7, READ),
        Operand(Role.WEIGHT_GRADIENT, 12, WRITE),
    )
    assert STEP.operation(3, U).operands == (
        Operand(Role.WEIGHTS, 11, UPDATE),
        Operand(Role.WEIGHT_GRADIENT, 12, READ),
        Operand(Role.STATE, 13, UPDATE),
    )
    assert of_role(STEP.operation(3, U), Role.STATE, Role.WEIGHTS) == (
        Operand(Role.WEIGHTS, 11, UPDATE),
        Operand(Role.STATE, 13, UPDATE),
    )


def test_forward_keeps_what_a_rule_says() -> None:
    """The paper keeps the input, conv, pool and the loss: 32 + 32 + 8 + 8 B.

    Autograd keeps pool's map for fc alone, pool's indices, 8 B for each image, and the labels, another 8 B each.
    """
    autograd = SMALL.saved_by(SavingRule.AUTOGRAD).step
    assert [each.saves for each in STEP.operations[:5]] == [(0,), (1,), (1, 2), (2,), (4,)]
    assert (STEP.saved, STEP.saved_bytes) == ((0, 1, 2, 4), 80)
    assert [autograd.storages[each].name for each in autograd.saved] == [
        *("map input", "map conv", "statistics of pool", "map pool", "map loss", "labels")
    ]
    assert autograd.saved_bytes == 96 + 16
    assert {each.access for each in of_role(autograd.operation(2, F), Role.STATISTICS)} == {WRITE}
    assert {each.access for each in of_role(autograd.operation(2, D), Role.STATISTICS)} == {READ}
    # A rule gives the same workload each time.
    workload = SMALL.saved_by(SavingRule.AUTOGRAD)
    assert workload.graph is SMALL.saved_by(SavingRule.AUTOGRAD).graph
    assert workload.saved_by(SavingRule.AUTOGRAD) is workload
    assert SMALL.saved_by(SavingRule.PAPER) is SMALL
    assert hash(workload.graph) != hash(SMALL.graph)


def test_steps_of_inference_and_of_a_part() -> None:
    step = replace(SMALL, mode=Mode.INFERENCE, optimizer=Optimizer.NONE).step
    assert {each.phase for each in step.operations} == {F}
    assert (step.saved, step.saved_bytes) == ((), 0)
    assert {each.kind for each in step.storages} == {BufferKind.FEATURE_MAP, BufferKind.WEIGHTS}
    # One image of two: maps hold half, W do not, and the update is the same.
    step = replace(SMALL, parts=2).step
    assert [each.nbytes for each in step.storages[:5]] == [16, 16, 4, 4, 4]
    assert step.storages[8].nbytes == 8
    assert step.operation(3, F).flop == {Arithmetic.PRODUCT: 2}
    assert step.operation(3, U) == STEP.operation(3, U)


def test_several_inputs_stand_in_their_order_and_all_but_one_reader_add_to_a_gradient() -> None:
    """Stem 0 (map 1) is read by left 1 (map 2) and by sum 2 = left + stem (map 3), which is the first in backward."""
    step = Workload(toy_graph("stem conv; left conv; sum add left stem"), batch_size=1).step
    names = [each.name for each in step.storages]

    def touched(layer: int, phase: Phase) -> list[tuple[str, Role, int, Access]]:
        operands = step.operation(layer, phase).operands
        return [(names[each.memory], each.role, each.position, each.access) for each in operands]

    assert touched(2, F) == [
        ("map left", Role.INPUT, 0, READ),
        ("map stem", Role.INPUT, 1, READ),
        ("map sum", Role.OUTPUT, 0, WRITE),
    ]
    assert touched(2, D) == [
        ("gradient of sum", Role.OUTPUT_GRADIENT, 0, READ),
        ("gradient of left", Role.INPUT_GRADIENT, 0, WRITE),
        ("gradient of stem", Role.INPUT_GRADIENT, 1, WRITE),
    ]
    assert touched(1, D)[:2] == [
        ("gradient of left", Role.OUTPUT_GRADIENT, 0, READ),
        ("gradient of stem", Role.INPUT_GRADIENT, 0, UPDATE),
    ]


@dataclass(frozen=True, slots=True)
class SquaredError(Operator):
    """A loss that keeps what it is of, and reads no classes."""

    name: ClassVar[str] = "squared_error"
    kind: ClassVar[str] = "LOSS"
    is_loss: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        return Work(forward_flop=3 * inputs[0].elements, backward_flop=inputs[0].elements, saved_inputs=(0,))


@pytest.mark.parametrize("rule", SavingRule)
def test_an_iteration_may_end_in_any_loss(rule: SavingRule) -> None:
    """A product of 2 by 3 elements for each of 4 images, in float32: 8 elements of X and 12 of Y, which the loss keeps.

    So forward saves 32 and 48 B, no labels among it. Backward of the loss makes dY from Y; that of the product, whose X
    is the input, makes dW alone.
    """
    net = GraphBuilder("regression", MapShape(2))
    step = Workload(net.build(net.fc("fc", 0, 3, relu=False), SquaredError()), 4).saved_by(rule).step

    assert step.saved_bytes == 32 + 48
    assert [(step.path_of(each), each.phase) for each in step.operations if each.phase.is_backward] == [
        ("loss", Phase.BACKWARD_DATA),
        ("fc", Phase.BACKWARD_WEIGHTS),
    ]
    assert {each.kind for each in step.storages} == {
        BufferKind.FEATURE_MAP,
        BufferKind.GRADIENT_MAP,
        BufferKind.WEIGHTS,
        BufferKind.WEIGHT_GRADIENT,
    }
