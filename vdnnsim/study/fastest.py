"""What a sweep prints: how many points are done, and the fastest policy that fits for each choice of other axes."""

from collections.abc import Sequence
from typing import Final

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.report.document import Block, Document, Heading, Note, plain_table
from vdnnsim.report.scale import rate_cells
from vdnnsim.study.points.resolve import POLICY, shown
from vdnnsim.study.results import Progress, StudyRow, study_rows
from vdnnsim.study.store import Store
from vdnnsim.study.study import Study
from vdnnsim.units import format_bytes, format_seconds

_MOST_POINTS: Final = 1000
"""Of a grid whose outcomes are looked up once more, which takes seconds beyond."""
_MOST_ROWS: Final = 20
_NONE: Final = "none fits"


def sweep_page(study: Study, store: Store, progress: Progress, has_all: str) -> Document:
    """Return how many points are done, and of a small grid a table; `has_all` says where all points are."""
    counts = f"{progress.done} done, {progress.failed} failed, {progress.missing} missing"
    blocks: list[Block] = [Heading(f"{study.name}: {counts}")]
    if study.grid_size <= _MOST_POINTS and progress.done:
        blocks += _fastest(study, store, has_all)
    return Document(tuple(blocks))


def _fastest(study: Study, store: Store, has_all: str) -> list[Block]:
    axes = [each for each in study.axes if each.key != POLICY]
    found: dict[tuple[str, ...], list[StudyRow]] = {}
    for row in study_rows(study, store):
        if row.outcome is not None and not row.error:
            found.setdefault(tuple(axis.text(row.point[axis.key]) for axis in axes), []).append(row)
    best = [_best(rows) for rows in list(found.values())[:_MOST_ROWS]]
    rates = rate_cells([None if each is None else each.number("server_samples_per_s") for each in best])
    rows = [(*at, *_cells(row, rate)) for at, row, rate in zip(list(found)[:_MOST_ROWS], best, rates, strict=True)]
    time, allocated = COLUMNS["iteration_s"].short, COLUMNS["allocated_bytes"].short
    header = (*(each.key for each in axes), "fastest that fits", time, "samples/s", allocated)
    more = len(found) - _MOST_ROWS
    left = [Note(f"and {more} more; {has_all}")] if more > 0 else []
    return [plain_table(header, rows, has_all, ("samples/s", allocated)), *left]


def _best(rows: Sequence[StudyRow]) -> StudyRow | None:
    fitting = (row for row in rows if row.cell("fits"))
    return min(fitting, key=lambda row: row.number("iteration_s"), default=None)


def _cells(row: StudyRow | None, rate: str) -> tuple[str, str, str, str]:
    if row is None:
        return _NONE, "", "", ""
    seconds, nbytes = row.number("iteration_s"), row.number("allocated_bytes")
    return str(shown(row.point[POLICY])), format_seconds(seconds), rate, format_bytes(nbytes)
