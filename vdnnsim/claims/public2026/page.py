"""The page of the report on what others measured."""

from collections import Counter
from collections.abc import Sequence

from vdnnsim.claims.public2026.measurements import ONE_PEAK_IN, ONE_TIME_IN, SERIES
from vdnnsim.claims.public2026.scoreboard import (
    AnyHeld,
    BatchRow,
    Errors,
    OperatorRow,
    Scoreboard,
    TimeRow,
    errors_of,
    faketensor_errors,
)
from vdnnsim.claims.report import page
from vdnnsim.claims.row import ClaimRow
from vdnnsim.report.chart import Picture
from vdnnsim.report.scale import percent
from vdnnsim.units import format_seconds

_NONE = "-"


def readme(rows: Sequence[ClaimRow], board: Scoreboard, pictures: Sequence[Picture]) -> bytes:
    """Return the page in Markdown, of the checked aims and of all rows."""
    everything: tuple[AnyHeld, ...] = (*board.step_times, *board.operator_times, *board.peaks)
    left_out: dict[str, dict[str, None]] = {}
    for each in everything:
        if each.left_out:
            left_out.setdefault(each.left_out, {})[each.row.setup.network] = None
    return page(
        "public2026/page.md.j2",
        rows,
        board=board,
        pictures={each.name: each.description for each in pictures},
        networks=len({each.setup.network for each in board.times} | {each.setup.network for each in board.memory}),
        fitted=sum(each.fitted for each in everything),
        one_time_in=ONE_TIME_IN,
        one_peak_in=ONE_PEAK_IN,
        times=_times(board.step_times),
        operators=_operators(board.operator_times),
        batches=_batches(board.largest_batches),
        memory=_memory(board),
        series=SERIES.values(),
        left_out=left_out,
    )


def _times(rows: Sequence[TimeRow]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for key in dict.fromkeys(_key(each) for each in rows):
        members = [each for each in rows if _key(each) == key]
        counted = [each for each in members if each.counts]
        lines.append((*key, f"{len(counted)} of {len(members)}", *_error_cells(counted)))
    return lines


def _key(held: TimeRow) -> tuple[str, str, str, str]:
    setup = held.row.setup
    return held.row.series, held.row.hardware, setup.mode.value, setup.precision.value


def _error_cells(rows: Sequence[TimeRow]) -> tuple[str, str, str]:
    if not rows:
        return _NONE, _NONE, _NONE
    errors = errors_of(rows)
    return percent(errors.mean_absolute), f"{100 * errors.mean:+.1f} %", f"{100 * max(errors.values, key=abs):+.0f} %"


def _operators(rows: Sequence[OperatorRow]) -> list[tuple[str, ...]]:
    return [
        (
            each.row.hardware,
            each.row.operators,
            *(("-", "-") if each.simulated is None else (format_seconds(each.simulated), f"{100 * each.error:+.0f} %")),
            format_seconds(each.row.seconds),
            "fitted on it" if each.fitted else "",
        )
        for each in rows
    ]


def _batches(rows: Sequence[BatchRow]) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for series in dict.fromkeys(each.row.series for each in rows):
        counted = [each for each in rows if each.row.series == series and each.counts]
        found = Counter(str(each.simulated) for each in counted)
        share = percent(found["in its bracket"] / len(counted)) if counted else _NONE
        lines.append((series, str(len(counted)), share, str(found["smaller"]), str(found["larger"])))
    return lines


def _memory(board: Scoreboard) -> list[tuple[str, ...]]:
    counted = [each for each in board.peaks if each.counts]
    if not counted:
        return []
    estimators = (("vdnnsim", errors_of(counted)), ("FakeTensor, as published", faketensor_errors(counted)))
    return [(name, str(len(each.values)), *_memory_cells(each)) for name, each in estimators]


def _memory_cells(errors: Errors) -> tuple[str, str, str]:
    return percent(errors.median_absolute), f"{100 * errors.mean:+.1f} %", percent(errors.share_under)
