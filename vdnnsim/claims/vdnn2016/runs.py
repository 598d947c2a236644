"""The replays behind claims and figures: any network, batch size and policy on one machine, each run once."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.replays import Ranks, labelled_policy, ranks, ranks_seen
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.port import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.simulator import Planned, Simulator

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
    """Plans that machines of one memory have in common.

    The policies of the paper see of the costs of kernels which algorithm is faster and what workspace it takes, not by
    how much; whether a plan fits does not depend on durations either. So machines on which algorithms rank alike share
    plans, placed and checked once; only their replays differ. Of what trials took (`TrainingPlan.passes`) a shared
    plan has what it was on the machine that came first.
    """

    workloads: dict[NetworkBatch, Workload] = field(default_factory=dict)
    plans: dict[object, Planned] = field(default_factory=dict)

    def workload(self, case: NetworkBatch) -> Workload:
        """A network with its batch size."""
        if case not in self.workloads:
            self.workloads[case] = Workload(build_network(case[0]), case[1])
        return self.workloads[case]

    def planned(self, case: NetworkBatch, simulator: Simulator, policy: Policy, ranks: Hashable) -> Planned:
        """The plans of a policy on a machine with these ranks."""
        key = case, type(policy), policy, simulator.limits, simulator.pinned, ranks
        if key not in self.plans:
            self.plans[key] = simulator.planned(policy)
        return self.plans[key]


@dataclass
class VdnnRuns:
    """Replays on one machine, remembered; a policy is given by its label, `vdnn_all(m)`.

    Attributes:
        options: by name of a policy, options that all its runs have, to see what another reading would give.
        shared: plans that replays on other machines have made.
    """

    server: Server
    memory_model: MemoryModel = MemoryModel.IDEAL
    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    shared: SharedPlans = field(default_factory=SharedPlans)
    _types: PolicyTypes = field(default_factory=known_policies)
    _simulators: dict[NetworkBatch, Simulator] = field(default_factory=dict)
    _ranks: dict[NetworkBatch, Ranks] = field(default_factory=dict)
    _results: dict[tuple[NetworkBatch, Policy], PolicyResult] = field(default_factory=dict)

    def sharing(self, shared: SharedPlans) -> "VdnnRuns":
        """The same machine, nothing run on it yet, with plans that others have made."""
        return VdnnRuns(self.server, self.memory_model, self.pinned_memory, self.options, shared)

    def simulator(self, network: str, batch_size: int) -> Simulator:
        """The workload of a network with its costs on this machine."""
        case = network, batch_size
        if case not in self._simulators:
            workload = self.shared.workload(case)
            self._simulators[case] = Simulator.of(workload, self.server, self.memory_model, self.pinned_memory)
            self._ranks[case] = ranks(self._simulators[case].costs)
        return self._simulators[case]

    def policy(self, label: str, **options: object) -> Policy:
        """The policy of a label as the paper writes it, with options that it does not have there."""
        return labelled_policy(label, self._types, options)

    def result(self, network: str, batch_size: int, policy: str, **options: object) -> PolicyResult:
        """The replay of a policy; `base(p)` is the oracular baseline, whether it fits or not."""
        stated = self.policy(policy, **{**self.options.get(policy.partition("(")[0], {}), **options})
        key = (network, batch_size), stated
        if key not in self._results:
            simulator = self.simulator(network, batch_size)
            oracle = None if policy == ORACLE else self.oracle(network, batch_size).metrics
            planned = self.shared.planned(key[0], simulator, stated, ranks_seen(stated, self._ranks[key[0]]))
            (self._results[key],) = simulator.outcome(planned, oracle)
        return self._results[key]

    def oracle(self, network: str, batch_size: int) -> PolicyResult:
        """The oracular baseline: base(p) on a GPU without a capacity."""
        return self.result(network, batch_size, ORACLE)
