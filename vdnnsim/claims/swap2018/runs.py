"""Replays of Kim et al. (2018), a network under a policy on some GPUs of a server, and the metrics of its claims.

The replay of Tables II and III has one input of the paper: the speed of its GPUs without swap. Its TensorFlow is slower
than the kernels of DeepBench, by two fifths on two GPUs and by three quarters on four, and copies overlap with all of
it. So kernels are slowed down until the first row of each table, without swap, has the paper's images per second. The
ratios of policies, which are checked, are no input.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from vdnnsim.claims.check import Metric, Metrics
from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.replays import PaperReading, labelled_policy, stretched
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Node, NodeKind, Topology
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import LargestBatch, largest_batches


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, and how many of its GPUs train."""

    hardware: str
    gpus: int


VGG = "vgg_d_13conv"
INCEPTION = "inception_v3"
NONE = "none(tensorflow)"
SWAP = "swap(tensorflow, interval=3)"
STAGGERED = "staggered_swap(tensorflow, interval=3)"

TABLE_I: Mapping[tuple[str, str], tuple[int, float]] = {
    (VGG, NONE): (80, 62.95),
    (VGG, "swap(tensorflow, interval=1)"): (128, 73.93),
    (INCEPTION, NONE): (114, 62.67),
    (INCEPTION, "swap(tensorflow, interval=2)"): (150, 63.34),
}
"""By network and policy, the largest batch on one Titan Xp and images per second there."""

