"""When a search is to have ended."""

from dataclasses import dataclass, replace
from math import inf
from time import monotonic
from typing import Final


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment, in seconds of `time.monotonic`.

    What cannot be stopped once it has begun is begun only while there is time for it.
    """

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the moment in so many seconds."""
        return cls(monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self.at_s - monotonic())

    @property
    def is_over(self) -> bool:
        """Whether it has passed."""
        return monotonic() > self.at_s

    def part(self, share: float) -> "Deadline":
        """Return the moment in so much of the time that is left."""
        return self.after(share * self.remaining_s)

    def earlier(self, seconds: float) -> "Deadline":
        """Return the moment so many seconds before."""
        return replace(self, at_s=self.at_s - seconds)


NEVER: Final = Deadline(inf)
PAST: Final = Deadline(-inf)
