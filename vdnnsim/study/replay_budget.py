"""How much is tried for an answer, counted so that it does not depend on how busy a machine is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from vdnnsim.analysis.answer import Change, Way
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.planning.deadline import NEVER, Deadline

PER_S: Final = 4_000
"""Operations that are replayed in a second of processor time, about, whatever the machine."""
RANKED_PER_S: Final = 7_000
"""The same in a ranking of cards, which share captures, plans and placements."""
OPERATIONS: Final = 42_000
"""Operations of an answer: a model of a billion parameters is captured in one other loop within it, at two batches, and
replayed five times, which with the first capture takes about 12 s of processor time. What was not tried is tried where
the same is asked with more time."""
STEPS: Final = 6
"""Steps of a search (`vdnnsim.planning.effort`) that take as long as the replay of an operation, about."""
SEARCHED: Final = 15_000
"""Operations as which a search counts, the least for which there is one."""
LATE: Final = PER_S // 2
"""Operations by which an answer may take longer, as a replay in a loop that was captured for it."""
CAPTURED: Final = 3
"""How much longer a capture of an operation takes than a replay."""
SHARED: Final = 4
"""How much less is to do for what was tried on another card, whose captures and plans are there."""
Tried: TypeAlias = dict[tuple[Way, int], Way]
"""What was found, by what it was before it was tried, and the steps of a search."""
_HOPELESS: Final = 0.9
"""Share of what is allocated on one card that is allocated on another at the least, with less workspace."""


@dataclass
class ReplayBudget:
    """What may still be captured and replayed for an answer.

    Attributes:
        operations: how many; a capture counts `CAPTURED` times its own. So no answer depends on how busy a machine is.
        known: what was found, by what it was before it was tried.
        sufficed: whether all was tried.
        kept: what was found when something else was asked. It counts as if it were tried, so that an answer does not
            depend on what was asked before.
        lines: loops whose second capture is counted.
        elsewhere: what was found on another card for which the same was captured, by what it was before, without name
            and memory of the card.
        cards: that share a capture, and what it counts.
        loops: in which it was captured, maybe for another card.
        always: policies that are tried in the loop as it is, whatever is left.
        deadline: of a limit that a user gave, after which nothing else is tried.
    """

    operations: int = OPERATIONS
    known: dict[Way, Way] = field(default_factory=dict)
    sufficed: bool = True
    kept: Tried = field(default_factory=dict)
    lines: set[Loop] = field(default_factory=set)
    elsewhere: dict[Way, Way] = field(default_factory=dict)
    cards: int = 1
    loops: set[Loop] = field(default_factory=set)
    always: frozenset[str] = frozenset()
    deadline: Deadline = NEVER

    def capturing(self, operations: int, loop: Loop | None = None) -> int:
        """Return what the capture of so many operations counts, in another loop nothing if that was captured."""
        return 0 if loop in self.loops else CAPTURED * operations // self.cards

    def captures(self, operations: int, loop: Loop) -> None:
        """Note a capture of so many operations in a loop, by a process whose time the deadline's clock does not see."""
        self.loops.add(loop)
        self.deadline = self.deadline.earlier(CAPTURED * operations / PER_S)

    def lacks(self, asked: Way, operations: int) -> bool:
        """Return whether a way is not known and no budget is left to try it; else spend so many operations on it."""
        if asked in self.known or self._too_large(asked) is not None:
            return False
        operations //= SHARED if _anywhere(asked) in self.elsewhere else 1
        is_cheap = asked.policy in self.always and asked.change is Change.POLICY and not asked.loop.changes
        is_left = 0 < self.operations >= operations - LATE and self.deadline.allows(operations / PER_S)
        lacks = not (is_cheap or is_left)
        self.operations -= 0 if lacks else operations
        self.sufficed &= not lacks
        return lacks

    def once(self, asked: Way, operations: int, tried: Callable[[], Way], *, steps: int = 0) -> Way:
        """Return what is known of a way, or try it with so many operations; as it was asked where no budget is left.

        A search takes at most so many `steps`. What allocates more on another card than this one has does not fit,
        whatever its time.
        """
        if (too_large := self._too_large(asked)) is not None:
            return too_large
        if self.lacks(asked, operations):
            return asked
        if asked not in self.known:
            self.known[asked] = self.kept.get((asked, steps)) or tried()
            # A search that a clock has ended is of this question alone.
            if not self.deadline.is_over:
                self.kept[asked, steps] = self.known[asked]
        self.elsewhere[_anywhere(asked)] = self.known[asked]
        return self.known[asked]

    def _too_large(self, asked: Way) -> Way | None:
        """Return what was found on another card, if that allocates more than this one has."""
        other = self.elsewhere.get(_anywhere(asked))
        if other is None or not is_too_large(other.allocated_bytes, asked.memory_bytes):
            return None
        return msgspec.structs.replace(other, hardware=asked.hardware, memory_bytes=asked.memory_bytes)


def is_too_large(allocated_bytes: int, memory_bytes: int) -> bool:
    """Return whether what allocates so much on one card does not fit on another, for which the same is captured."""
    return _HOPELESS * allocated_bytes > memory_bytes


def _anywhere(asked: Way) -> Way:
    return msgspec.structs.replace(asked, hardware="", memory_bytes=0)
