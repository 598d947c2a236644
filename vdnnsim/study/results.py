"""Results of a study: the outcome of each point in the order of its file, as rows, CSV and Parquet.

    for row in study_rows(study, store):
        row.point["link.bandwidth"], row.cell("iteration_s"), row.error

An unfinished point has no outcome. Equal studies have equal CSVs.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.errors import StudyError
from vdnnsim.files.atomic import replace_file
from vdnnsim.report.result_table import ResultTable, csv_text
from vdnnsim.study.points.compute import OUTCOME, Outcome
from vdnnsim.study.points.resolve import STEP_KEY, Point, Resolved, Resolver, shown
from vdnnsim.study.store import Store
from vdnnsim.study.study import Study

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vdnnsim.report.document import Document, Table

Item = TypeVar("Item")

_ALWAYS: Final = ("network", "batch_size", "hardware", "gpus", "policy")
WORDS: Final = ("network", "hardware", "policy", "algorithms", "fits", "refusal", "error")
"""Columns that hold no numbers, beside those of axes."""
_POSITION: Final = {name: 1 + index for index, name in enumerate(OUTCOME)}
_LOOKED_UP_AT_ONCE: Final = 500
_WRITTEN_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class StudyRow:
    """One point and its outcome.

    Attributes:
        point: its values by key path; figures are SI numbers, policies are objects with a label.
        outcome: None while it is not finished.
    """

    point: Point
    resolved: Resolved
    outcome: Outcome | None

    @property
    def error(self) -> str:
        """Why it failed; empty if it did not."""
        return "" if self.outcome is None else str(self.outcome[0])

    def cell(self, name: str) -> Value | None:
        """Return a cell of the outcome by its column; None where it has none."""
        return None if self.outcome is None else self.outcome[_POSITION[name]]

    def number(self, name: str) -> float:
        cell = self.cell(name)
        assert isinstance(cell, int | float), f"{name} is no number of this point"
        return cell


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of points that are done, failed and missing, and the first error."""

    done: int
    failed: int
    missing: int
    first_error: str = ""


def study_rows(study: Study, store: Store, points: Iterable[Point] | None = None) -> Iterator[StudyRow]:
    """Yield every point of a study, or those given, with its outcome."""
    resolver = Resolver(study.base, Path(study.folder))
    for some in batches(study.points() if points is None else points, _LOOKED_UP_AT_ONCE):
        resolved = [resolver.resolve(point) for point in some]
        outcomes = store.outcomes([each.key for each in resolved])
        for point, each in zip(some, resolved, strict=True):
            yield StudyRow(point, each, outcomes.get(each.key))


def progress_of(study: Study, store: Store, looked_up: Callable[[int], object] = lambda _: None) -> Progress:
    """Count the points that are done, failed and missing; `looked_up` gets how many more were looked up."""
    resolver = Resolver(study.base, Path(study.folder))
    errors = store.errors()
    done = failed = missing = 0
    first_error = ""
    for some in batches(map(resolver.key, study.points()), _LOOKED_UP_AT_ONCE):
        found = [errors.get(key) for key in some]
        done += found.count("")
        missing += found.count(None)
        failed += len(found) - found.count("") - found.count(None)
        first_error = first_error or next(filter(None, found), "")
        looked_up(len(some))
    return Progress(done, failed, missing, first_error)


def table_header(study: Study) -> tuple[str, ...]:
    """Return the columns of `results.csv`: five of every study, the other axes, the outcome, the error."""
    axes = (axis.column for axis in study.axes if axis.column not in _ALWAYS)
    return (*_ALWAYS, *axes, *OUTCOME, "error")


def table_row(study: Study, row: StudyRow) -> Row:
    """Return a finished point as a row of `results.csv`; the cells of a point that failed are empty."""
    assert row.outcome is not None, "rows are of finished points"
    base, point = study.base, row.point
    # A captured step has its own model and batch.
    workload = (row.resolved.scenario or base).workload if STEP_KEY in point else base.workload
    named = (
        point.get("workload.network", workload.graph.name),
        point.get("workload.batch_size", workload.batch_size),
        point.get("hardware", base.server.name),
        point.get("gpus", base.gpus),
        point["policy"],
    )
    axes = (point[axis.key] for axis in study.axes if axis.column not in _ALWAYS)
    cells = ("" if cell is None else cell for cell in row.outcome[1:])
    return (*map(shown, named), *map(shown, axes), *cells, row.error)


def results_table(study: Study, store: Store, shown: "Document | Table | RenderableType") -> ResultTable:
    """Return the finished points, all of them in memory, as a table that prints as `shown`."""
    rows = [table_row(study, row) for row in study_rows(study, store) if row.outcome is not None]
    return ResultTable(table_header(study), rows, shown)


def batches(items: Iterable[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield items in lists of `size`; the last may be shorter."""
    iterator = iter(items)
    while some := list(itertools.islice(iterator, size)):
        yield some


def results_csv(study: Study, store: Store) -> Iterator[bytes]:
    """Yield the finished points as CSV in pieces."""
    header = table_header(study)
    yield csv_text(header, []).encode()
    for rows in _rows(study, store):
        yield csv_text(header, rows).partition("\n")[2].encode()


def write_parquet(path: Path, study: Study, store: Store) -> None:
    """Write the finished points to a Parquet file, with the columns of the CSV and null for empty cells.

    Raises:
        StudyError: pyarrow is not installed.
        OutputError: it cannot be written.
    """
    check_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    header = table_header(study)
    rows = [row for some in _rows(study, store) for row in some]
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    arrays = [pa.array([None if cell == "" else cell for cell in column]) for column in columns]
    written = pa.BufferOutputStream()
    parquet.write_table(pa.table(arrays, names=list(header)), written)
    replace_file(path, written.getvalue().to_pybytes())


def check_parquet() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise StudyError(
            "--parquet: pyarrow is not installed; `pip install 'vdnnsim[notebook]'` brings it, or use results.csv, "
            "which holds the same"
        )


def _rows(study: Study, store: Store) -> Iterator[Sequence[tuple[Value, ...]]]:
    finished = (row for row in study_rows(study, store) if row.outcome is not None)
    return batches((table_row(study, row) for row in finished), _WRITTEN_AT_ONCE)
