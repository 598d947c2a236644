"""The frontier of a scenario: iteration time by GPU capacity under a planner, with the scenario's other policies.

Capacities go from the memory of the smallest plan to that of the plan in unlimited memory, the machine's own among them
if it lies between. A policy that memory does not decide is one point; any other is run at every capacity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile
from math import ceil, inf
from typing import Final, Protocol

from vdnnsim.analysis.frontier import Bound, Frontier, PlannedTime, PolicyTimes, Searched, frontier_points
from vdnnsim.analysis.kernel_origins import KernelOrigins, joined_origins, kernel_origins
from vdnnsim.analysis.memory import process_bytes
from vdnnsim.analysis.results import Declined, PolicyResult, slowest_of
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.captured_workload import ranks_of
from vdnnsim.errors import PolicyError
from vdnnsim.memory.requests import UNLIMITED_BYTES
from vdnnsim.planning.fitting import NEAR
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator

_WITH_GAPS: Final = 1.05
"""Of memory that is reserved ahead over the most that lives (LIMITS.md: 0 to 5 % more)."""
_START: Final = 1.1
"""Factor to the bound above which no search in more memory begins with a plan."""

_NOTHING: Final = Searched(0, None, None)
"""What was found for no memory."""


class Progress(Protocol):
    """Shows the progress of a search."""

    def expect(self, count: int) -> None:
        """Expect so many more replays."""

    def done(self, name: str) -> None:
        """Count a replay."""


def find_frontier(scenario: Scenario, planner: Policy, count: int, progress: Progress) -> Frontier:
    """Return the frontier of a scenario with its policies.

    A policy of the scenario with the label of the planner is left out. Of `count` capacities there are 2 or more;
    `progress` gets every replay.

    Raises:
        PolicyError: the planner has no plan for the workload that fits, whatever the memory of the GPU.
    """
    return _Search(scenario, progress).run(planner, count)


class _Search:
    def __init__(self, scenario: Scenario, progress: Progress) -> None:
        self._scenario = scenario
        self._progress = progress
        self._costs = ServerCosts(scenario.server)
        simulator = simulator_of(scenario, self._costs)
        self._oracle, self._kept_s = simulator.oracle(), simulator.setting().known_kept_s
        self._launched: list[KernelOrigins] = []
        self._declined: list[Declined] = []

    def run(self, planner: Policy, count: int) -> Frontier:
        gpu = self._scenario.server.gpu
        others = [each for each in self._scenario.policies if each.label != planner.label]
        deciding = [each for each in others if each.decided_by is not DecidedBy.COSTS]
        roomy = self._run(planner, UNLIMITED_BYTES)
        refusal = slowest_of(roomy).refusal
        if refusal is not None:
            raise PolicyError(f"{planner.label}: fits into no memory: {refusal.explain()}")
        most = self._taken_bytes(roomy)
        is_ahead = any(row.reserves_ahead(self._scenario.memory_model) for row in roomy)
        if is_ahead and ranks_of(self._scenario.workload) > 1:
            # What the communication stream gathers is in segments of its own, beside those gaps.
            most = max(most, self._taken_bytes(self._run(PyTorch(), UNLIMITED_BYTES)))
        # Where nothing fits, a planner returns the plan that needs least.
        least = self._taken_bytes(self._run(planner, gpu.context_bytes))
        capacities = _capacities(min(least, most), most, gpu.memory_bytes, count)
        self._progress.expect(len(others) - len(deciding) + len(capacities) * (1 + len(deciding)))
        if is_ahead:
            roomy = self._run(planner, most)
        first, last = self._searched(planner, capacities[0], _NOTHING, None), _searched(most, slowest_of(roomy))
        searched = [first[0], *self._between(planner, capacities[1:-1], first, last), last]
        times = {each.label: self._times(each, capacities) for each in others}
        return Frontier(
            planner.label,
            frontier_points(list(dropwhile(lambda each: each.plan is None, searched))),
            tuple(PolicyTimes(label, found) for label, found in times.items() if found),
            tuple(self._declined),
            joined_origins(self._launched),
        )

    def _between(
        self, planner: Policy, capacities: Sequence[int], less: tuple[Searched, TrainingPlan | None], more: Searched
    ) -> Iterator[Searched]:
        """Yield what is found for capacities between two, that in the middle first.

        Where plans for both take as long nothing is searched for: a plan for less memory is one for more, and a bound
        for more holds for less.
        """
        if not capacities:
            return
        if more.plan is None or _takes(less[0]) <= _takes(more) * (1 + NEAR):
            yield from (Searched(each, less[0].plan, more.bound) for each in capacities)
            return
        middle = len(capacities) // 2
        found = self._searched(planner, capacities[middle], *less)
        yield from self._between(planner, capacities[:middle], less, found[0])
        yield found[0]
        yield from self._between(planner, capacities[middle + 1 :], found, more)

    def _searched(
        self, planner: Policy, capacity_bytes: int, less: Searched, known: TrainingPlan | None
    ) -> tuple[Searched, TrainingPlan | None]:
        """Return what is found for a capacity, and the plan with which a search in more memory begins.

        That for less memory, if no faster one is found.
        """
        row = slowest_of(self._run(planner, capacity_bytes, known))
        found = _searched(capacity_bytes, row)
        if _takes(less) <= _takes(found):
            return replace(found, plan=less.plan), known
        # What has room in less memory mostly has in more.
        is_start = found.bound and _takes(found) <= _START * found.bound.seconds
        return found, row.trace.plan if is_start else None

    def _simulator(self, capacity_bytes: int, known: TrainingPlan | None) -> Simulator:
        server = self._scenario.server
        gpu = replace(server.gpu, memory_bytes=capacity_bytes)
        simulator = simulator_of(replace(self._scenario, server=replace(server, gpu=gpu)), self._costs)
        return replace(simulator, known=known, kept_s=self._kept_s)

    def _times(self, policy: Policy, capacities: Sequence[int]) -> tuple[tuple[int, float], ...]:
        """Return the capacities at which a policy fits, and its time there; note why it fits nowhere."""
        tried = [UNLIMITED_BYTES] if policy.decided_by is DecidedBy.COSTS else capacities
        found, reason = [], ""
        for capacity_bytes in tried:
            try:
                rows = self._run(policy, capacity_bytes)
            except PolicyError as refusal:
                self._declined.append(Declined.by(policy.label, refusal))
                return ()
            slowest = slowest_of(rows)
            if slowest.refusal is None:
                needed_bytes = self._taken_bytes(rows) if capacity_bytes == UNLIMITED_BYTES else capacity_bytes
                found.append((needed_bytes, slowest.metrics.iteration_s))
            else:
                reason = slowest.refusal.explain()
        if not found:
            self._declined.append(Declined(policy.label, reason))
        return tuple(found)

    def _run(self, policy: Policy, capacity_bytes: int, known: TrainingPlan | None = None) -> tuple[PolicyResult, ...]:
        rows = self._simulator(capacity_bytes, known).run(policy, self._oracle)
        self._launched.append(kernel_origins((row.trace.plan for row in rows), self._costs))
        self._progress.done(policy.label)
        return rows

    def _taken_bytes(self, rows: Sequence[PolicyResult]) -> int:
        """Return the process memory; of plans that reserve all there is, with as much for gaps as these may take."""
        gpu = self._scenario.server.gpu
        return max(
            int(row.metrics.allocated_bytes * _WITH_GAPS) + gpu.framework_bytes(row.trace.plan.handles)
            if row.reserves_ahead(self._scenario.memory_model)
            else process_bytes(row.trace, gpu)
            for row in rows
        )


def _takes(found: Searched) -> float:
    return inf if found.plan is None else found.plan.iteration_s


def _searched(capacity_bytes: int, row: PolicyResult) -> Searched:
    certificate = row.trace.plan.certificate
    if not row.fits:
        return Searched(capacity_bytes, None, None)
    plan = PlannedTime(
        row.metrics.iteration_s,
        capacity_bytes,
        row.metrics.offloaded_bytes,
        0 if certificate is None else len(certificate.recomputed),
        complete=certificate is None or certificate.complete,
    )
    bound = None if certificate is None else Bound(certificate.bound_s, certificate.holds_for)
    return Searched(capacity_bytes, plan, bound)


def _capacities(least: int, most: int, own: int, count: int) -> list[int]:
    """Return capacities in equal ratios from the least to the most, with the machine's own if it lies between."""
    between = least < own < most
    steps = count - 1 - between
    found = {least, most, *([own] if between else [])}
    found |= {ceil(least * (most / least) ** (step / steps)) for step in range(1, steps)}
    return sorted(found)
