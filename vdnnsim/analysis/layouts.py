"""Layouts of one model over several GPUs, in order of throughput."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.cost.trust import Trust
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.step import BufferKind
from vdnnsim.plans.operations import Communicate
from vdnnsim.plans.trace import IterationTrace, Span
from vdnnsim.units import ElementType

_FORWARDS_OF_A_STEP: Final = 3
"""Backward takes twice the FLOPs of forward: one product each for the gradients of inputs and of weights."""
_LARGE: Final = 0.05
"""Share of the FLOPs of a rank from which on a module is named."""
_INDEX: Final = re.compile(r"(?<=\.)[0-9]+(?![^.])")
"""In a path, of a module of a list; at its begin those of a model that is a `Sequential` are different ones."""


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
        kernels_s, update_s: of kernels on the compute stream, and of those among them that update parameters.
        communication_s: of collectives, in part beside kernels.
        exposed_s: the compute stream waits for collectives, or has ended before them.
        bubble_s: it waits for other stages of a pipeline, or for their end; as the other times the mean of all ranks.
        flop_ratio: model FLOPs utilization (MFU): FLOPs of the model without recomputation, once where several ranks
            compute them, over those of all GPUs at their peak in that time; None where the profile has no peak of the
            type, or convolutions take fewer FLOPs than are counted.
        asked_bytes, reserved_bytes, held_bytes: peaks of one rank, allocated, reserved, and of the process.
        peak_by_kind: what is allocated at the peak, of the rank that allocates most.
        repeated: modules that several ranks compute whole, with their shares of the FLOPs of a rank.
    """

    setup: Setup
    iteration_s: float
    samples_per_s: float
    kernels_s: float
    communication_s: float
    exposed_s: float
    flop_ratio: float | None
    asked_bytes: int
    reserved_bytes: int
    held_bytes: int
    trust: Trust
    bubble_s: float = 0.0
    update_s: float = 0.0
    peak_by_kind: tuple[tuple[BufferKind, int], ...] = ()
    repeated: Mapping[str, float] = field(default_factory=dict)

    @property
    def other_s(self) -> float:
        """The compute stream has nothing to do: the host issues, or copies are awaited."""
        return max(0.0, self.iteration_s - self.kernels_s - self.exposed_s - self.bubble_s)


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


def flop_by_module(steps: Sequence[CapturedStep], samples: float) -> dict[str, float]:
    """Return the FLOPs of all ranks for a sample, without recomputation: three times those of forward.

    They are by module, as `layers.*.up_proj`, for stages number their blocks anew.

    Args:
        steps: of a rank, or of each rank of a pipeline.
        samples: of them, for each GPU.
    """
    found = defaultdict[str, float](float)
    for step in steps:
        for each in step.operations:
            if each.phase is Phase.FORWARD:
                flop = _FORWARDS_OF_A_STEP * each.all_flop / (len(steps) * samples)
                # A stage holds its part of the model as `model`.
                path = step.path_of(each).removeprefix("model." if step.pipeline > 1 else "")
                found[_INDEX.sub("*", path)] += flop
    return found


def repeated_modules(model: Mapping[str, float], ranks: Mapping[str, float], splits: int) -> dict[str, float]:
    """Return large modules that ranks which split layers compute whole, with their shares of the FLOPs of a rank.

    Args:
        model: FLOPs for a sample by module, where no layer is split.
        ranks: the same of all ranks.
        splits: ranks that train the same samples.
    """
    # All together compute a split module once, another `splits` times; the root lies between the two.
    whole = (path for path, flop in ranks.items() if flop > model.get(path, flop) * splits**0.5)
    shares = {path: ranks[path] / sum(ranks.values()) for path in whole}
    return {path: share for path, share in shares.items() if share >= _LARGE}


def last_collectives_seconds(trace: IterationTrace) -> float:
    """Return how long collectives take behind the last kernel, as the broadcasts of `zero1`: no stall has them."""
    done_s = max(span.end_s for span, _ in trace.kernels)
    return max(0.0, max((each.end_s for each in _collectives(trace)), default=0.0) - done_s)


def update_seconds(trace: IterationTrace) -> float:
    spans = (span for span, kernel in trace.kernels if kernel.phase is Phase.UPDATE)
    return sum((each.end_s - each.start_s for each in spans), 0.0)


def communication_seconds(trace: IterationTrace) -> float:
    return sum((each.end_s - each.start_s for each in _collectives(trace)), 0.0)


def _collectives(trace: IterationTrace) -> Iterator[Span]:
    """Yield spans of collectives, and of copies into their buffers; not what a rank does with its host alone."""
    for span in trace.spans:
        operation = trace.plan.operations[span.operation]
        if isinstance(operation, Communicate) and not (operation.collective and operation.collective.is_of_host):
            yield span
