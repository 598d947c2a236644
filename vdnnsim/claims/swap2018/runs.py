"""The replays behind the claims: a network under a policy on some GPUs of one of the paper's servers, each run once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.claims.pace import stretched
from vdnnsim.claims.swap2018.reading import Reading
from vdnnsim.claims.swap2018.speed import FIRST_ROWS
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.experiment import run_scenario
from vdnnsim.hardware.server import Server
from vdnnsim.largest_batch import LargestBatch, largest_batches
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.policies.port import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies, resolve_policy
from vdnnsim.scenario.scenario import Scenario

_LABEL = re.compile(r"(\w+)\((\w+)(?:, (.*))?\)")
_FIRST_GUESS = 128
_NETWORK_OF_TABLES = "vgg_d_13conv"
_WITHOUT_SWAP = "none(tensorflow)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a network is trained: how many GPUs of which machine."""

    hardware: str
    gpus: int


@dataclass
class ServerRuns:
    """Replays under one reading of the paper, remembered; a policy is given by its label, `swap(p, interval=4)`.

    Attributes:
        machines: by the names of their profiles.
    """

    machines: Mapping[str, Server]
    reading: Reading = field(default_factory=Reading)
    _types: PolicyTypes = field(default_factory=known_policies)
    _results: dict[tuple[Place, str, int, str], ScenarioResult] = field(default_factory=dict)
    _largest: dict[tuple[Place, str, str], LargestBatch] = field(default_factory=dict)
    _servers: dict[str, Server] = field(default_factory=dict)

    def policy(self, label: str) -> Policy:
        """The policy of a label under the reading."""
        spec = read_label(label)
        changed = self.reading.options.get(str(spec["policy"]), {})
        return resolve_policy({**spec, **changed, **self.reading.algorithms}, self._types)

    def scenario(self, place: Place, network: str, batch_size: int, policies: tuple[str, ...]) -> Scenario:
        """The question behind some numbers."""
        return Scenario(
            name=f"{place.hardware}_{place.gpus}gpus",
            workload=Workload(build_network(network), batch_size),
            server=self.server(place.hardware),
            policies=tuple(self.policy(label) for label in policies),
            memory_model=self.reading.memory_model,
            pinned_memory=PinnedMemory.ARENA,
            sources=(),
            gpus=place.gpus,
            gradients=self.reading.gradients if place.gpus > 1 else None,
        )

    def server(self, hardware: str) -> Server:
        """The machine under the reading, at the speed that the paper's has without swap, where its tables say it."""
        if hardware not in self._servers:
            # The scenario of the first row asks for the machine as it is read; it gets its speed when that has run.
            read = self._servers[hardware] = self.reading.change(self.machines[hardware])
            first = FIRST_ROWS.get(hardware)
            if first is not None and self.reading.own_speed:
                scenario = self.scenario(
                    Place(hardware, first.gpus), _NETWORK_OF_TABLES, first.batch_size, (_WITHOUT_SWAP,)
                )
                replayed_s = run_scenario(scenario).slowest[0].metrics.iteration_s
                self._servers[hardware] = stretched(read, first.iteration_s / replayed_s)
        return self._servers[hardware]

    def slowest(self, place: Place, network: str, batch_size: int, policy: str) -> PolicyResult:
        """What came of a policy on the GPU that is done last."""
        key = place, network, batch_size, policy
        if key not in self._results:
            self._results[key] = run_scenario(self.scenario(place, network, batch_size, (policy,)))
        return self._results[key].slowest[0]

    def iteration_s(self, place: Place, network: str, batch_size: int, policy: str) -> float:
        """Seconds of an iteration, until the last GPU is done."""
        replayed_s = self.slowest(place, network, batch_size, policy).metrics.iteration_s
        return replayed_s + self.reading.framework_s(build_network(network))

    def largest(self, place: Place, network: str, policy: str) -> LargestBatch:
        """The largest batch that fits on every GPU."""
        key = place, network, policy
        if key not in self._largest:
            (self._largest[key],) = largest_batches(self.scenario(place, network, _FIRST_GUESS, (policy,)))
        return self._largest[key]

    def largest_images_per_s(self, place: Place, network: str, policy: str) -> float:
        """Images per second of a GPU at its largest batch."""
        found = self.largest(place, network, policy)
        assert found.images_per_s is not None, f"{network} fits on {place.hardware} with no batch"
        replayed_s = found.batch_size / found.images_per_s
        return found.batch_size / (replayed_s + self.reading.framework_s(build_network(network)))

    def under(self, reading: Reading) -> "ServerRuns":
        """The same machines under another reading."""
        return replace(self, reading=reading, _results={}, _largest={}, _servers={})


def read_label(label: str) -> Mapping[str, object]:
    """Return what a scenario would say for a label with algorithms, as `swap(p, interval=4)`."""
    match = _LABEL.fullmatch(label)
    assert match is not None, f"{label} is no policy with its algorithms"
    pairs = (each.split("=") for each in match[3].split(", ")) if match[3] else ()
    options = {name: int(value) if value.isdigit() else value for name, value in pairs}
    return {"policy": match[1], "algorithms": match[2], **options}
