"""Neighbours of a run's machine: what policies take with other memory and another link, where that is cheap.

A policy whose plan memory does not decide is replayed once for each bandwidth, and only placed for each capacity; what
copies nothing takes the same time over any link. Others are not tried, for they would plan for each machine anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from vdnnsim.analysis.results import Nearby, PolicyResult, ScenarioResult
from vdnnsim.hardware.server import Server
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.policies.interface import DecidedBy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.points.server_figures import with_figures

CAPACITIES: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
BANDWIDTHS: Final = (0.5, 1.0, 2.0, 4.0)
MOST_OPERATIONS: Final = 120_000
"""Replayed in all, which takes some two seconds; a policy that would take more is left out."""


def nearby(scenario: Scenario, result: ScenarioResult) -> tuple[Nearby, ...]:
    """Return what policies would take at other capacities and bandwidths, those that fit first, the fastest first.

    Nothing for several GPUs, whose links differ.
    """
    if scenario.gpus > 1:
        return ()
    policies = {each.label for each in scenario.policies if each.decided_by is DecidedBy.COSTS}
    rows = [row for row in result.slowest if row.policy in policies]
    simulator = simulator_of(scenario)

    @cache
    def over(bandwidth: float) -> Simulator:
        # No kernel takes another time for it.
        return simulator_of(replace(scenario, server=_faster(scenario.server, bandwidth)), simulator.cost_model)

    found: list[Nearby] = []
    room = MOST_OPERATIONS
    for row in sorted(rows, key=lambda row: (not row.fits, row.metrics.iteration_s)):
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
        fits[capacity] = not isinstance(replace(simulator, limits=limits).place(plan), DoesNotFit)
    copies = row.metrics.offloaded_bytes > 0
    # A link changes no address.
    placed = (simulator.place_unlimited(plan),) if copies else ()
    for bandwidth in BANDWIDTHS:
        seconds = row.metrics.iteration_s
        if bandwidth != 1 and copies:
            seconds = over(bandwidth).replay((plan,), placed).iteration_s
        yield Nearby(row.policy, bandwidth, tuple((size, seconds if ok else None) for size, ok in fits.items()))


def _faster(server: Server, factor: float) -> Server:
    """Return a server both directions of whose link carry so much more."""
    h2d, d2h = server.link.h2d_bytes_per_s, server.link.d2h_bytes_per_s
    return with_figures(server, {"link.h2d": factor * h2d, "link.d2h": factor * d2h})
