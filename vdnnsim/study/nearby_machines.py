"""Machines near that of a run: iteration times of policies with other memory and another link, where that is cheap.

A policy that memory does not decide is replayed once for each bandwidth and placed for each capacity; without copies
the link does not matter. Others would plan again for each machine: of them only the one that won is here, with the plan
that it has, which is one that fits larger memory as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from vdnnsim.analysis.results import Nearby, PolicyResult, ScenarioResult
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.policies.interface import DecidedBy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.points.server_figures import with_figures

CAPACITIES: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
BANDWIDTHS: Final = (0.5, 1.0, 2.0, 4.0)
MOST_OPERATIONS: Final = 120_000
"""Of all replays, some two seconds; policies beyond are left out."""


def nearby(scenario: Scenario, result: ScenarioResult) -> tuple[Nearby, ...]:
    """Return policies at other capacities and bandwidths, that which won first, then by time; none for several GPUs."""
    if scenario.gpus > 1:
        return ()
    policies = {each.label for each in scenario.policies if each.decided_by is DecidedBy.COSTS}
    rows = [row for row in result.slowest if row.policy in policies or row is result.leader]
    simulator = simulator_of(scenario)

    @cache
    def over(bandwidth: float) -> Simulator:
        link = scenario.server.link
        rates = {"link.h2d": bandwidth * link.h2d_bytes_per_s, "link.d2h": bandwidth * link.d2h_bytes_per_s}
        # The link changes the time of no kernel.
        return simulator_of(replace(scenario, server=with_figures(scenario.server, rates)), simulator.cost_model)

    found: list[Nearby] = []
    room = MOST_OPERATIONS
    for row in sorted(rows, key=lambda row: (row is not result.leader, not row.fits, row.metrics.iteration_s)):
        cost = len(row.trace.plan.operations) * (len(BANDWIDTHS) - 1) * bool(row.metrics.offloaded_bytes)
        if cost <= room:
            room -= cost
            found += _of(simulator, over, row)
    return tuple(found)


def _of(simulator: Simulator, over: Callable[[float], Simulator], row: PolicyResult) -> Iterator[Nearby]:
    plan, gpu = row.trace.plan, simulator.server.gpu
    fits = {}
    for capacity in (int(share * gpu.memory_bytes) for share in CAPACITIES):
        free = max(0, capacity - gpu.context_bytes)
        limits = replace(simulator.limits, device_bytes=free, total_bytes=capacity)
        fits[capacity] = limits.pool_bytes(plan) >= row.metrics.allocated_bytes and not isinstance(
            replace(simulator, limits=limits).place(plan), DoesNotFit
        )
    copies = row.metrics.offloaded_bytes > 0
    placed = (simulator.place_unlimited(plan),) if copies else ()
    for bandwidth in BANDWIDTHS:
        seconds = row.metrics.iteration_s
        if bandwidth != 1 and copies:
            seconds = over(bandwidth).replay((plan,), placed).iteration_s
        yield Nearby(row.policy, bandwidth, tuple((size, seconds if ok else None) for size, ok in fits.items()))
