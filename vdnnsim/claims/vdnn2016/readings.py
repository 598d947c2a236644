"""What other readings of the vDNN paper would give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from vdnnsim.claims.claim import Claim, read_data
from vdnnsim.claims.readings import PaperReading, ReadingRows
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.vdnn2016.machines import values_on
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory


@dataclass(frozen=True)
class VdnnReading(PaperReading):
    """One alternative to how the claims are read.

    Attributes:
        metric_readings: by id of a claim, the reading of its metric.
        metrics: by metric, the one that is computed instead.
    """

    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    metric_readings: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)

    @property
    def replays_anew(self) -> bool:
        """Whether replays are others, and not only what is read from them."""
        return (self.options, self.memory_model, self.pinned_memory) != ({}, MemoryModel.IDEAL, PinnedMemory.ARENA)

    def runs(self, server: Server) -> VdnnRuns:
        """Replays under this reading."""
        return VdnnRuns(server, self.memory_model, self.pinned_memory, self.options)

    def read(self, claim: Claim) -> Claim:
        """A claim under this reading."""
        reading = self.metric_readings.get(claim.id, claim.reading)
        return msgspec.structs.replace(claim, reading=reading, metric=self.metrics.get(claim.metric, claim.metric))


READINGS: Final = read_data("vdnn2016", "readings.yaml", tuple[VdnnReading, ...])
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    runs: VdnnRuns,
    readings: Sequence[VdnnReading] = READINGS,
    tell: Callable[[str], object] = str,
) -> tuple[ReadingRows[VdnnReading], ...]:
    """Check every claim under every reading; `runs` are those by default, which serve where only metrics differ."""
    hardware = runs.server.name
    anew = [each for each in readings if each.replays_anew]
    found = values_on([(each.runs(runs.server), [each.read(claim) for claim in claims]) for each in anew], tell)
    replayed = dict(zip((each.name for each in anew), found, strict=True))

    def row(reading: VdnnReading, number: int) -> ClaimRow | None:
        claim = reading.read(claims[number])
        values = replayed.get(reading.name)
        value = METRICS.simulate(claim, runs, hardware) if values is None else values[number]
        return None if value is None else METRICS.row(claim, value, hardware)

    return tuple(ReadingRows(each, tuple(row(each, number) for number in range(len(claims)))) for each in readings)
