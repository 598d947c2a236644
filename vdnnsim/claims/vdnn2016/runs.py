"""Replays of the vDNN paper: a network, batch size and policy on one machine, each computed once."""

from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.replays import cached_method, labelled_policy
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.interface import Policy, make_plans
from vdnnsim.scenario.simulator import Simulator
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

    @cached_method
    def simulator(self, network: str, batch_size: int) -> Simulator:
        """The workload of a network with its costs on this machine."""
        workload = Workload(build_network(network), batch_size)
        return Simulator.of(workload, self.server, self.memory_model, self.pinned_memory)

    def policy(self, label: str) -> Policy:
        return labelled_policy(label)

    @cached_method
    def result(self, network: str, batch_size: int, policy: str) -> PolicyResult:
        """The replay of a policy; `base(p)` is the oracular baseline.

        Its trials are only placed: durations decide no plan of the paper.
        """
        oracle = None if policy == ORACLE else self.oracle(network, batch_size).metrics
        simulator, stated = self.simulator(network, batch_size), self.policy(policy)
        setting = replace(simulator.setting(), known_trials=PlacedTrials(simulator))
        placed = simulator.placed(simulator.ready(make_plans(stated, setting), stated.label))
        (result,) = simulator.outcome(placed, oracle)
        return result

    def oracle(self, network: str, batch_size: int) -> PolicyResult:
        """The oracular baseline: base(p) in unlimited memory."""
        return self.result(network, batch_size, ORACLE)
