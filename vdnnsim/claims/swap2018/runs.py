"""Replays of Kim et al. (2018), a network under a policy on some GPUs of a server, and the metrics of its claims.

The replay of Tables II and III has one input of the paper: the speed of its GPUs without swap. Its TensorFlow is slower
than the kernels of DeepBench, by two fifths on two GPUs and by three quarters on four, and copies overlap with all of
it. So kernels are slowed down until the first row of each table, without swap, has the paper's images per second. The
ratios of policies, which are checked, are no input.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from vdnnsim.claims.check import Metric, Metrics
from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.replays import cached_method, labelled_policy, slower_machine
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import LargestBatch, largest_batches


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, and how many of its GPUs train."""

    hardware: str
    gpus: int


VGG = "vgg_d_13conv"
NONE = "none(tensorflow)"

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
    samples_per_s: float

    @property
    def iteration_s(self) -> float:
        return self.batch_size / self.samples_per_s


def first_row(hardware: str) -> FirstRow | None:
    """Return the first row of the table of a machine; None if it has none."""
    for place, rows in TABLES_OF_SPEED.values():
        if place.hardware == hardware:
            batch_size, (samples_per_s, _, _) = next(iter(rows.items()))
            assert samples_per_s is not None, "the first row of each table fits"
            return FirstRow(place, batch_size, samples_per_s)
    return None


_FIRST_GUESS = 128


class Iteration(NamedTuple):
    """A replay: time of the slowest GPU, and whether it fits on every GPU."""

    seconds: float
    fits: bool


@dataclass
class ServerRuns:
    """Cached replays; a policy is given by its label, `swap(p, interval=4)`."""

    machines: Mapping[str, Server]

    def policy(self, label: str) -> Policy:
        return labelled_policy(label)

    def scenario(
        self, place: Place, network: str, batch_size: int, policies: tuple[str, ...], server: Server | None = None
    ) -> Scenario:
        """The scenario of a network under policies, by default at the speed of the paper."""
        return Scenario(
            name=f"{place.hardware}_{place.gpus}gpus",
            workload=Workload(build_network(network), batch_size),
            server=server or self.server(place.hardware),
            policies=tuple(self.policy(label) for label in policies),
            memory_model=MemoryModel.IDEAL,
            pinned_memory=PinnedMemory.ARENA,
            sources=(),
            gpus=place.gpus,
            gradients=Aggregation.CPU if place.gpus > 1 else None,
        )

    @cached_method
    def server(self, hardware: str) -> Server:
        """The machine, at the speed of the paper without swap if that is stated."""
        machine, first = self.machines[hardware], first_row(hardware)
        if first is None:
            return machine
        replayed = iteration_of(self.scenario(first.place, VGG, first.batch_size, (NONE,), machine))
        return slower_machine(machine, first.iteration_s / replayed.seconds)

    @cached_method
    def iteration(self, place: Place, network: str, batch_size: int, policy: str) -> Iteration:
        return iteration_of(self.scenario(place, network, batch_size, (policy,)))

    def iteration_s(self, place: Place, network: str, batch_size: int, policy: str) -> float:
        """Seconds of an iteration on the slowest GPU."""
        return self.iteration(place, network, batch_size, policy).seconds

    @cached_method
    def largest(self, place: Place, network: str, policy: str) -> LargestBatch:
        """The largest batch that fits on every GPU."""
        (found,) = largest_batches(self.scenario(place, network, _FIRST_GUESS, (policy,)))
        return found

    def largest_samples_per_s(self, place: Place, network: str, policy: str) -> float:
        """Images per second of a GPU at its largest batch."""
        found = self.largest(place, network, policy)
        assert found.samples_per_s is not None, f"{network} fits on {place.hardware} with no batch"
        return found.samples_per_s


def iteration_of(scenario: Scenario) -> Iteration:
    """Replay a scenario of one policy."""
    (slowest,) = run_scenario(scenario).slowest
    return Iteration(slowest.metrics.iteration_s, slowest.fits)


def _metric(words: str, compute: Callable[[ServerRuns, tuple[Place, str], int, Claim], float]) -> Metric:
    return Metric(words, lambda runs, q, case: float(compute(runs, (Place(q.hardware, q.gpus), case[0]), case[1], q)))


_NAMED: Final[Mapping[str, Metric]] = {
    "largest_batch": _metric("largest batch", lambda r, at, _, q: r.largest(*at, q.policy).batch_size),
    "largest_batch_throughput": _metric(
        "throughput at the largest batch", lambda r, at, _, q: r.largest_samples_per_s(*at, q.policy)
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
