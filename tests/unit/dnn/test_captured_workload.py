"""A workload of the chain of `tests/captured_steps.py`, two images of 16 B, and steps of several micro-batches.

Of these there are two, of 2 numbers each through one weight, y = w x, whose gradients add up. Storages: 0 the weight, 1
and 2 the inputs (8 B each), 3 the first y, 4 the weight's gradient (held to the end), 5 the second y, 6 what backward
of the second makes and adds. All others are of 4 B, but for y with 8.
"""

from dataclasses import replace
from itertools import product

import msgspec
import pytest

from tests.captured_steps import DW, MAP, WEIGHTS, Recording, W, X, Y, chain, checkpointed, residual, simulator
from tests.toy import server_with
from vdnnsim.dnn.captured_step import CapturedStep, last_round, rounds_of
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.samples import IMAGE, Sample, sample_of
from vdnnsim.dnn.step import BufferKind, WeightGradients
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import lifetimes
from vdnnsim.plans.operations import Allocate, Compute
from vdnnsim.plans.schedule import iteration
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import ElementType, Precision

WORKLOAD = CapturedWorkload.of(chain())
F, B, U = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE


def test_phases_bytes_and_work_are_those_that_were_captured() -> None:
    assert (WORKLOAD.graph.name, WORKLOAD.batch_size, WORKLOAD.optimizer) == ("chain", 2, Optimizer.SGD)
    assert (WORKLOAD.precision, WORKLOAD.element_type) == (Precision.FLOAT32, ElementType.FLOAT32)
    assert WORKLOAD.saved_by(SavingRule.AUTOGRAD) is WORKLOAD
    assert WORKLOAD.weight_gradients is WeightGradients.DROPPED
    assert WORKLOAD.captured == chain()
    assert WORKLOAD == CapturedWorkload.of(chain()) != CapturedWorkload.of(chain(4))
    assert hash(WORKLOAD) == hash(CapturedWorkload.of(chain()))
    # Phases are those that were captured.
    assert [WORKLOAD.phases(each) for each in WORKLOAD.graph.layers] == [(F, B)] * 6 + [(U,)]
    assert [each.name for each in WORKLOAD.updated_layers] == ["optimizer"]
    # Input, conv and bn of 32 B, pool, fc and logs of 8 B; weights of 4 B; moments of 8 B, indices of 16 B.
    layers = WORKLOAD.graph.layers
    assert [WORKLOAD.map_bytes(each.index) for each in WORKLOAD.graph.maps] == [32, 32, 32, 8, 8, 8]
    assert [WORKLOAD.weight_bytes(each) for each in layers] == [4, 4, 0, 0, 4, 0, 0]
    assert [WORKLOAD.statistics_bytes(each) for each in layers] == [0, 8, 0, 16, 0, 0, 0]
    assert {WORKLOAD.narrow_weight_bytes(each) for each in layers} == {0}
    # Backward of fc: dX of dY, W and dX of 8 + 4 + 8 B, dW of dY, X and dW of 8 + 8 + 4 B, each 2 FLOPs an image.
    fc = WORKLOAD.graph.layers[4]
    assert (WORKLOAD.flop(fc, F), WORKLOAD.flop(fc, B), WORKLOAD.bytes_moved(fc, B)) == (4, 8, 40)


def test_products_compute_in_tf32_where_the_workload_does() -> None:
    workload = CapturedWorkload.of(msgspec.structs.replace(chain(), precision=Precision.TF32))
    conv, bn = workload.graph.layers[:2]
    assert workload.arithmetic_type(conv, F) is ElementType.TF32
    assert workload.arithmetic_type(bn, F) is ElementType.FLOAT32
    assert workload.map_type(0) is ElementType.FLOAT32


@pytest.mark.parametrize(
    ("name", "optimizer"), [("none", Optimizer.NONE), ("momentum_fused", Optimizer.MOMENTUM), ("adamw", Optimizer.ADAM)]
)
def test_the_nearest_of_our_optimizers_is_taken(name: str, optimizer: Optimizer) -> None:
    assert CapturedWorkload.of(msgspec.structs.replace(chain(), optimizer=name)).optimizer is optimizer


def test_what_was_not_captured_is_refused() -> None:
    with pytest.raises(PolicyError, match="batch of 2, which cannot be cut into 2 parts"):
        replace(WORKLOAD, parts=2)
    with pytest.raises(PolicyError, match="set_to_none: true"):
        replace(WORKLOAD, weight_gradients=WeightGradients.KEPT)


def test_a_sample_is_an_image_or_a_sequence() -> None:
    """2 sequences of 4 numbers of 8 B, whatever kernel looks them up; the shape of an image is that of its map.

    Tokens of a language model may be its labels, too, which are no map; or be in micro-batches, here of one sequence.
    """
    assert sample_of(WORKLOAD.graph) == IMAGE
    step = chain()
    numbers = msgspec.structs.replace(step.storages[3], nbytes=64, element_type="int64")
    labels = msgspec.structs.replace(numbers, kind=BufferKind.LABELS)
    halves = msgspec.structs.replace(numbers, nbytes=32)
    names = "aten.embedding.default", "triton::triton_poi_fused_embedding_0"
    for name, read in product(names, (numbers, labels, halves)):
        lookup = msgspec.structs.replace(step.operations[0], name=name, work=None)
        storages, operations = (*step.storages[:3], read, *step.storages[4:]), (lookup, *step.operations[1:])
        changes = {"sample": "sequence", "sample_elements": 4, "storages": storages, "operations": operations}
        workload = CapturedWorkload.of(msgspec.structs.replace(step, **changes))
        assert sample_of(workload.graph) == Sample("sequence", "token", 4)


@pytest.mark.parametrize("step", [chain(), residual(), checkpointed()], ids=lambda each: each.model)
def test_buffers_live_as_long_as_was_captured(step: CapturedStep) -> None:
    """Of an iteration in its own order, all but what is there throughout, by the operations of the step."""
    workload = CapturedWorkload.of(step)
    buffers = IterationBuffers(workload)
    runs = [
        replace(run, operation=at)
        for run in iteration(workload)
        for at in range(len(workload.step.operations_of(run.layer.index, run.phase)))
    ]
    held = frozenset(each for each, _ in buffers.held(with_statistics=True))
    lived = lifetimes(runs, buffers, held)
    ends = {buffer: at for at, ending in enumerate(lived.ends) for buffer in ending}
    storages = workload.step.storages
    last = len(step.operations) - 1
    freed = [last if each.freed_after is None else each.freed_after for each in storages]
    assert ends == {number: at for number, at in enumerate(freed) if number not in held}
    assert {storages[each].kind for each in held} <= {
        *(BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE, BufferKind.STATISTICS, BufferKind.LABELS)
    }


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
