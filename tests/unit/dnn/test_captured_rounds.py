"""Several micro-batches before an update: two of 2 numbers each through one weight, y = w x, whose gradients add up.

Storages: 0 the weight, 1 and 2 the inputs (8 B each), 3 the first y, 4 the weight's gradient (held to the end), 5 the
second y, 6 what backward of the second makes and adds. All others are of 4 B, but for y with 8.
"""

import pytest

from tests.captured_steps import DW, MAP, WEIGHTS, Recording, W, X, Y, chain, simulator
from tests.toy import server_with
from vdnnsim.dnn.captured_step import CapturedStep, last_round, rounds_of
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Allocate, Compute
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.simulator import Simulator


def twice() -> CapturedStep:
    """Of what stands above."""
    r = Recording("twice", 2, ("linear",))
    weight = r.memory("weight", WEIGHTS, (1,), given=True)
    first, second = (r.memory(f"input {number}", MAP, (2,), given=True) for number in range(2))
    f, b = Phase.FORWARD, Phase.BACKWARD
    y = r.memory("y", MAP, (2,))
    r.run("mul", "linear", f, reads=[(X, first), (W, weight)], writes=[(Y, y)], saves=[first, weight])
    gradient = r.memory("weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True)
    r.run("mul", "linear", b, reads=[(X, first), (Y, y)], writes=[(DW, gradient)], forward=0)
    y = r.memory("y", MAP, (2,))
    r.run("mul", "linear", f, reads=[(X, second), (W, weight)], writes=[(Y, y)], saves=[second, weight])
    made = r.memory("made", BufferKind.WEIGHT_GRADIENT, (1,))
    r.run("mul", "linear", b, reads=[(X, second), (Y, y)], writes=[(DW, made)], forward=2)
    r.run("add_", "linear", b, reads=[(DW, made)], updates=[(DW, gradient)], forward=2)
    r.run("add_", "", Phase.UPDATE, reads=[(DW, gradient)], updates=[(W, weight)])
    return r.step()


def test_the_last_micro_batch_finds_what_the_first_left() -> None:
    """The first y is gone; its input is held by the program, and no map any more; the gradient is there.

    A step of one forward is left alone.
    """
    assert (rounds_of(chain()), last_round(chain())) == (1, chain())
    last = last_round(twice())
    assert rounds_of(twice()) == 2
    assert [(each.name, each.kind, each.given) for each in last.storages] == [
        ("weight", BufferKind.WEIGHTS, True),
        ("input 0", BufferKind.LABELS, True),
        ("input 1", BufferKind.FEATURE_MAP, True),
        ("weight.grad", BufferKind.WEIGHT_GRADIENT, True),
        ("y", BufferKind.FEATURE_MAP, False),
        ("made", BufferKind.WEIGHT_GRADIENT, False),
    ]
    assert [(each.name, each.forward, each.saves) for each in last.operations] == [
        ("aten.mul.default", None, (2, 0)),
        ("aten.mul.default", 0, ()),
        ("aten.add_.default", 0, ()),
        ("aten.add_.default", None, ()),
    ]


@pytest.mark.parametrize("policy", ["pytorch", "save_on_cpu", "none(p)"])
def test_policies_do_as_often_what_they_plan_of_one(policy: str) -> None:
    """Three operations twice, and the update once. Pages do not return to where a micro-batch begins."""
    workload = CapturedWorkload.of(twice())
    assert (workload.rounds, workload.part_size, workload.batch_size) == (2, 2, 4)
    machine = Simulator.of(workload, server_with({"launch_overhead_s": 1.0}), MemoryModel.IDEAL, PinnedMemory.ARENA)
    (ready,) = machine.ready([make_plan(resolve_policy(policy, known_policies()), machine.setting())], policy)
    kernels = [(each.phase, each.operation) for each in ready.operations if isinstance(each, Compute)]
    once = [(Phase.FORWARD, 0), (Phase.BACKWARD, 0), (Phase.BACKWARD, 1)]
    assert kernels == [*once, *once, (Phase.UPDATE, 0)]
    with pytest.raises(PolicyError, match="found 2 micro-batches before an update, expected one"):
        make_plan(resolve_policy("page_migration", known_policies()), machine.setting())


def test_the_gradient_begins_in_the_first_backward() -> None:
    """`zero_grad` dropped it: forward of the last micro-batch, which stands for all, runs without it."""
    made = PyTorch().plan(simulator(last_round(twice())).setting())
    gradient = made.buffer_names.index("weight.grad")
    forward, *_ = (at for at, each in enumerate(made.operations) if isinstance(each, Compute))
    allocated = (
        at for at, each in enumerate(made.operations) if isinstance(each, Allocate) and each.buffer == gradient
    )
    assert next(allocated) > forward
