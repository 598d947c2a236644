"""Effort: what a search may spend, counted in steps, so that the same question has the same answer on any machine.

A step is a kernel of an order that is looked at once; all else is counted in as many steps as take about as long. The
clock of a time limit is read to end a search early, and for nothing else.
"""

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.plans.placement import DoesNotFit, Placement

EFFORT: Final = 650_000
"""Steps of a search, at most: 20 s of a core on which a step takes 31 us."""
LOOKS: Final = 2000
"""Steps for each operation of a workload, at most."""
GRACE: Final = 16_000
"""Steps beyond, while there is no result."""
FLUID: Final = 0.25
"""Of an algorithm of a kernel in a fluid optimum."""
TIMED: Final = 0.4
"""Of a kernel in a timetable."""
MADE: Final = 5.0
"""Of a kernel in a plan that is lowered, placed and replayed."""
SOLVED: Final = 0.35
"""Of a factor of a linear program, in each node of a search for integers."""
RESERVED: Final = 6.0
"""Of a kernel in a reservation that is tried for a plan."""
PLAYED: Final = 1.0
"""Of an operation of a plan of another policy."""


def steps_of_placing(placed: Placement | DoesNotFit, kernels: int) -> float:
    """Return the steps of the reservations that were tried for a plan of so many kernels."""
    if isinstance(placed, DoesNotFit):
        return RESERVED * kernels * placed.tries
    return RESERVED * kernels * placed.reserved.tries if placed.reserved else 0.0


@dataclass
class _Account:
    """What all parts of an effort have spent, in the time that is left since `limit_s` was, and whether one was cut."""

    limit_s: float = inf
    is_short: bool = False
    spent: float = 0.0
    is_cut: bool = False


@dataclass(frozen=True)
class Effort:
    """Steps that a search may take; parts are spent from the whole.

    Attributes:
        end: the steps of the whole at which it ends.
        deadline: ends it early.
        reserved: steps that must still be in time when it ends, for what follows.
    """

    end: float = inf
    deadline: Deadline = NEVER
    reserved: float = 0.0
    _whole: _Account = field(default_factory=_Account)

    @classmethod
    def until(cls, deadline: Deadline, steps: float = inf, most: float = inf) -> "Effort":
        """Return so many steps, fewer where the deadline is earlier; at `most` so many, which cut it."""
        return cls(min(steps, most), deadline, _whole=_Account(deadline.remaining_s, is_short=most < steps))

    def spend(self, steps: float) -> None:
        self._whole.spent += steps

    @property
    def spent(self) -> float:
        """The steps that were taken of the whole."""
        return self._whole.spent

    @property
    def left(self) -> float:
        return max(0.0, self.end - self.spent)

    @property
    def is_over(self) -> bool:
        return not self.allows(0.0)

    def allows(self, steps: float) -> bool:
        """Return whether it is not over and so many steps are left, at the pace so far before the deadline too."""
        if self.spent >= self.end or self.left < steps:
            self._whole.is_cut |= self._whole.is_short
            return False
        ahead = steps + self.reserved
        if self.deadline.allows(ahead * self._pace_s) if ahead else not self.deadline.is_over:
            return True
        self._whole.is_cut = True
        return False

    @property
    def is_short(self) -> bool:
        """Whether fewer steps were given than a search takes, as for an answer."""
        return self._whole.is_short

    @property
    def is_cut(self) -> bool:
        """Whether a deadline, or the most steps, ended any part of the whole."""
        return self._whole.is_cut

    @property
    def _pace_s(self) -> float:
        """Seconds of a step."""
        return self.deadline.spent_since(self._whole.limit_s) / self.spent if self.spent else 0.0

    def part(self, share: float) -> "Effort":
        """Return a share of what is left."""
        return replace(self, end=self.spent + share * self.left)

    def but(self, steps: float) -> "Effort":
        """Return what is left less some steps that follow."""
        return replace(self, end=self.end - steps, reserved=self.reserved + steps)

    def at_least(self, steps: float) -> "Effort":
        """Return what is left, or so many steps from now on."""
        return replace(self, end=max(self.end, self.spent + steps))

    @property
    def with_grace(self) -> "Effort":
        """That of a search that has no result yet."""
        return replace(self, end=self.end + GRACE, deadline=self.deadline.with_grace, reserved=0.0)


UNLIMITED: Final = Effort()
