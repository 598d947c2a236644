"""Chunks on the toy machine, by hand: 1 B/s over the link, and a GPU of 15 B.

The map x has 10 B. K0 writes it in 2 s, K1 needs another 10 B for 6 s, K2 reads x in 1 s.
"""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, replay, toy_costs
from tests.unit.plans.hand_written import COMPUTE, WORKLOAD, F, W, script
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.trace import IterationTrace, Stall, StallCause

COSTS = toy_costs(WORKLOAD, {("conv1", F): 2.0, ("fc", F): 6.0, ("conv1", W): 1.0})
LIMITS = replace(TOY_LIMITS, device_bytes=15)
START = "take x; write x; compute>memory"
END = "memory>compute; read x; free x"
K1 = "take y @1; write y @1; free y"
# There is room for x or y, so that no copy runs beside K1.
WHOLE = f"{START}; offload x; memory>compute; free x; {K1}; take x; compute>memory; prefetch x; {END}"
# K1 runs as soon as the left part is offloaded, whose release makes room for it.
OFFLOAD_IN_CHUNKS = (
    f"{START}; offload x[0:5]; mark memory; offload x[5:10]; mark memory; wait 1 compute; free x[0:5]; {K1}; "
    "wait 2 compute; free x[5:10]; take x[0:5]; compute>memory; prefetch x[0:5]; take x[5:10]; compute>memory; "
    f"prefetch x[5:10]; {END}"
)
# The left part is prefetched beside K1, the right one after the release of y.
PREFETCH_IN_CHUNKS = (
    f"{START}; offload x; memory>compute; free x[0:10]; take x[0:5]; compute>memory; prefetch x[0:5]; {K1}; "
    f"take x[5:10]; compute>memory; prefetch x[5:10]; {END}"
)


def timeline(trace: IterationTrace) -> list[str]:
    plan = trace.plan

    def name(position: int) -> str:
        operation = plan.operations[position]
        if isinstance(operation, Compute):
            return "K2" if operation.phase is W else f"K{operation.layer}"
        return describe(operation, plan.buffer_names, plan.layers).partition(" during")[0]

    return [f"{name(span.operation)}: {span.start_s:g} to {span.end_s:g}" for span in trace.spans]


@pytest.mark.parametrize(
    ("plan", "reserved_bytes", "spans"),
    [
        (WHOLE, 10, ["offload of x: 2 to 12", "K1: 12 to 18", "prefetch of x: 18 to 28", "K2: 28 to 29"]),
        # At 7 the left 5 B are released, and y has room beside the right ones: 5 s less.
        (
            OFFLOAD_IN_CHUNKS,
            15,
            [
                *("offload of bytes 0 to 4 of x: 2 to 7", "offload of bytes 5 to 9 of x: 7 to 12", "K1: 7 to 13"),
                *("prefetch of bytes 0 to 4 of x: 13 to 18", "prefetch of bytes 5 to 9 of x: 18 to 23", "K2: 23 to 24"),
            ],
        ),
        # The left 5 B are prefetched from 12 to 17 beside K1, the right ones after the release of y, from 18 to 23.
        (
            PREFETCH_IN_CHUNKS,
            15,
            [
                *("offload of x: 2 to 12", "prefetch of bytes 0 to 4 of x: 12 to 17", "K1: 12 to 18"),
                *("prefetch of bytes 5 to 9 of x: 18 to 23", "K2: 23 to 24"),
            ],
        ),
    ],
)
def test_chunks_overlap_with_kernels(plan: str, reserved_bytes: int, spans: list[str]) -> None:
    trace = replay(script(plan), COSTS, limits=LIMITS)
    assert timeline(trace) == ["K0: 0 to 2", *spans]
    assert (trace.iteration_s, trace.pool_bytes) == (trace.spans_on(COMPUTE)[-1].end_s, reserved_bytes)


def test_memory_and_stalls_of_an_offload_in_chunks() -> None:
    trace = replay(script(OFFLOAD_IN_CHUNKS), COSTS, limits=LIMITS)
    assert trace.stalls[0] == Stall(2, 7, StallCause.OFFLOAD, blocked=11, waited_for=4)
    changes = [(each.time_s, each.delta_bytes) for each in trace.memory]
    assert changes == [(0, 10), (7, -5), (7, 10), (13, -10), (13, -5), (13, 5), (13, 5), (24, -10)]
    assert trace.host_bytes == 10
