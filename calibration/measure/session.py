"""One calibration: measures what the journal does not know, writes it there, and tells how far it has come."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from calibration.journal import Journal
from calibration.measure.statistics import WARNED_SPREAD, Sample

Value = TypeVar("Value")


class Listener(Protocol):
    """Whoever shows how far a calibration has come."""

    def expect(self, count: int) -> None:
        """Learn how many measurements there will be."""

    def done(self, name: str) -> None:
        """Learn that one of them is finished."""


class Session:
    """Takes measurements one after the other.

    Attributes:
        warnings: what a user should know of what was measured, a line each.
    """

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal, self._listener = journal, listener
        self.warnings: list[str] = []

    def take(self, name: str, kind: type[Value], measure: Callable[[], Value]) -> Value:
        """Return a measurement, from the journal where it stands there.

        A sample that is refused is not written down: a later run tries again.
        """
        value = self._journal.recall(name, kind)
        if value is None:
            value = measure()
            if not (isinstance(value, Sample) and value.is_refused):
                self._journal.keep(name, value)
        return value

    def sample(self, name: str, measure: Callable[[], Sample]) -> Sample:
        """Return a sample, with a warning where its runs lie far apart; it counts as one step of the whole."""
        sample = self.take(name, Sample, measure)
        if sample.spread > WARNED_SPREAD:
            self.warnings.append(f"{name}: {sample.runs}")
        self._listener.done(name)
        return sample

    def done(self, name: str) -> None:
        """Tell that a step of several measurements is finished."""
        self._listener.done(name)
