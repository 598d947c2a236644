"""What other readings of the vDNN paper would give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from vdnnsim.claims.claim import Claim
from vdnnsim.claims.readings import PaperReading, ReadingRows
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.vdnn2016.machines import values_on
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory

_VDNN = ("vdnn_all", "vdnn_conv", "vdnn_dyn")


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


READINGS = (
    VdnnReading(
        "prefetch_search: fig10_without_pool",
        "Fig. 10 as printed lets backward of POOL launch a prefetch, and so does the default. The 4.8 GB of VGG-16 "
        "(128) (V-A) come out if POOL launches none; what only POOL would have prefetched is then fetched on demand.",
        options={policy: {"prefetch_search": "fig10_without_pool"} for policy in _VDNN},
    ),
    VdnnReading(
        "no_offload_pass: layer_wise",
        "vDNN_dyn's pass without offload runs layer by layer, and succeeds by default where base(p) fits. Judged by "
        "its own iteration, VGG-16 (128) would fit without any offload, against V-C.",
        options={"vdnn_dyn": {"no_offload_pass": "layer_wise"}},
    ),
    VdnnReading(
        "memory_model: best_fit",
        "The paper adds up sizes, as does the default, `ideal`. Online best fit, the rule of the pool that vDNN uses, "
        "needs more room for the same plan because of gaps.",
        memory_model=MemoryModel.BEST_FIT,
    ),
    VdnnReading(
        "memory_model: planned",
        "The same plan with addresses chosen ahead, which its static order allows.",
        memory_model=MemoryModel.PLANNED,
    ),
    VdnnReading(
        "pinned_memory: per_offload",
        "III-B calls cudaMallocHost at every offload; the default pins one arena before the first iteration, for the "
        "reported overheads leave no room for pinning.",
        pinned_memory=PinnedMemory.PER_OFFLOAD,
    ),
    VdnnReading(
        "feature_share: baseline for v-mem-8, sum_of_layers for v-mem-9",
        "The share of feature-extraction layers (III) may be of the network-wide allocation or of the sum of what "
        "layers need one by one. No single reading gives both of the paper's shares.",
        metric_readings={"v-mem-8": "baseline", "v-mem-9": "sum_of_layers"},
    ),
    VdnnReading(
        "gpu_memory: whole",
        "4.2 GB at most for the very deep networks (V-E) holds of feature-extraction buffers without dW; with "
        "classifier and dW it does not, and against the share of CPU memory in the same sentence it cannot.",
        metric_readings={"v-vm-10": "whole"},
    ),
    VdnnReading(
        "reductions: whole against whole, mean over time",
        "The paper's reductions divide feature-extraction memory, averaged over layer steps, by the whole baseline. "
        "This is what a user gains: all memory against all memory, weighted by time.",
        metrics={
            "max_reduction": "whole_max_reduction",
            "mean_reduction": "whole_mean_reduction",
            "best_mean_reduction": "best_whole_mean_reduction",
        },
    ),
)
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
