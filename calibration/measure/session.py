"""Session of a calibration: takes measurements from the journal or makes and keeps them, and reports progress."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from calibration.measure.journal import Journal
from calibration.measure.statistics import WARNED_SPREAD, Sample

Value = TypeVar("Value")


class Listener(Protocol):
    """Progress display of a calibration."""

    def expect(self, count: int) -> None:
        """Show how many measurements there will be."""

    def done(self, name: str) -> None:
        """Show that one of them is finished."""


class Session:
    """Takes measurements one after the other; `unsteady` has samples with a large spread, by name."""

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal, self.listener = journal, listener
        self.warnings: list[str] = []
        self.unsteady: dict[str, Sample] = {}

    def take(
        self,
        name: str,
        kind: type[Value],
        measure: Callable[[], Value],
        is_good: Callable[[Value], bool] = lambda _: True,
    ) -> Value:
        """Return a measurement, from the journal if it is there; one that is not good is not kept for later runs."""
        value = self._journal.recall(name, kind)
        if value is None:
            value = measure()
            if is_good(value):
                self._journal.keep(name, value)
        return value

    def sample(self, name: str, measure: Callable[[], Sample]) -> Sample:
        """Return a sample, as a step of its own; a refused one is not kept."""
        sample = self.take(name, Sample, measure, lambda taken: not taken.is_refused)
        if sample.spread > WARNED_SPREAD:
            self.unsteady[name] = sample
        else:
            self.remark(name, sample.remark)
        self.listener.done(name)
        return sample

    def remark(self, name: str, text: str) -> None:
        if text:
            self.warnings.append(f"{name}: {text}")

    def concurrently(self, name: str, measure: Callable[[], tuple[Sample, ...]]) -> tuple[Sample, ...]:
        """Return samples of concurrent work, as a step of its own; empty, with a warning, where it was unsteady."""
        samples = self.take(name, tuple[Sample, ...], measure, bool)
        if not samples:
            self.warnings.append(f"{name}: too unsteady, left out")
        self.listener.done(name)
        return samples