TABLES_OF_SPEED: Mapping[str, tuple[Place, Mapping[int, tuple[float | None, float, float]]]] = {
    "Table II": (
        Place("p100_x2", 2),
        {120: (83.56, 56.33, 81.14), 130: (None, 56.66, 84.14), 140: (None, 58.86, 86.65), 150: (None, 60.12, 88.15)},
    ),
    "Table III": (
        Place("p100_x4", 4),
        {110: (66.53, 51.06, 68.31), 120: (None, 52.49, 70.11), 130: (None, 53.09, 70.24), 140: (None, 54.86, 70.36)},
    ),
}
"""By batch, images per second of each GPU without swap, with that of vDNN, staggered; None: out of memory."""


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Images per second of each GPU without swap, in the first row of a table."""

    place: Place
    batch_size: int
    images_per_s: float

    @property
    def iteration_s(self) -> float:
        return self.batch_size / self.images_per_s


def first_row(hardware: str) -> FirstRow | None:
    """Return the first row of the table of a machine; None if it has none."""
    for place, rows in TABLES_OF_SPEED.values():
        if place.hardware == hardware:
            batch_size, (images_per_s, _, _) = next(iter(rows.items()))
            assert images_per_s is not None, "the first row of each table fits"
            return FirstRow(place, batch_size, images_per_s)
    return None


_FIRST_GUESS = 128
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class SwapReading(PaperReading):
    """A reading of Kim et al.; without a name the default one.

    Attributes:
        algorithms: option of every policy, by the key `algorithms`; empty to leave it.
        kept_fraction: of the memory of a GPU, reserved by the framework.
        one_root: whether all switches share one port of the host.
        framework_s_per_byte: seconds of each iteration per byte of weights, beside the plan.
        own_speed: whether kernels are slowed down to the paper's speed without swap
            (`vdnnsim.claims.swap2018.runs`), or are those of DeepBench.
    """

    algorithms: Mapping[str, str] = field(default_factory=dict)
    gradients: Aggregation = Aggregation.CPU
    kept_fraction: float = 0.0
    one_root: bool = False
    framework_s_per_byte: float = 0.0
    own_speed: bool = True

    def change(self, server: Server) -> Server:
        kept_bytes = int(self.kept_fraction * server.gpu.memory_bytes)
        changed = replace(server, gpu=replace(server.gpu, memory_bytes=server.gpu.memory_bytes - kept_bytes))
        if not self.one_root or changed.topology is None:
            return changed
        return replace(changed, topology=behind_one_port(changed.topology))

    def framework_s(self, graph: LayerGraph) -> float:
        """Return the seconds of each iteration of a network beside its plan."""
        return self.framework_s_per_byte * _FLOAT_BYTES * graph.parameters


class Iteration(NamedTuple):
    """A replay: time of the slowest GPU, and whether it fits on every GPU."""

    seconds: float
    fits: bool


@dataclass
class ServerRuns:
    """Cached replays under one reading of the paper; a policy is given by its label, `swap(p, interval=4)`."""

    machines: Mapping[str, Server]
    reading: SwapReading = field(default_factory=SwapReading)
    _types: PolicyTypes = field(default_factory=known_policies)
    _iterations: dict[Hashable, Iteration] = field(default_factory=dict)
    _largest: dict[Hashable, LargestBatch] = field(default_factory=dict)
    _slowdowns: dict[str, float] = field(default_factory=dict)

    def policy(self, label: str) -> Policy:
        name = label.partition("(")[0]
        return labelled_policy(label, self._types, {**self.reading.options.get(name, {}), **self.reading.algorithms})

    def scenario(self, place: Place, network: str, batch_size: int, policies: tuple[str, ...]) -> Scenario:
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
        """The machine under the reading, at the speed of the paper without swap if that is stated."""
        read, slowdown = self.reading.change(self.machines[hardware]), self._slowdown(hardware)
        return read if slowdown == 1 else stretched(read, slowdown)

    def _slowdown(self, hardware: str) -> float:
        if hardware not in self._slowdowns:
            # The first row is replayed without a slowdown.
            self._slowdowns[hardware] = 1.0
            first = first_row(hardware)
            if first is not None and self.reading.own_speed:
                replayed_s = self.iteration(first.place, VGG, first.batch_size, NONE).seconds
                self._slowdowns[hardware] = first.iteration_s / replayed_s
        return self._slowdowns[hardware]

    def iteration(self, place: Place, network: str, batch_size: int, policy: str) -> Iteration:
        """An iteration under a policy, without the time of the framework beside its plan."""
        key = self._asked(place, network, policy), batch_size
        if key not in self._iterations:
            (slowest,) = run_scenario(self.scenario(place, network, batch_size, (policy,))).slowest
            self._iterations[key] = Iteration(slowest.metrics.iteration_s, slowest.fits)
        return self._iterations[key]

    def iteration_s(self, place: Place, network: str, batch_size: int, policy: str) -> float:
        """Seconds of an iteration on the slowest GPU."""
        replayed_s = self.iteration(place, network, batch_size, policy).seconds
        return replayed_s + self.reading.framework_s(build_network(network))

    def largest(self, place: Place, network: str, policy: str) -> LargestBatch:
        """The largest batch that fits on every GPU."""
        key = self._asked(place, network, policy)
        if key not in self._largest:
            (self._largest[key],) = largest_batches(self.scenario(place, network, _FIRST_GUESS, (policy,)))
        return self._largest[key]

    def largest_images_per_s(self, place: Place, network: str, policy: str) -> float:
        """Images per second of a GPU at its largest batch."""
        found = self.largest(place, network, policy)
        assert found.images_per_s is not None, f"{network} fits on {place.hardware} with no batch"
        replayed_s = found.batch_size / found.images_per_s
        return found.batch_size / (replayed_s + self.reading.framework_s(build_network(network)))

    def _asked(self, place: Place, network: str, policy: str) -> Hashable:
        """Return the key of replays at any batch, which readings share if it is equal."""
        reading = self.reading
        machine = reading.kept_fraction, reading.one_root, self._slowdown(place.hardware)
        gradients = reading.gradients if place.gpus > 1 else None
        return place, network, self.policy(policy), machine, reading.memory_model, gradients

    def under(self, reading: SwapReading) -> "ServerRuns":
        """The same machines under another reading, with shared caches."""
        return replace(self, reading=reading, _slowdowns={})


def behind_one_port(topology: Topology) -> Topology:
    """Return a tree with one more switch above all switches, on a link of their type."""
    first = next(each for each in topology.nodes if each.kind is NodeKind.SWITCH)
    assert first.link is not None
    root = Node("root", NodeKind.SWITCH, first.parent, replace(first.link, name=f"{first.link.name} root"))
    nodes: list[Node] = []
    for each in topology.nodes:
        if each is first:
            nodes.append(root)
        nodes.append(replace(each, parent="root") if each.kind is NodeKind.SWITCH else each)
    return Topology(tuple(nodes))


def _metric(words: str, compute: Callable[[ServerRuns, tuple[Place, str], int, Claim], float]) -> Metric:
    return Metric(words, lambda runs, q, case: float(compute(runs, (Place(q.hardware, q.gpus), case[0]), case[1], q)))


_NAMED: Final[Mapping[str, Metric]] = {
    "largest_batch": _metric("largest batch", lambda r, at, _, q: r.largest(*at, q.policy).batch_size),
    "largest_batch_throughput": _metric(
        "throughput at the largest batch", lambda r, at, _, q: r.largest_images_per_s(*at, q.policy)
    ),
    "largest_batch_ratio": _metric(
        "largest batch", lambda r, at, _, q: r.largest(*at, q.policy).batch_size / r.largest(*at, q.baseline).batch_size
    ),
    "throughput_ratio": _metric(
        "throughput", lambda r, at, n, q: r.iteration_s(*at, n, q.baseline) / r.iteration_s(*at, n, q.policy)
    ),
}


def _seen_in(claim: Claim, _: Sequence[NetworkBatch]) -> str:
    return f"scenarios/swap2018_{claim.gpus}gpu{'s' * (claim.gpus > 1)}.yaml"


METRICS: Final = Metrics[ServerRuns](_NAMED, _seen_in)
