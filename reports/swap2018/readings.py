"""Claims of Kim et al. (2018) under other readings of the paper, and their replays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from reports.readings import PaperReading, ReadingRows, checked, on_all_cores, read_readings
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import Claim
from vdnnsim.claims.replays import labelled_policy
from vdnnsim.claims.swap2018.runs import METRICS, Place, ServerRuns
from vdnnsim.dnn.networks import build_network
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Node, NodeKind, Topology
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.scenario import Scenario

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
    """Cached replays under one reading of the paper, on machines as it has them."""

    reading: SwapReading = field(default_factory=SwapReading)

    @classmethod
    def under(cls, reading: SwapReading, machines: Mapping[str, Server]) -> "ReadRuns":
        """Return the replays on machines under a reading."""
        return cls({name: reading.change(machine) for name, machine in machines.items()}, reading=reading)

    def policy(self, label: str) -> Policy:
        name = label.partition("(")[0]
        return labelled_policy(label, {**self.reading.options.get(name, {}), **self.reading.algorithms})

    def scenario(
        self, place: Place, network: str, batch_size: int, policies: tuple[str, ...], server: Server | None = None
    ) -> Scenario:
        asked = super().scenario(place, network, batch_size, policies, server)
        gradients = self.reading.gradients if place.gpus > 1 else None
        return replace(asked, memory_model=self.reading.memory_model, gradients=gradients)

    def server(self, hardware: str) -> Server:
        return super().server(hardware) if self.reading.own_speed else self.machines[hardware]

    def iteration_s(self, place: Place, network: str, batch_size: int, policy: str) -> float:
        return super().iteration_s(place, network, batch_size, policy) + self._framework_s(network)

    def largest_samples_per_s(self, place: Place, network: str, policy: str) -> float:
        batch_size = self.largest(place, network, policy).batch_size
        replayed_s = batch_size / super().largest_samples_per_s(place, network, policy)
        return batch_size / (replayed_s + self._framework_s(network))

    def _framework_s(self, network: str) -> float:
        """Return the seconds of each iteration of a network beside its plan."""
        return self.reading.framework_s_per_byte * _FLOAT_BYTES * build_network(network).parameters


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
    rows = on_all_cores(partial(_rows, claims, runs.machines, hardware), readings, progress)
    return tuple(map(ReadingRows, readings, rows))


def _rows(
    claims: Sequence[Claim], machines: Mapping[str, Server], hardware: str, reading: SwapReading
) -> tuple[ClaimRow | None, ...]:
    runs = ReadRuns.under(reading, machines)
    return tuple(checked(METRICS, claim, runs, hardware) for claim in claims)
