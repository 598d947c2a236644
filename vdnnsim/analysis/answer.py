"""What was tried so that a captured model fits, ranked.

What fits leaves as much of the GPU's memory as simulated peaks are known to be too low (`vdnnsim.cost.trust`).
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.hardware.server import Gpu
from vdnnsim.units import GIB, MIB


class Change(Enum):
    """What differs from the plain loop of the batch on the card; in the order in which a user may like it."""

    POLICY = "policy"
    MICRO_BATCHES = "micro-batches"
    BATCH = "batch"
    SEQUENCE = "sequence"
    CARD = "card"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """A policy for a batch on a card, which was tried.

    Attributes:
        loop: what differs from the loop that was captured.
        batch_size: of a micro-batch.
        tokens: of a sequence, where that is shorter than was asked for; else 0.
        is_applied: whether `vdnnsim apply` runs it, in a pool of `limit_bytes`; else it is a plain loop.
        expandable: whether under PYTORCH_ALLOC_CONF=expandable_segments:True.
        iteration_s: of all micro-batches; 0 without a plan.
        allocated_bytes: peak in tensors; 0 without a plan.
        held_bytes: peak of the process; 0 without a plan.
        in_pieces: whether there would be memory enough, but in pieces that are too small.
        reason: why it does not run or fit, beyond its memory; empty where there is none.
        has_fewer_pairs: whether samples are compared with one another, and its micro-batches compare their own alone.
        untried: whether it was not tried, or not to its end.
        cut_short: whether a plan was searched with less effort than a search by itself takes.
    """

    change: Change
    policy: str
    loop: Loop = Loop()
    batch_size: int
    rounds: int = 1
    tokens: int = 0
    hardware: str
    memory_bytes: int
    is_applied: bool = False
    expandable: bool = False
    iteration_s: float = 0.0
    allocated_bytes: int = 0
    held_bytes: int = 0
    in_pieces: bool = False
    reason: str = ""
    has_fewer_pairs: bool = False
    untried: bool = False
    cut_short: bool = False

    @property
    def left_bytes(self) -> int:
        """Memory of the card beside it; below 0 where it lacks some."""
        return self.memory_bytes - self.held_bytes

    @property
    def is_on_card(self) -> bool:
        """Whether it is on the card that was asked about."""
        return self.change is not Change.CARD

    @property
    def fits(self) -> bool:
        """Whether it runs, even if its peak is too low by as much as peaks are known to be."""
        return self._runs and self.held_bytes <= certain_bytes(self.memory_bytes)

    @property
    def is_tight(self) -> bool:
        """Whether it runs by its simulated peak alone."""
        return self._runs and not self.fits and self.left_bytes >= 0

    @property
    def words(self) -> str:
        """Policy, micro-batches and what else differs, as `pytorch(p) in 4 micro-batches, each block checkpointed`."""
        parts = f" in {self.rounds} micro-batches" * (self.change is Change.MICRO_BATCHES)
        what = f"{self.policy}{parts}{' by apply' * self.is_applied}"
        beside = "expandable segments" * self.expandable, str(self.loop) * bool(self.loop.changes)
        return ", ".join(filter(None, (what, *beside)))

    @property
    def _runs(self) -> bool:
        return not self.reason and not self.in_pieces and self.iteration_s > 0

    @property
    def samples_per_s(self) -> float:
        """Throughput; 0 without a plan."""
        return self.batch_size * self.rounds / self.iteration_s if self.iteration_s else 0.0


class Answer(msgspec.Struct, frozen=True):
    """Everything that was tried, and sentences on what was not."""

    ways: tuple[Way, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranked(self) -> tuple[Way, ...]:
        """The ways, best first."""
        return ranked(self.ways)

    @property
    def best(self) -> Way | None:
        """The best that can be done on the card; None where nothing fits there."""
        first = next(iter(self.ranked), None)
        return first if first is not None and (first.fits or first.is_tight) and first.is_on_card else None


def ranked(ways: Iterable[Way]) -> tuple[Way, ...]:
    """Return ways, best first: what the card does with the whole batch, then with less of it, other cards at the end.

    Of each what fits by its throughput, before what does so by its simulated peak alone. What does not fit goes by the
    memory that it lacks, and has behind it what was not tried or has no plan.
    """

    def key(way: Way) -> tuple[bool, int, int, float]:
        if way.fits or way.is_tight:
            is_less = way.has_fewer_pairs or way.change in (Change.BATCH, Change.SEQUENCE)
            return not way.is_on_card, int(is_less), int(way.is_tight), -way.samples_per_s
        return (not way.is_on_card, 2, 0, way.held_bytes) if way.iteration_s else (not way.is_on_card, 3, 0, 0.0)

    return tuple(sorted(ways, key=key))


def limit_bytes(gpu: Gpu) -> int:
    """Return what PyTorch may take of a GPU so that peaks that are too low still fit, in tenths of a GiB, or in MiB."""
    room = max(0, certain_bytes(gpu.memory_bytes) - gpu.context_bytes)
    return int(room * 10 // GIB / 10 * GIB) if room >= GIB else room // MIB * MIB
