"""A scenario before and after a change: three rows for each policy, the last the difference, and one sentence."""

from collections.abc import Callable, Iterator, Sequence

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.report.document import Table, plain_table
from vdnnsim.report.scale import percents, rate_cells
from vdnnsim.report.tables.summary import NOT_FITTING
from vdnnsim.study.results.rows import StudyRow
from vdnnsim.study.what_if import Change
from vdnnsim.units import format_bytes, format_seconds

_DIFFERENCES = ("iteration_s", "server_images_per_s", "max_memory_bytes", "stall_s", "performance_ratio")


def change_table(changes: Sequence[Change], unit: str, everything: str) -> Table:
    """Return the table; throughputs have a unit, and `everything` says where all columns are."""
    points = [point for change in changes for point in (change.before, change.after) if not point.error]
    rates = rate_cells([point.number("server_images_per_s") for point in points])
    shares = percents(point.number("performance_ratio") for point in points)
    told = {id(point): cells for point, *cells in zip(points, rates, shares, strict=True)}
    rows = [row for change in changes for row in _rows(change, told)]
    time, share = COLUMNS["iteration_s"].short, COLUMNS["performance_ratio"].short
    memory, stalled = COLUMNS["max_memory_bytes"].title, COLUMNS["stall_s"].short
    header = ("policy", "", "fits", time, unit, memory, stalled, share)
    return plain_table(header, rows, everything, (stalled, unit, share, memory))


def _rows(change: Change, told: dict[int, list[str]]) -> Iterator[tuple[str, ...]]:
    for label, when, point in ((change.label, "before", change.before), ("", "after", change.after)):
        if point.error:
            yield (label, when, "failed", *("",) * 5)
            continue
        rate, share = told[id(point)]
        yield (
            label,
            when,
            "yes" if point.cell("fits") else NOT_FITTING,
            format_seconds(point.number("iteration_s")),
            rate,
            format_bytes(point.number("max_memory_bytes")),
            format_seconds(point.number("stall_s")),
            share,
        )
    if not change.before.error and not change.after.error:
        yield ("", "difference", _fit_change(change), *(_difference(change, name) for name in _DIFFERENCES))


def _fit_change(change: Change) -> str:
    before, after = change.before.cell("fits"), change.after.cell("fits")
    return "none" if before == after else "fits now" if after else "fits no longer"


def _difference(change: Change, name: str) -> str:
    """Return a difference and, where it is one of something, its share: `-1.20 s, -5.1 %`."""
    before, after = change.before.number(name), change.after.number(name)
    if before == after:
        return "none"
    if name == "performance_ratio":
        return f"{100 * (after - before):+.2g} points"
    share = f"{100 * (after / before - 1):+.1f} %" if before else ""
    if name == "server_images_per_s":
        return share
    text: Callable[[float], str] = format_bytes if name.endswith("_bytes") else format_seconds
    amount = f"{'+' if after > before else '-'}{text(abs(after - before))}"
    return ", ".join(filter(None, (amount, share)))


def sentence(changes: Sequence[Change], settings: Sequence[str]) -> str:
    """Return what a change does to the fastest policy that fits, and to how many fit."""
    what = ", ".join(settings)
    fit_before = [found for each in changes for found in _fitting(each.label, each.before)]
    fit_after = [found for each in changes for found in _fitting(each.label, each.after)]
    total = len(changes)
    fits = f"{len(fit_after)} of {total} {'policy fits' if total == 1 else 'policies fit'}, {len(fit_before)} before"
    if len(fit_before) == len(fit_after):
        fits = f"{len(fit_after)} of {total} fit, as before"
    if not fit_before or not fit_after:
        return f"With {what} {fits}"
    (old_s, old), (new_s, new) = min(fit_before), min(fit_after)
    if old_s == new_s:
        return f"With {what} the fastest that fits takes as long as before, {format_seconds(new_s)}; {fits}"
    way = f"{abs(100 * (new_s / old_s - 1)):.1f} % {'less' if new_s < old_s else 'more'}"
    who = f"under {new}" if old == new else f"under {new} instead of {old}"
    takes = f"takes {format_seconds(new_s)} {who}, {way} than {format_seconds(old_s)}"
    return f"With {what} the fastest that fits {takes}; {fits}"


def _fitting(label: str, point: StudyRow) -> list[tuple[float, str]]:
    """Return how long a policy takes and which it is; nothing where it does not fit, or failed."""
    return [(point.number("iteration_s"), label)] if not point.error and point.cell("fits") else []
