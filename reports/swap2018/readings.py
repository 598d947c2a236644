"""Claims of Kim et al. (2018) under other readings of the paper, and their replays."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from reports.readings import PaperReading, ReadingRows, labelled_policy, on_all_cores, read_readings
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import Claim, read_network
from vdnnsim.claims.slower_machine import slower_machine
from vdnnsim.claims.swap2018.runs import METRICS, NONE, VGG, Iteration, Place, ServerRuns, first_row, iteration_of
from vdnnsim.dnn.networks import build_network
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Node, NodeKind, Topology
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import LargestBatch

_FLOAT_BYTES: Final = 4


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


@dataclass
class ReadRuns(ServerRuns):
    """Cached replays under one reading of the paper."""

    reading: SwapReading = field(default_factory=SwapReading)
    _iterations: dict[Hashable, Iteration] = field(default_factory=dict)
    _largest: dict[Hashable, LargestBatch] = field(default_factory=dict)
    _slowdowns: dict[str, float] = field(default_factory=dict)

    def under(self, reading: SwapReading) -> "ReadRuns":
        """The same machines under another reading, with shared caches."""
        return replace(self, reading=reading, _slowdowns={})

    def policy(self, label: str) -> Policy:
        name = label.partition("(")[0]
        return labelled_policy(label, self._types, {**self.reading.options.get(name, {}), **self.reading.algorithms})

    def scenario(
        self, place: Place, network: str, batch_size: int, policies: tuple[str, ...], server: Server | None = None
    ) -> Scenario:
        asked = super().scenario(place, network, batch_size, policies, server)
        gradients = self.reading.gradients if place.gpus > 1 else None
        return replace(asked, memory_model=self.reading.memory_model, gradients=gradients)

    def server(self, hardware: str) -> Server:
        machine, slowdown = self.reading.change(self.machines[hardware]), self._slowdown(hardware)
        return machine if slowdown == 1 else slower_machine(machine, slowdown)

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
            self._iterations[key] = iteration_of(self.scenario(place, network, batch_size, (policy,)))
        return self._iterations[key]

    def iteration_s(self, place: Place, network: str, batch_size: int, policy: str) -> float:
        return super().iteration_s(place, network, batch_size, policy) + self._framework_s(network)

    def largest(self, place: Place, network: str, policy: str) -> LargestBatch:
        key = self._asked(place, network, policy)
        if key not in self._largest:
            self._largest[key] = super().largest(place, network, policy)
        return self._largest[key]

    def largest_samples_per_s(self, place: Place, network: str, policy: str) -> float:
        batch_size = self.largest(place, network, policy).batch_size
        replayed_s = batch_size / super().largest_samples_per_s(place, network, policy)
        return batch_size / (replayed_s + self._framework_s(network))

    def _framework_s(self, network: str) -> float:
        """Return the seconds of each iteration of a network beside its plan."""
        return self.reading.framework_s_per_byte * _FLOAT_BYTES * build_network(network).parameters

    def _asked(self, place: Place, network: str, policy: str) -> Hashable:
        """Return the key of replays at any batch, which readings share if it is equal."""
        reading = self.reading
        machine = reading.kept_fraction, reading.one_root, self._slowdown(place.hardware)
        gradients = reading.gradients if place.gpus > 1 else None
        return place, network, self.policy(policy), machine, reading.memory_model, gradients


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


READINGS: Final = read_readings("swap2018", SwapReading)
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    runs: ServerRuns,
    hardware: str,
    readings: Sequence[SwapReading] = READINGS,
    progress: Callable[[str], object] = str,
) -> tuple[ReadingRows[SwapReading], ...]:
    """Check every claim under every reading."""
    # Claims of one network on one machine go together: what a reading does not change of it is replayed once.
    groups: dict[Hashable, list[Claim]] = {}
    for claim in claims:
        groups.setdefault((claim.hardware, read_network(claim.networks[0])[0]), []).append(claim)
    ask = partial(_rows, ReadRuns(runs.machines), hardware, tuple(readings))
    # The last are those on four GPUs, which take longest and so begin first.
    answers = on_all_cores(ask, list(reversed(groups.values())), progress)
    found = {row: rows for of_group in answers for row, rows in of_group.items()}
    return tuple(
        ReadingRows(each, tuple(found[claim.id][number] for claim in claims)) for number, each in enumerate(readings)
    )


def _rows(
    fresh: ReadRuns, hardware: str, readings: Sequence[SwapReading], claims: Sequence[Claim]
) -> dict[str, list[ClaimRow | None]]:
    """Return by claim its row under each reading; None where a policy refuses."""
    under = [fresh.under(reading) for reading in readings]
    return {claim.id: [_row(claim, runs, hardware) for runs in under] for claim in claims}


def _row(claim: Claim, runs: ServerRuns, hardware: str) -> ClaimRow | None:
    try:
        return METRICS.check(claim, runs, hardware)
    except PolicyError:
        return None
