"""Progress bars on standard error, drawn only on a terminal."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Bar:
    """A bar with columns and a text behind it, drawn inside its `with` and removed afterwards."""

    def __init__(self, *columns: ProgressColumn, total: int | None, auto_refresh: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            BarColumn(),
            *columns,
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            auto_refresh=auto_refresh,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        """Draw the bar until the end."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Remove it."""
        self._progress.stop()


class ProgressBar(_Bar):
    """Shows how many of the steps of a long work are done, and the last of them."""

    def __init__(self) -> None:
        # A thread that draws by itself would disturb what is measured.
        super().__init__(MofNCompleteColumn(), TimeElapsedColumn(), total=None, auto_refresh=False)

    def expect(self, count: int) -> None:
        """Set the number of steps."""
        self._progress.update(self._task, total=count, refresh=True)

    def done(self, name: str) -> None:
        """Count one step as done."""
        self._progress.update(self._task, description=name, advance=1, refresh=True)


class SearchLine(_Bar):
    """Shows the state of a search of unknown length, and its elapsed time."""

    def __init__(self) -> None:
        super().__init__(TimeElapsedColumn(), total=None, auto_refresh=True)

    def tell(self, line: str) -> None:
        """Show a line."""
        self._progress.update(self._task, description=line)


class _Rate(ProgressColumn):
    """Steps in a second, as far as that is known."""

    def render(self, task: Task) -> Text:
        """Return the rate of the last steps."""
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


class StudyBar(_Bar):
    """Shows how many points of a study are finished, how fast they come, when the last will, and how many failed.

    Attributes:
        finished: points of which it learned.
    """

    def __init__(self, points: int, doing: str = "") -> None:
        super().__init__(MofNCompleteColumn(), _Rate(), TimeRemainingColumn(), total=points, auto_refresh=True)
        self._doing = doing
        self._failed = 0
        self.finished = 0

    def advance(self, points: int, failed: int = 0) -> None:
        """Learn of points that are finished, and how many of them failed."""
        self._failed += failed
        self.finished += points
        text = f"{self._failed} failed" if self._failed else self._doing
        self._progress.update(self._task, advance=points, description=text)
