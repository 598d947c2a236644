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
SHARED: Final = 3
"""How much less is to do for what was tried on another card, whose captures and plans are there."""


@dataclass
class ReplayBudget:
    """What may still be captured and replayed for an answer.

    Attributes:
        operations: how many; a capture counts `CAPTURED` times its own. So no answer depends on how busy a machine is.
        known: what was found, by what it was before it was tried.
        sufficed: whether all was tried.
        elsewhere: what was tried on other cards for which the same was captured, without their names and memory.
    """

    operations: int = OPERATIONS
    known: dict[Way, Way] = field(default_factory=dict)
    sufficed: bool = True
    elsewhere: set[Way] = field(default_factory=set)

    def lacks(self, asked: Way, operations: int) -> bool:
        """Return whether a way is not known and no budget is left to try it; else spend so many operations on it."""
        if asked in self.known:
            return False
        anywhere = msgspec.structs.replace(asked, hardware="", memory_bytes=0)
        operations //= SHARED if anywhere in self.elsewhere else 1
        lacks = self.operations <= 0 or operations > self.operations + LATE
        if not lacks:
            self.operations -= operations
            self.elsewhere.add(anywhere)
        self.sufficed &= not lacks
        return lacks

    def once(self, asked: Way, operations: int, tried: Callable[[], Way]) -> Way:
        """Return what is known of a way, or try it with so many operations; as it was asked where no budget is left."""
        if self.lacks(asked, operations):
            return asked
        if asked not in self.known:
            self.known[asked] = tried()
        return self.known[asked]
