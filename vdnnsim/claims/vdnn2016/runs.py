"""Replays of the vDNN paper: a network, batch size and policy on one machine, each computed once."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.replays import Ranks, labelled_policy, ranks, ranks_seen, remembered
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy, Trial, make_plans
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.scenario.simulator import Planned, Simulator

CONVENTIONAL: tuple[NetworkBatch, ...] = (
    ("alexnet", 128),
    ("overfeat", 128),
    ("googlenet", 128),
    ("vgg16", 64),
    ("vgg16", 128),
    ("vgg16", 256),
)
"""The six networks of Fig. 11 and Fig. 14 with their batch sizes."""
VERY_DEEP: tuple[NetworkBatch, ...] = (("vgg116", 32), ("vgg216", 32), ("vgg316", 32), ("vgg416", 32))
"""The four networks of the case study in V-E."""
ALL_TEN = CONVENTIONAL + VERY_DEEP
ORACLE: Final = "base(p)"


@dataclass(frozen=True, slots=True)
class SharedPlans:
    """Plans that several machines share.

    The policies of the paper depend on the ranks of algorithms and their workspaces, not on durations, and neither does
    whether a plan fits. So machines with equal ranks share plans, and those with other memory too if the policy does
    not depend on it; only times of replays differ. Memory and copies of a plan are equal in all of its replays.
    """

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
                setting = replace(simulator.setting(), known_trials=_Placing(simulator))
                self.plans[made_for] = simulator.ready(make_plans(policy, setting), policy.label)
            self.placed[asked, memory] = simulator.placed(self.plans[made_for])
        return self.placed[asked, memory]


@dataclass(frozen=True, slots=True)
class _Placing:
    """Trials that are only placed, for durations decide no plan of the paper."""

    simulator: Simulator

    def run_trial(self, plan: TrainingPlan) -> Trial:
        return Trial(self.simulator.place(plan), 0.0)


@dataclass
class VdnnRuns:
    """Cached replays on one machine; a policy is given by its label, `vdnn_all(m)`.

    Attributes:
        options: of all runs of a policy, by its name, for another reading.
        shared: plans shared with other machines.
    """

    server: Server
    memory_model: MemoryModel = MemoryModel.IDEAL
    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    shared: SharedPlans = field(default_factory=SharedPlans)
    _types: PolicyTypes = field(default_factory=known_policies)

    @remembered
    def simulator(self, network: str, batch_size: int) -> Simulator:
        workload = self.shared.workload((network, batch_size))
        return Simulator.of(workload, self.server, self.memory_model, self.pinned_memory)

    def policy(self, label: str) -> Policy:
        """The policy of a label, without the options of a reading."""
        return labelled_policy(label, self._types, {})

    def result(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """The replay of a policy; `base(p)` is the oracular baseline."""
        return self._replayed((network, batch_size), self._stated(policy), is_oracle=policy == ORACLE)

    @remembered
    def _replayed(self, case: NetworkBatch, policy: Policy, *, is_oracle: bool) -> PolicyResult:
        simulator = self.simulator(*case)
        oracle = None if is_oracle else self.oracle(*case).metrics
        (result,) = simulator.outcome(self.shared.planned(self._asked(case, policy), simulator, policy), oracle)
        self.shared.replays.setdefault(self._placed(case, policy), result)
        return result

    def of_plan(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """A replay of the policy's plan on this machine or another, whose times do not count."""
        placed = self._placed((network, batch_size), self._stated(policy))
        return self.shared.replays.get(placed) or self.result(network, batch_size, policy)

    def _stated(self, label: str) -> Policy:
        return labelled_policy(label, self._types, self.options.get(label.partition("(")[0], {}))

    def _asked(self, case: NetworkBatch, policy: Policy) -> Hashable:
        return case, type(policy), policy, ranks_seen(policy, self._ranks(case))

    @remembered
    def _ranks(self, case: NetworkBatch) -> Ranks:
        return ranks(self.simulator(*case).costs)

    def _placed(self, case: NetworkBatch, policy: Policy) -> Hashable:
        simulator = self.simulator(*case)
        return self._asked(case, policy), simulator.limits, simulator.pinned

    def oracle(self, network: str, batch_size: int) -> PolicyResult:
        """The oracular baseline: base(p) in unlimited memory."""
        return self.result(network, batch_size, ORACLE)
