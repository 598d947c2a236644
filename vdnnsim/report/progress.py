"""Progress bars on standard error, drawn only on a terminal; of a search its line in notebooks as well."""

from typing import TYPE_CHECKING, Any, Self

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

if TYPE_CHECKING:
    from vdnnsim.analysis.answer import Way


class _Bar:
    """A transient bar with columns and a description."""

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
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()


class ProgressBar(_Bar):
    """Number of steps done, and the last of them."""

    def __init__(self) -> None:
        # A refresh thread would disturb measurements.
        super().__init__(MofNCompleteColumn(), TimeElapsedColumn(), total=None, auto_refresh=False)

    def expect(self, count: int) -> None:
        self._progress.update(self._task, total=count, refresh=True)

    def done(self, name: str, row: str = "") -> None:
        """Count one step as done; a row on what it found stays above the bar."""
        if row and not self._progress.disable:
            self._progress.console.print(row, highlight=False, markup=False)
        self._progress.update(self._task, description=name, advance=1, refresh=True)


class SearchLine(_Bar):
    """State of a search of unknown length, and its elapsed time."""

    def __init__(self) -> None:
        super().__init__(TimeElapsedColumn(), total=None, auto_refresh=True)
        # What IPython displays; a bar of rich would stay in the notebook, empty.
        self._displayed: Any = None

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if self._displayed is not None:
            self._display("")

    def show(self, line: str) -> None:
        self._progress.update(self._task, description=line)
        if self._progress.console.is_jupyter:
            self._display(line)

    def _display(self, line: str) -> None:
        from IPython.display import display

        said = {"text/plain": line}
        if self._displayed is None:
            self._displayed = display(said, raw=True, display_id=True)
        else:
            self._displayed.update(said, raw=True)

    def tried(self, way: "Way") -> None:
        """Add a row on what was tried above the line, which stays."""
        from vdnnsim.report.tables.answer import progress_row

        if not self._progress.disable:
            self._progress.console.print(progress_row(way), highlight=False, markup=False)


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{task.speed:.3g}/s")


class StudyBar(_Bar):
    """Finished and failed points of a study, their rate and the remaining time."""

    def __init__(self, points: int, doing: str = "") -> None:
        super().__init__(MofNCompleteColumn(), _Rate(), TimeRemainingColumn(), total=points, auto_refresh=True)
        self._doing = doing
        self._failed = 0

    def advance(self, points: int, failed: int = 0) -> None:
        self._failed += failed
        text = f"{self._failed} failed" if self._failed else self._doing
        self._progress.update(self._task, advance=points, description=text)
