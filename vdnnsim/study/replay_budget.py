"""How much is tried for an answer, counted so that it does not depend on how busy a machine is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from vdnnsim.analysis.answer import Way

PER_S: Final = 4_000
"""Operations that are replayed in a second of processor time, about, whatever the machine."""
OPERATIONS: Final = 42_000
"""Operations of an answer: a model of a billion parameters is captured in one other loop within it, at two batches, and
replayed five times, which with the first capture takes about 12 s of processor time. What was not tried is tried where
the same is asked with more time."""
STEPS: Final = 6
"""Steps of a search (`vdnnsim.planning.effort`) that take as long as the replay of an operation, about."""
LATE: Final = PER_S // 2
"""Operations by which an answer may take longer, as a replay in a loop that was captured for it."""
CAPTURED: Final = 3
"""How much longer a capture of an operation takes than a replay."""
SHARED: Final = 2
"""How much less is to do for what was tried on another card, whose captures and plans are there."""
_HOPELESS: Final = 0.9
"""Share of what is allocated on one card that is allocated on another at the least, with less workspace."""


@dataclass
class ReplayBudget:
    """What may still be captured and replayed for an answer.

    Attributes:
        operations: how many; a capture counts `CAPTURED` times its own. So no answer depends on how busy a machine is.
        known: what was found, by what it was before it was tried.
        sufficed: whether all was tried.
        elsewhere: what was found on another card for which the same was captured, by what it was before, without name
            and memory of the card.
    """

    operations: int = OPERATIONS
    known: dict[Way, Way] = field(default_factory=dict)
    sufficed: bool = True
    elsewhere: dict[Way, Way] = field(default_factory=dict)

    def lacks(self, asked: Way, operations: int) -> bool:
        """Return whether a way is not known and no budget is left to try it; else spend so many operations on it."""
        if asked in self.known:
            return False
        operations //= SHARED if _anywhere(asked) in self.elsewhere else 1
        lacks = self.operations <= 0 or operations > self.operations + LATE
        self.operations -= 0 if lacks else operations
        self.sufficed &= not lacks
        return lacks

    def once(self, asked: Way, operations: int, tried: Callable[[], Way]) -> Way:
        """Return what is known of a way, or try it with so many operations; as it was asked where no budget is left.

        What allocates more on another card than this one has does not fit, whatever its time.
        """
        other = self.elsewhere.get(_anywhere(asked))
        if other is not None and _HOPELESS * other.allocated_bytes > asked.memory_bytes:
            return msgspec.structs.replace(other, hardware=asked.hardware, memory_bytes=asked.memory_bytes)
        if self.lacks(asked, operations):
            return asked
        if asked not in self.known:
            self.known[asked] = tried()
        self.elsewhere[_anywhere(asked)] = self.known[asked]
        return self.known[asked]


def _anywhere(asked: Way) -> Way:
    return msgspec.structs.replace(asked, hardware="", memory_bytes=0)
