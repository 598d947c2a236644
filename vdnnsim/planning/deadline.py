"""Deadlines of searches, polled between plans and inside long loops."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic, process_time
from typing import Final

from vdnnsim.errors import InputError
from vdnnsim.units import Dimension, parse_quantity

Clock = Callable[[], float]
"""Returns seconds since an arbitrary origin."""

CLOCKS: Final[dict[str, Clock]] = {"wall": monotonic, "cpu": process_time}
"""Clocks that a time limit may name: wall time, or processor time of all threads of this process."""
UNNAMED: Final = "cpu"
"""The default, under which results do not depend on the load of the machine."""
GRACE_S: Final = 0.5
"""How much longer a search may take while it has no result."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """End times, each on its clock; the first to pass counts.

    Searches poll it and are never interrupted, so that it works in any thread and results are complete. Work that
    cannot be stopped is begun only if it will end in time.

    Attributes:
        ends: clocks and their values at the end; none for a search without a limit.
    """

    ends: tuple[tuple[Clock, float], ...] = ()

    @classmethod
    def after(cls, seconds: float, clock: Clock = CLOCKS[UNNAMED]) -> "Deadline":
        """Return the deadline in so many seconds; `NEVER` if they are infinite."""
        return cls() if seconds == inf else cls(((clock, clock() + seconds),))

    @property
    def remaining_s(self) -> float:
        """Seconds left; infinite without a limit."""
        return min((max(0.0, at_s - clock()) for clock, at_s in self.ends), default=inf)

    @property
    def is_over(self) -> bool:
        return any(clock() >= at_s for clock, at_s in self.ends)

    def sooner(self, other: "Deadline") -> "Deadline":
        return Deadline(tuple(dict.fromkeys(self.ends + other.ends)))

    @property
    def late_s(self) -> float:
        """Seconds since it passed; 0 before."""
        return max((max(0.0, clock() - at_s) for clock, at_s in self.ends), default=0.0)

    def allows(self, seconds: float) -> bool:
        """Return whether it is not over and so many seconds are left."""
        return not self.is_over and self.remaining_s >= seconds

    def spent_since(self, remaining_s: float) -> float:
        """Return the seconds spent since so many were left; 0 without a limit."""
        return 0.0 if remaining_s == inf else remaining_s - self.remaining_s

    def part(self, share: float) -> "Deadline":
        """Return the deadline after a share of the time left."""
        now = [(clock, clock(), at_s) for clock, at_s in self.ends]
        return Deadline(tuple((clock, now_s + share * max(0.0, at_s - now_s)) for clock, now_s, at_s in now))

    def earlier(self, seconds: float) -> "Deadline":
        return Deadline(tuple((clock, at_s - seconds) for clock, at_s in self.ends))

    @property
    def with_grace(self) -> "Deadline":
        """The deadline of a search that has no result yet."""
        return self.earlier(-GRACE_S)


NEVER: Final = Deadline()


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
        """Read a limit, or raise InputError where it is no time above 0, with or without the name of a clock."""
        quantity, _, last = text.rstrip().rpartition(" ")
        if last not in CLOCKS:
            quantity, last = text, UNNAMED
        seconds = parse_quantity(quantity, Dimension.SECONDS)
        if seconds <= 0:
            raise InputError(f"found {text!r}, expected more than 0")
        return cls(seconds, last)

    def begin(self) -> Deadline:
        return Deadline.after(self.seconds, CLOCKS[self.clock])

    def __str__(self) -> str:
        return f"{self.seconds:g} s" + ("" if self.clock == UNNAMED else f" {self.clock}")
