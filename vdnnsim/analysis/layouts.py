"""Layouts of one model over several GPUs, in order of throughput."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vdnnsim.analysis.rank_times import RankTimes
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.step import BufferKind
from vdnnsim.units import ElementType


@dataclass(frozen=True, slots=True)
class Setup:
    """How a model is spread over GPUs, and one rank of it.

    Attributes:
        layout: as `--parallel` has it.
        checkpointing: as `--checkpointing` has it; `none` keeps all that autograd saves.
        batch_size: samples of one rank, or of those together that split layers, in a micro-batch.
        micro_batches: of a step.
    """

    layout: str
    checkpointing: str
    batch_size: int
    micro_batches: int = 1

    @property
    def captured_together(self) -> int:
        """Micro-batches that overlap or differ, and so are one captured step; else 1, which is repeated."""
        return self.micro_batches if self.layout and parse_layout(self.layout).takes_all else 1

    @property
    def spread(self) -> str:
        """Layout and micro-batches: `pp=2,fsdp=4, 4 micro-batches`."""
        return (self.layout or "one GPU") + (f", {self.micro_batches} micro-batches" if self.micro_batches > 1 else "")

    @property
    def label(self) -> str:
        """All in words: `fsdp=8, selective checkpoints`."""
        return self.spread + ("" if self.checkpointing == "none" else f", {self.checkpointing} checkpoints")


@dataclass(frozen=True, slots=True)
class Ranked:
    """The step of one rank in a layout that fits.

    Attributes:
        samples_per_s: of all GPUs together.
        flop_ratio: model FLOPs utilization (MFU): FLOPs of the model without recomputation, once where several ranks
            compute them, over those of all GPUs at their peak in that time; None where the profile has no peak of the
            type, or convolutions take fewer FLOPs than are counted.
        asked_bytes, reserved_bytes, held_bytes: peaks of one rank, allocated, reserved, and of the process.
        peak_by_kind: what is allocated at the peak, of the rank that allocates most.
        repeated: modules that several ranks compute whole, with their shares of the FLOPs of a rank.
    """

    setup: Setup
    times: RankTimes
    samples_per_s: float
    flop_ratio: float | None
    asked_bytes: int
    reserved_bytes: int
    held_bytes: int
    peak_by_kind: tuple[tuple[BufferKind, int], ...] = ()
    repeated: Mapping[str, float] = field(default_factory=dict)

    @property
    def iteration_s(self) -> float:
        """Seconds of a step."""
        return self.times.step_s


@dataclass(frozen=True, slots=True)
class Refused:
    """A layout that does not fit or cannot be, and why.

    Attributes:
        held_bytes: of the process that does not fit; 0 if there was none.
    """

    setup: Setup
    reason: str
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LayoutRanking:
    """Layouts by throughput, then those that do not fit.

    Attributes:
        peak_type: in which products are computed; MFU is of its peak. None if nothing fits.
    """

    sample: Sample
    machine: str
    gpus: int
    memory_bytes: int
    ranked: tuple[Ranked, ...]
    refused: tuple[Refused, ...]
    peak_type: ElementType | None = None

    @property
    def setups(self) -> tuple[Setup, ...]:
        return (*(each.setup for each in self.ranked), *(each.setup for each in self.refused))

    @property
    def rates(self) -> tuple[float, ...]:
        """Of the ranked layouts: tokens per second of one GPU, of images those of all GPUs."""
        tokens = self.sample.tokens
        return tuple(each.samples_per_s * (tokens / self.gpus if tokens else 1) for each in self.ranked)

    @property
    def unit(self) -> str:
        return "tokens/s per GPU" if self.sample.tokens else f"{self.sample.names}/s of all GPUs"


def gpu_rates(rankings: Sequence[LayoutRanking]) -> list[float | None]:
    """Return tokens, or samples that have none, per second of one GPU under the first layout; None without one."""
    return [
        each.ranked[0].samples_per_s * max(each.sample.tokens, 1) / each.gpus if each.ranked else None
        for each in rankings
    ]


def rate_unit(rankings: Sequence[LayoutRanking]) -> str:
    sample = next((each.sample for each in rankings if each.ranked), IMAGE)
    return f"{'tokens' if sample.tokens else sample.names}/s per GPU"
