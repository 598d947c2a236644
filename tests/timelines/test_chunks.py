"""Chunks on the toy machine, by hand: 1 B/s over the link, and a GPU of 15 B.

The map x has 10 B. K0 writes it in 2 s, K1 needs another 10 B for 6 s, K2 reads x in 1 s.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import TOY_LIMITS, replay, touching, toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Compute, Stream
from vdnnsim.plans.trace import IterationTrace, Stall, StallCause
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY = Stream.COMPUTE, Stream.MEMORY
WORKLOAD = toy_workload(toy_chain(1))
COSTS = toy_costs(WORKLOAD, {("conv1", F): 2.0, ("fc", F): 6.0, ("conv1", W): 1.0})
LIMITS = replace(TOY_LIMITS, device_bytes=15)
LEFT, RIGHT = range(5), range(5, 10)


class Script:
    def __init__(self) -> None:
        self.plan = PlanWriter(WORKLOAD)
        self.x, self.y = (self.plan.buffer(name, BufferKind.FEATURE_MAP, 10, Stage.FEATURES) for name in ("x", "y"))
        self.plan.allocate(self.x, 0, F)
        self.plan.compute(0, F, "only", touching(writes=[self.x]))
        self.order(COMPUTE, MEMORY)

    def order(self, first: Stream, then: Stream) -> None:
        self.plan.wait(self.plan.record(first), then)

    def offload_x(self, extent: range | None = None) -> int:
        self.plan.offload(self.x, 0, extent=extent)
        return self.plan.record(MEMORY)

    def prefetch_x(self, extent: range | None = None) -> None:
        if extent is None:
            self.plan.allocate(self.x, 0, W)
        else:
            self.plan.allocate_extent(self.x, extent, 0, W)
        self.order(COMPUTE, MEMORY)
        self.plan.prefetch(self.x, 0, on_demand=False, extent=extent)

    def k1(self) -> None:
        """Run K1 in memory of its own."""
        self.plan.allocate(self.y, 1, F)
        self.plan.compute(1, F, "only", touching(writes=[self.y]))
        self.plan.release(self.y)

    def finished(self) -> TrainingPlan:
        """Run K2 once x is back."""
        self.order(MEMORY, COMPUTE)
        self.plan.compute(0, W, "only", touching(reads=[self.x]))
        self.plan.release(self.x)
        return self.plan.finish("hand", "m")


def whole() -> TrainingPlan:
    """Offload x, run K1, prefetch x."""
    script = Script()
    script.plan.wait(script.offload_x(), COMPUTE)
    script.plan.release(script.x)
    script.k1()
    script.prefetch_x()
    return script.finished()


def offload_in_chunks() -> TrainingPlan:
    """Run K1 as soon as the left part is offloaded, whose release makes room for it."""
    script = Script()
    left, right = script.offload_x(LEFT), script.offload_x(RIGHT)
    script.plan.wait(left, COMPUTE)
    script.plan.release_extent(script.x, LEFT)
    script.k1()
    script.plan.wait(right, COMPUTE)
    script.plan.release_extent(script.x, RIGHT)
    script.prefetch_x(LEFT)
    script.prefetch_x(RIGHT)
    return script.finished()


def prefetch_in_chunks() -> TrainingPlan:
    """Prefetch the left part while K1 runs, and the right part after it."""
    script = Script()
    script.plan.wait(script.offload_x(), COMPUTE)
    script.plan.release_extent(script.x, range(10))
    script.prefetch_x(LEFT)
    script.k1()
    script.prefetch_x(RIGHT)
    return script.finished()


def timeline(trace: IterationTrace) -> list[str]:
    plan = trace.plan

    def name(position: int) -> str:
        operation = plan.operations[position]
        if isinstance(operation, Compute):
            return "K2" if operation.phase is W else f"K{operation.layer}"
        return describe(operation, plan.buffer_names, plan.layers).partition(" during")[0]

    return [f"{name(span.operation)}: {span.start_s:g} to {span.end_s:g}" for span in trace.spans]


@pytest.mark.parametrize(
    ("plan", "pool_bytes", "spans"),
    [
        # There is room for x or y, so that no copy runs beside K1.
        (whole, 10, ["offload of x: 2 to 12", "K1: 12 to 18", "prefetch of x: 18 to 28", "K2: 28 to 29"]),
        # At 7 the left 5 B are released, and y has room beside the right ones: 5 s less.
        (
            offload_in_chunks,
            15,
            [
                *("offload of bytes 0 to 4 of x: 2 to 7", "offload of bytes 5 to 9 of x: 7 to 12", "K1: 7 to 13"),
                *("prefetch of bytes 0 to 4 of x: 13 to 18", "prefetch of bytes 5 to 9 of x: 18 to 23", "K2: 23 to 24"),
            ],
        ),
        # The left 5 B are prefetched from 12 to 17 beside K1, the right ones after the release of y, from 18 to 23.
        (
            prefetch_in_chunks,
            15,
            [
                *("offload of x: 2 to 12", "prefetch of bytes 0 to 4 of x: 12 to 17", "K1: 12 to 18"),
                *("prefetch of bytes 5 to 9 of x: 18 to 23", "K2: 23 to 24"),
            ],
        ),
    ],
)
def test_chunks_overlap_with_kernels(plan: Callable[[], TrainingPlan], pool_bytes: int, spans: list[str]) -> None:
    trace = replay(plan(), COSTS, limits=LIMITS)
    assert timeline(trace) == ["K0: 0 to 2", *spans]
    assert (trace.iteration_s, trace.pool_bytes) == (trace.spans_on(COMPUTE)[-1].end_s, pool_bytes)


def test_memory_and_stalls_of_an_offload_in_chunks() -> None:
    trace = replay(offload_in_chunks(), COSTS, limits=LIMITS)
    assert trace.stalls[0] == Stall(2, 7, StallCause.OFFLOAD, blocked=11, waited_for=4)
    changes = [(each.time_s, each.delta_bytes) for each in trace.memory]
    assert changes == [(0, 10), (7, -5), (7, 10), (13, -10), (13, -5), (13, 5), (13, 5), (24, -10)]
    assert trace.host_bytes == 10
