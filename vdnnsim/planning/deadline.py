"""Deadlines of searches: handed down, and looked at between plans and inside long loops."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic, process_time
from typing import Final

from vdnnsim.errors import InputError
from vdnnsim.units import Dimension, parse_quantity

Clock = Callable[[], float]
"""Returns seconds since some moment."""

CLOCKS: Final[dict[str, Clock]] = {"wall": monotonic, "cpu": process_time}
"""What a time limit may name behind its time: wall time, or processor time of this process, all its threads."""
UNNAMED: Final = "cpu"
"""The clock of a limit that names none: what else a machine does changes no answer then."""
GRACE_S: Final = 0.5
"""So much longer a search may take while it has nothing to answer with."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Moments, each on its clock; it is over when the first of them has passed.

    Nothing is interrupted: who is given one looks at it. So it holds in any thread of any process, and what was found
    by then is whole. What cannot be stopped once it has begun is begun only while there is time for it.

    Attributes:
        moments: clocks and what they show at the end; none for a search without a limit.
    """

    moments: tuple[tuple[Clock, float], ...] = ()

    @classmethod
    def after(cls, seconds: float, clock: Clock = CLOCKS[UNNAMED]) -> "Deadline":
        """Return the moment in so many seconds; none if they are infinite."""
        return cls() if seconds == inf else cls(((clock, clock() + seconds),))

    @property
    def remaining_s(self) -> float:
        """Seconds until then; 0 when it has passed, infinite without a limit."""
        return min((max(0.0, at_s - clock()) for clock, at_s in self.moments), default=inf)

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return any(clock() >= at_s for clock, at_s in self.moments)

    def sooner(self, other: "Deadline") -> "Deadline":
        """Return this one or another, whichever is over first."""
        return Deadline(tuple(dict.fromkeys(self.moments + other.moments)))

    @property
    def late_s(self) -> float:
        """Seconds since it passed; 0 before."""
        return max((max(0.0, clock() - at_s) for clock, at_s in self.moments), default=0.0)

    def allows(self, seconds: float) -> bool:
        """Return whether so many seconds are left, and any."""
        return not self.is_over and self.remaining_s >= seconds

    def spent_since(self, remaining_s: float) -> float:
        """Return the seconds since so many remained; 0 without a limit."""
        return 0.0 if remaining_s == inf else remaining_s - self.remaining_s

    def part(self, share: float) -> "Deadline":
        """Return the moment in so much of the time that is left."""
        now = [(clock, clock(), at_s) for clock, at_s in self.moments]
        return Deadline(tuple((clock, now_s + share * max(0.0, at_s - now_s)) for clock, now_s, at_s in now))

    def earlier(self, seconds: float) -> "Deadline":
        """Return the moment so many seconds before."""
        return Deadline(tuple((clock, at_s - seconds) for clock, at_s in self.moments))

    @property
    def with_grace(self) -> "Deadline":
        """The moment until which a search goes on that has found nothing yet."""
        return self.earlier(-GRACE_S)


NEVER: Final = Deadline()
PAST: Final = Deadline(((CLOCKS[UNNAMED], -inf),))


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How long a search may take, as users write it: `20 s`, `2 min wall`.

    Attributes:
        seconds: above 0.
        clock: a name of `CLOCKS`.
    """

    seconds: float
    clock: str = UNNAMED

    @classmethod
    def parse(cls, text: str) -> "TimeLimit":
        """Read a limit.

        Raises:
            InputError: it is no time above 0, with or without the name of a clock.
        """
        quantity, _, last = text.rstrip().rpartition(" ")
        if last not in CLOCKS:
            quantity, last = text, UNNAMED
        seconds = parse_quantity(quantity, Dimension.SECONDS)
        if seconds <= 0:
            raise InputError(f"found {text!r}, expected more than 0")
        return cls(seconds, last)

    def begin(self) -> Deadline:
        """Return when a search that begins now is to end."""
        return Deadline.after(self.seconds, CLOCKS[self.clock])

    def __str__(self) -> str:
        return f"{self.seconds:g} s" + ("" if self.clock == UNNAMED else f" {self.clock}")
