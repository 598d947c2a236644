"""Chains of pointwise operators of a captured step, fused as a compiler does."""

import msgspec
import pytest

from tests.captured_steps import MAP, WEIGHTS, Recording, W, X, Y, chain, residual
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.fusion import compiled
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Mode


def moved(step: CapturedStep) -> list[int]:
    return [each.bytes_moved for each in step.operations]


def changed(step: CapturedStep) -> dict[int, int]:
    """Return what operations move when they are fused, of those that move something else than before."""
    pairs = enumerate(zip(moved(step), moved(compiled(step)), strict=True))
    return {at: new for at, (old, new) in pairs if old != new}


def test_a_chain_reads_and_writes_once() -> None:
    """Of `chain(2)`, whose maps of 2 x 1 x 2 x 2 are 32 B, bn and relu_ are one kernel, and their backwards another.

    The first reads 32 B and a weight of 4 B, and writes what relu makes, 32 B, and the moments, 8 B: 76, for bn's own
    result is written over in registers. The second reads a gradient, bn's input and relu's output, 96 B, the weight and
    the moments, 12 B, and writes 32 B and 4 B: 144. All else is as it was.
    """
    step = chain(2)
    fused = compiled(step)
    assert changed(step) == {1: 0, 2: 76, 14: 0, 15: 144}
    assert fused.notes == (
        "compiled: 4 of 18 operators run as 2 kernels; memory is that of a model that is not compiled.",
    )
    assert (fused.storages, fused.tensors) == (step.storages, step.tensors)
    # Of `residual`, maps of 4 B, the addition and the second relu are both in place over the same map. Apart they
    # move 12 + 8 B; together they read both maps and write one: 12 B. The relu between two convolutions is alone.
    assert changed(residual()) == {4: 0, 5: 12}


def pointwise(*names: str, size: int = 4) -> CapturedStep:
    """A product with a weight, and behind it operators each of which reads what the one before it wrote, of `size`."""
    r = Recording("pointwise", 1, ("body",))
    weight = r.memory("weight", WEIGHTS, (1,), given=True)
    x, y = r.memory("input", MAP, (4,), given=True), r.memory("product", MAP, (4,))
    r.run("addmm", "body", Phase.FORWARD, reads=[(X, x), (W, weight)], writes=[(Y, y)])
    for at, name in enumerate(names):
        z = r.memory(f"{name} {at}", MAP, (size,), held=at == len(names) - 1)
        r.run(name, "body", Phase.FORWARD, reads=[(X, y)], writes=[(Y, z)], flop=1)
        y = z
    return r.step(Mode.INFERENCE, "none")


def test_the_work_of_a_chain_is_that_of_all_its_operators() -> None:
    """pow, mul and tanh on 16 B, as a GELU is written out: of 3 x 32 B one reading and one writing are left."""
    fused = compiled(pointwise("pow", "mul", "tanh"))
    assert moved(fused)[1:] == [0, 0, 32]
    assert [each.flop for each in fused.operations[1:]] == [{}, {}, {Arithmetic.ELEMENTWISE: 3}]
    # A gate, x times its sigmoid, on maps of 16 B: apart 2 and 3 of them, together x is read and its gate written.
    step = pointwise("sigmoid", "mul")
    product, first, second = step.operations
    gated = msgspec.structs.replace(
        second, operands=(first.operands[0], *second.operands), bytes_moved=second.bytes_moved + 16
    )
    assert moved(compiled(msgspec.structs.replace(step, operations=(product, first, gated))))[1:] == [0, 32]


def apart() -> CapturedStep:
    """Two operators, the second of which reads not what the first wrote, but what the first read."""
    step = pointwise("relu", "mul")
    first, second = step.operations[1:]
    read, written = second.operands
    again = msgspec.structs.replace(read, memory=first.operands[0].memory)
    second = msgspec.structs.replace(second, operands=(again, written))
    return msgspec.structs.replace(step, operations=(*step.operations[:2], second))


@pytest.mark.parametrize("step", [pointwise("relu"), pointwise("relu", "max_pool2d", "relu"), apart()])
def test_what_is_no_chain_stays(step: CapturedStep) -> None:
    fused = compiled(step)

    assert fused.operations == step.operations
    assert fused.notes[-1].startswith("compiled: 0 of ")
