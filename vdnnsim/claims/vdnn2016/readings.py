"""What other readings of the paper would give: every claim again under each named alternative.

A reading is a choice that the text leaves open. Each is an option of a policy, of the scenario, or of a claim's metric,
and its alternative one option away; the tables here show which rows it moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from vdnnsim.claims.claim import Claim
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.vdnn2016.check import check_claim
from vdnnsim.claims.vdnn2016.runs import PaperRuns
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory

_VDNN = ("vdnn_all", "vdnn_conv", "vdnn_dyn")


@dataclass(frozen=True, slots=True)
class Reading:
    """One alternative to how the claims are read.

    Attributes:
        name: the option that selects it.
        question: what the paper leaves open, and what is taken by default.
        options: by policy, options that its runs have.
        metric_readings: by id of a claim, the reading of its metric.
        metrics: by metric, the one that is computed instead.
    """

    name: str
    question: str
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    memory_model: MemoryModel = MemoryModel.IDEAL
    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    metric_readings: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)

    def runs(self, server: Server) -> PaperRuns:
        """Replays under this reading."""
        return PaperRuns(server, self.memory_model, self.pinned_memory, self.options)

    def read(self, claim: Claim) -> Claim:
        """A claim under this reading."""
        reading = self.metric_readings.get(claim.id, claim.reading)
        return msgspec.structs.replace(claim, reading=reading, metric=self.metrics.get(claim.metric, claim.metric))


READINGS = (
    Reading(
        "prefetch_search: fig10_without_pool",
        "Fig. 10 as printed lets backward of POOL launch a prefetch, and so does the default. The 4.8 GB of VGG-16 "
        "(128) (V-A) come out if POOL launches none; what only POOL would have prefetched is then fetched on demand.",
        options={policy: {"prefetch_search": "fig10_without_pool"} for policy in _VDNN},
    ),
    Reading(
        "no_offload_pass: layer_wise",
        "vDNN_dyn's pass without offload runs layer by layer, and succeeds by default where base(p) fits. Judged by "
        "its own iteration, VGG-16 (128) would fit without any offload, against V-C.",
        options={"vdnn_dyn": {"no_offload_pass": "layer_wise"}},
    ),
    Reading(
        "memory_model: best_fit",
        "The paper adds up sizes, as does the default, `ideal`. Online best fit, the rule of the pool that vDNN uses, "
        "needs more room for the same plan because of gaps.",
        memory_model=MemoryModel.BEST_FIT,
    ),
    Reading(
        "memory_model: planned",
        "The same plan with addresses chosen ahead, which its static order allows.",
        memory_model=MemoryModel.PLANNED,
    ),
    Reading(
        "pinned_memory: per_offload",
        "III-B calls cudaMallocHost at every offload; the default pins one arena before the first iteration, for the "
        "reported overheads leave no room for pinning.",
        pinned_memory=PinnedMemory.PER_OFFLOAD,
    ),
    Reading(
        "feature_share: baseline for v-mem-8, sum_of_layers for v-mem-9",
        "The share of feature-extraction layers (III) may be of the network-wide allocation or of the sum of what "
        "layers need one by one. No single reading gives both of the paper's shares.",
        metric_readings={"v-mem-8": "baseline", "v-mem-9": "sum_of_layers"},
    ),
    Reading(
        "gpu_memory: whole",
        "4.2 GB at most for the very deep networks (V-E) holds of feature-extraction buffers without dW; with "
        "classifier and dW it does not, and against the share of CPU memory in the same sentence it cannot.",
        metric_readings={"v-vm-10": "whole"},
    ),
    Reading(
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


@dataclass(frozen=True, slots=True)
class ReadingEffect:
    """A row that a reading moves: as it is by default, and as it would be."""

    reading: Reading
    default: ClaimRow
    alternative: ClaimRow


def compare_readings(
    claims: Sequence[Claim], default: Sequence[ClaimRow], server: Server, readings: Sequence[Reading] = READINGS
) -> tuple[tuple[Reading, tuple[ReadingEffect, ...]], ...]:
    """Return, for each reading, the rows whose simulated value it moves as far as the table shows it.

    A policy that refuses a reading, as page migration refuses memory with addresses, has no row under it.
    """
    compared = []
    for reading in readings:
        runs = reading.runs(server)
        effects = []
        for claim, row in zip(claims, default, strict=True):
            try:
                other = check_claim(reading.read(claim), runs)
            except PolicyError:
                continue
            if other.simulated != row.simulated:
                effects.append(ReadingEffect(reading, row, other))
        compared.append((reading, tuple(effects)))
    return tuple(compared)
