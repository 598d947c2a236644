"""Replays of the vDNN paper under other readings and on other machines, which share what they can.

The policies of the paper depend on the ranks of algorithms and their workspaces, not on durations, and neither does
whether a plan fits. So machines with equal ranks share plans, and those with other memory too if the policy does not
depend on it; only times of replays differ. Memory and copies of a plan are equal in all of its replays.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from reports.readings import labelled_policy
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.cached_method import cached_method
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.runs import VdnnRuns, plans_of
from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.scenario.simulator import Planned, Simulator

Ranks = tuple[tuple[tuple[str, int], ...], ...]
"""By kernel the Pareto-optimal algorithms with their workspaces, the fastest first."""


@dataclass(frozen=True, slots=True)
class SharedPlans:
    """Plans that several machines share."""

    workloads: dict[NetworkBatch, Workload] = field(default_factory=dict)
    plans: dict[Hashable, tuple[TrainingPlan, ...]] = field(default_factory=dict)
    placed: dict[Hashable, Planned] = field(default_factory=dict)
    replays: dict[Hashable, PolicyResult] = field(default_factory=dict)

    def workload(self, case: NetworkBatch) -> Workload:
        if case not in self.workloads:
            self.workloads[case] = Workload(build_network(case[0]), case[1])
        return self.workloads[case]

    def planned(self, asked: Hashable, simulator: Simulator, policy: Policy) -> Planned:
        """The plan of a policy, placed in the memory of a machine; `asked` is the key of the plan beside memory."""
        memory = simulator.limits, simulator.pinned
        if (asked, memory) not in self.placed:
            made_for = asked, None if policy.decided_by is DecidedBy.COSTS else memory
            if made_for not in self.plans:
                self.plans[made_for] = plans_of(simulator, policy)
            self.placed[asked, memory] = simulator.placed(self.plans[made_for])
        return self.placed[asked, memory]


@dataclass
class SharedRuns(VdnnRuns):
    """Cached replays on one machine.

    Attributes:
        options: of all runs of a policy, by its name, for another reading.
        shared: plans shared with other machines.
    """

    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    shared: SharedPlans = field(default_factory=SharedPlans)

    def _workload(self, case: NetworkBatch) -> Workload:
        return self.shared.workload(case)

    def result(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        result = super().result(network, batch_size, policy)
        self.shared.replays.setdefault(self._placed((network, batch_size), self.policy(policy)), result)
        return result

    def _planned(self, case: NetworkBatch, policy: str) -> Planned:
        stated = self.policy(policy)
        return self.shared.planned(self._asked(case, stated), self.simulator(*case), stated)

    def of_plan(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """A replay of the policy's plan on this machine or another, whose times do not count."""
        placed = self._placed((network, batch_size), self.policy(policy))
        return self.shared.replays.get(placed) or self.result(network, batch_size, policy)

    def policy(self, label: str) -> Policy:
        return labelled_policy(label, self._types, self.options.get(label.partition("(")[0], {}))

    def _asked(self, case: NetworkBatch, policy: Policy) -> Hashable:
        return case, type(policy), policy, ranks_seen(policy, self._ranks(case))

    @cached_method
    def _ranks(self, case: NetworkBatch) -> Ranks:
        return ranks(self.simulator(*case).costs)

    def _placed(self, case: NetworkBatch, policy: Policy) -> Hashable:
        simulator = self.simulator(*case)
        return self._asked(case, policy), simulator.limits, simulator.pinned


def ranks(costs: CostTable) -> Ranks:
    """Return the options of each kernel that none beats in time and workspace; (p) takes the first, (m) the last."""
    ranked = []
    for options in costs.kernels.values():
        beats: list[tuple[str, int]] = []
        for each in options:  # the fastest first
            if not beats or each.workspace_bytes < beats[-1][1]:
                beats.append((each.algorithm, each.workspace_bytes))
        ranked.append(tuple(beats))
    return tuple(ranked)


def ranks_seen(policy: Policy, ranked: Ranks) -> Hashable:
    """Return the part of the ranks on which a policy depends."""
    match getattr(policy, "algorithms", None):
        case Algorithms.PERFORMANCE_OPTIMAL:
            return tuple(each[0] for each in ranked)
        case Algorithms.MEMORY_OPTIMAL:
            return tuple(each[-1] for each in ranked)
        case _:
            return ranked
