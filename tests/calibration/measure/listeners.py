"""Listeners to a calibration."""


class Silent:
    """Listens and says nothing."""

    def expect(self, count: int) -> None:
        """Do nothing."""

    def done(self, name: str) -> None:
        """Do nothing."""


class Killer:
    """Interrupts after so many measurements, as Ctrl-C would.

    Attributes:
        finished: names of what was measured.
    """

    def __init__(self, after: int) -> None:
        self._after = after
        self.expected = 0
        self.finished: list[str] = []

    def expect(self, count: int) -> None:
        """Note how many there will be."""
        self.expected = count

    def done(self, name: str) -> None:
        """Note one."""
        self.finished.append(name)
        if len(self.finished) == self._after:
            raise KeyboardInterrupt
