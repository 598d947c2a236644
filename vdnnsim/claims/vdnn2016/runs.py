"""The replays behind claims and figures: any network, batch size and policy on one machine, each run once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.replays import labelled_policy
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.policies.port import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.simulator import Simulator

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


@dataclass
class VdnnRuns:
    """Replays on one machine, remembered; a policy is given by its label, `vdnn_all(m)`.

    Attributes:
        options: by name of a policy, options that all its runs have, to see what another reading would give.
    """

    server: Server
    memory_model: MemoryModel = MemoryModel.IDEAL
    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    _types: PolicyTypes = field(default_factory=known_policies)
    _simulators: dict[NetworkBatch, Simulator] = field(default_factory=dict)
    _oracles: dict[NetworkBatch, RunMetrics] = field(default_factory=dict)
    _results: dict[tuple[str, int, str], PolicyResult] = field(default_factory=dict)

    def simulator(self, network: str, batch_size: int) -> Simulator:
        """The workload of a network with its costs on this machine."""
        key = network, batch_size
        if key not in self._simulators:
            workload = Workload(build_network(network), batch_size)
            self._simulators[key] = Simulator.of(workload, self.server, self.memory_model, self.pinned_memory)
        return self._simulators[key]

    def policy(self, label: str, **options: object) -> Policy:
        """The policy of a label as the paper writes it, with options that it does not have there."""
        return labelled_policy(label, self._types, options)

    def result(self, network: str, batch_size: int, policy: str, **options: object) -> PolicyResult:
        """The replay of a policy; `base(p)` is the oracular baseline, whether it fits or not."""
        resolved = self.policy(policy, **{**self.options.get(policy.partition("(")[0], {}), **options})
        key = network, batch_size, resolved.label
        if key not in self._results:
            simulator = self.simulator(network, batch_size)
            if (network, batch_size) not in self._oracles:
                self._oracles[network, batch_size] = simulator.oracle()
            (self._results[key],) = simulator.run(resolved, self._oracles[network, batch_size])
        return self._results[key]

    def oracle(self, network: str, batch_size: int) -> PolicyResult:
        """The oracular baseline: base(p) on a GPU without a capacity."""
        return self.result(network, batch_size, "base(p)")
