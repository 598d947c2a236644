"""Replays of the vDNN paper: a network, batch size and policy on one machine, each computed once."""

from dataclasses import dataclass, field, replace
from typing import Final

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.cached_method import cached_method
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, make_plans
from vdnnsim.policies.registry import PolicyTypes, known_policies, resolve_policy
from vdnnsim.scenario.simulator import Planned, Simulator
from vdnnsim.study.largest_batch import PlacedTrials

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


@dataclass
class VdnnRuns:
    """Cached replays on one machine; a policy is given by its label, `vdnn_all(m)`."""

    server: Server
    memory_model: MemoryModel = MemoryModel.IDEAL
    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    _types: PolicyTypes = field(default_factory=known_policies)

    @cached_method
    def simulator(self, network: str, batch_size: int) -> Simulator:
        """The workload of a network with its costs on this machine."""
        return Simulator.of(self._workload((network, batch_size)), self.server, self.memory_model, self.pinned_memory)

    def _workload(self, case: NetworkBatch) -> Workload:
        return Workload(build_network(case[0]), case[1])

    def policy(self, label: str) -> Policy:
        return resolve_policy(label, self._types)

    @cached_method
    def result(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """The replay of a policy; `base(p)` is the oracular baseline."""
        oracle = None if policy == ORACLE else self.oracle(network, batch_size).metrics
        (result,) = self.simulator(network, batch_size).outcome(self._planned((network, batch_size), policy), oracle)
        return result

    def _planned(self, case: NetworkBatch, policy: str) -> Planned:
        simulator = self.simulator(*case)
        return simulator.placed(plans_of(simulator, self.policy(policy)))

    def of_plan(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """A replay of the policy's plan, whose times do not count."""
        return self.result(network, batch_size, policy)

    def oracle(self, network: str, batch_size: int) -> PolicyResult:
        """The oracular baseline: base(p) in unlimited memory."""
        return self.result(network, batch_size, ORACLE)


def plans_of(simulator: Simulator, policy: Policy) -> tuple[TrainingPlan, ...]:
    """Return the plans of a policy, whose trials are only placed: durations decide no plan of the paper."""
    setting = replace(simulator.setting(), known_trials=PlacedTrials(simulator))
    return simulator.ready(make_plans(policy, setting), policy.label)
