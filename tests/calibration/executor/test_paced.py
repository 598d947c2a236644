"""Executions on the CPU paced by a simulation, against that simulation."""

from collections.abc import Callable

import pytest

from tests.calibration.executor.bench import NETWORKS, SERVER, UNLIMITED, Bench, every_second_explicit, paced
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.engine.simulate import simulate
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.placement import place_unlimited
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

ATTEMPTS = 12
TOLERANCE = 0.05
COPY_CAUSES = (StallCause.OFFLOAD, StallCause.PREFETCH, StallCause.ON_DEMAND)


def is_close(trace: IterationTrace, simulated: IterationTrace) -> bool:
    """Whether an iteration took what it should, and stood still for each kind of copy as long as it should."""
    small_s = TOLERANCE * simulated.iteration_s
    return abs(trace.iteration_s - simulated.iteration_s) <= small_s and all(
        abs(stalled_s(trace, cause) - stalled_s(simulated, cause)) <= small_s / 2 for cause in COPY_CAUSES
    )


def stalled_s(trace: IterationTrace, cause: StallCause) -> float:
    return sum(stall.end_s - stall.start_s for stall in trace.stalls if stall.cause is cause)


# Goes by the clock, so it wants a machine that has nothing else to do.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("network", "policy"),
    [(tiny_linear, Base()), *((network, VdnnAll()) for network in NETWORKS)],
    ids=lambda each: each.label if isinstance(each, Policy) else None,
)
def test_paced_iteration_takes_as_long_as_its_simulation(
    bench: Bench, network: Callable[[], LayerGraph], policy: Policy
) -> None:
    """One of a few runs does: its time within 5 %, and its stalls for each kind of copy within 2.5 % of it."""
    workload = bench.workload(network)
    plan = bench.plan(workload, policy, every_second_explicit)
    placement = place_unlimited(plan, UNLIMITED)
    costs = bench.costs(every_second_explicit)
    simulated = simulate(plan, costs, SERVER, placement, PinnedMemory.ARENA)
    pace = paced(bench, workload, plan, every_second_explicit)

    traces: list[IterationTrace] = []
    while len(traces) < ATTEMPTS and not any(is_close(trace, simulated) for trace in traces):
        traces.append(bench.execute(workload, plan, pace=pace).trace)

    assert any(is_close(trace, simulated) for trace in traces), [trace.iteration_s for trace in traces]
    # The comparison is worth something: an iteration without its stalls would be too short.
    stalls_s = sum(stalled_s(simulated, cause) for cause in COPY_CAUSES)
    assert isinstance(policy, Base) or stalls_s > TOLERANCE * simulated.iteration_s
