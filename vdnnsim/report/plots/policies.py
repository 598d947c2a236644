"""Policies as bars of speed and of memory, and as points of time against memory with their Pareto front."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import caption, comparison
from vdnnsim.report.labels import fold_label
from vdnnsim.report.palette import ALARM, GRID, INK, MUTED
from vdnnsim.report.plots.point_labels import Named, Place, write_names
from vdnnsim.report.plots.style import (
    ABOVE,
    as_png,
    keep_left_spine_only,
    mark_capacity,
    new_figure,
    plain_ticks,
    ruled,
    spread,
    write,
    write_legend,
)
from vdnnsim.report.scale import Scale, byte_scale, percent, time_scale
from vdnnsim.report.tables.summary import holds_more
from vdnnsim.units import format_bytes

_BEST, _OTHER, _UNFIT, _BESIDE = "#0072b2", "#8fb8d4", "#ffffff", "#b8b8b8"
_HEIGHT = 0.62
_LABEL_WIDTH = 17
"""Characters per line of a label at the largest size."""
_LABEL_POINTS = (15, 13, 11, 9)
_ROWS_PER_POINT = 360
"""Height of the axes in points."""
_FEWEST_ROWS = 4
"""Least number of rows to scale for."""
_MOST_ROWS = 14
_FRACTION_PER_CHARACTER = 0.0225
"""Width of a bold character as a share of the axes; also the padding of a text."""


def policies_figure(result: ScenarioResult) -> Figure:
    """Draw bars of speed compared with unlimited memory, and of maximum memory against the capacity."""
    rows = drawn_rows(result.slowest)
    others = len(result.slowest) - len(rows)
    note = f"; {len(rows)} of {len(result.slowest)} policies, the others in results.csv" if others else ""
    if result.gpus > 1:
        note += "; of each policy the GPU that is done last"
    figure = new_figure(comparison(result), caption(result) + note + peaks_note(result.kernels))
    speed, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.15, right=0.9, top=0.8, bottom=0.13, wspace=0.3)
    drawn = replace(result, results=rows, gpus=1)
    _draw_speed(speed, drawn)
    _draw_memory(memory, drawn)
    labels, points = _labels([each.policy for each in rows])
    speed.set_yticks(range(len(rows)), labels, fontsize=points)
    speed.set_ylim(max(len(rows), _FEWEST_ROWS) - 0.4, -0.6)
    return figure


def drawn_rows(rows: tuple[PolicyResult, ...]) -> tuple[PolicyResult, ...]:
    """Return as many rows as fit, in their order: the fastest of those that fit, then others."""
    order = sorted(range(len(rows)), key=lambda number: (not rows[number].fits, rows[number].metrics.iteration_s))
    return tuple(rows[number] for number in sorted(order[:_MOST_ROWS]))


def free_place(width: float, lines: tuple[float, ...]) -> float:
    """Return the start of a text that crosses the fewest lines; all as fractions of the axes."""
    starts = [start for start in (0.0, *sorted(lines)) if start + width <= 1.0] or [1.0 - width]
    return min(starts, key=lambda start: sum(start < line < start + width for line in lines))


def _labels(policies: list[str]) -> tuple[list[str], int]:
    """Return folded labels, and the largest size in points at which they do not touch."""
    for points in _LABEL_POINTS:
        folded = [fold_label(each, _LABEL_WIDTH * _LABEL_POINTS[0] // points) for each in policies]
        height = points * len(folded) * max(label.count("\n") + 1 for label in folded)
        if height <= _ROWS_PER_POINT or points == _LABEL_POINTS[-1]:
            return folded, points
    raise AssertionError  # pragma: no cover  # the last of the sizes is taken whatever it gives


def _draw_speed(axes: Axes, result: ScenarioResult) -> None:
    ratios = [each.performance_ratio for each in result.results]
    _bars(axes, result, [100 * ratio for ratio in ratios])
    _numbers(axes, result, [percent(ratio) for ratio in ratios])
    axes.axvline(100, color=MUTED, linestyle=(0, (4, 3)), linewidth=2, zorder=3)
    end = 105 * max(1.0, *ratios)
    _above(axes, 100, "unlimited memory", MUTED, end)
    axes.set_xlim(0, end)
    axes.set_xlabel(COLUMNS["performance_ratio"].label)


def _draw_memory(axes: Axes, result: ScenarioResult) -> None:
    rows, capacity = result.results, result.server.gpu.memory_bytes
    scale = byte_scale((capacity, *(each.metrics.allocated_bytes for each in rows)))
    sizes = [each.metrics.allocated_bytes / scale.factor for each in rows]
    limit, longest = capacity / scale.factor, max(capacity / scale.factor, *sizes)
    _bars(axes, result, sizes)
    held = [result.needed_bytes(each) for each in rows]
    beside = [nbytes / scale.factor - size for nbytes, size in zip(held, sizes, strict=True)]
    if is_held := any(width > 0 for width in beside):
        places = range(len(rows))
        axes.barh(places, beside, left=sizes, height=_HEIGHT, color=_BESIDE, zorder=2, label="gaps, CUDA's context")
    _numbers(axes, result, [scale.text(nbytes) for nbytes in held])
    axes.axvline(limit, color=ALARM, linewidth=2.5, zorder=3)
    _above(axes, limit, f"capacity {format_bytes(capacity)}", ALARM, 1.05 * longest)
    means = [each.metrics.mean_allocated_bytes / scale.factor for each in rows]
    look: dict[str, Any] = {"marker": "D", "s": 55, "color": INK, "edgecolor": "white", "zorder": 4}
    axes.scatter(means, range(len(rows)), label="mean over time", **look)
    for position, (each, size, mean) in enumerate(zip(rows, sizes, means, strict=True)):
        if not each.fits:
            _write_unfit(axes, each, position, tuple(line / (1.05 * longest) for line in (limit, size, mean)))
    below = (1.31, -0.1 if is_held else -0.055)
    axes.legend(loc="upper right", bbox_to_anchor=below, frameon=False, handletextpad=0.3, ncols=2)
    axes.set_xlim(0, 1.05 * longest)
    axes.set_xlabel(f"{COLUMNS['process_bytes'].label if is_held else COLUMNS['allocated_bytes'].label}, {scale.unit}")


def _bars(axes: Axes, result: ScenarioResult, lengths: list[float]) -> None:
    best = result.fastest_fitting
    look: dict[str, Any] = {
        "color": [_UNFIT if not each.fits else _BEST if each in best else _OTHER for each in result.results],
        "edgecolor": ["none" if each.fits else MUTED for each in result.results],
        "hatch": ["" if each.fits else "//" for each in result.results],
    }
    axes.barh(range(len(lengths)), lengths, height=_HEIGHT, zorder=2, **look)
    axes.grid(axis="x", color=GRID, zorder=0)
    keep_left_spine_only(axes)
    axes.tick_params(bottom=False)


def _numbers(axes: Axes, result: ScenarioResult, texts: list[str]) -> None:
    for position, (each, text) in enumerate(zip(result.results, texts, strict=True)):
        look = {"color": INK, "fontweight": "bold"} if each.fits else {"color": MUTED}
        right = ("axes fraction", "data")
        write(axes, text, (1.0, position), (100, 0), right, ha="right", va="center", annotation_clip=False, **look)


def _write_unfit(axes: Axes, row: PolicyResult, position: int, lines: tuple[float, ...]) -> None:
    """Write that a policy does not fit, and why where the bar does not show it."""
    what = row.shortage
    text = "does not fit" if what in (None, Shortage.GPU) else f"does not fit: {what.value}"
    width = _FRACTION_PER_CHARACTER * (len(text) + 2)
    place = free_place(width, lines) + _FRACTION_PER_CHARACTER, position
    box = {"facecolor": "white", "edgecolor": "none", "pad": 3}
    look = {"va": "center", "color": ALARM, "fontweight": "bold", "bbox": box, "zorder": 5}
    write(axes, text, place, (0, 0), ("axes fraction", "data"), **look)


def _above(axes: Axes, where: float, text: str, color: str, end: float) -> None:
    left = where < end / 2
    side, shift = ("left", -4) if left else ("right", 4)
    write(axes, text, (where, 1.0), (shift, 6), ABOVE, ha=side, color=color, fontweight="bold")


_FRONT, _BEATEN = "#0072b2", "#8fb8d4"
_ROOM = 0.1
"""Margin at both ends of an axis, as a share of it."""
_KINDS = {
    (True, True): "unbeaten: none takes less of one and no more of the other",
    (False, True): "fits",
    (False, False): "does not fit",
}
"""By whether a point is on the front, and whether it fits."""


def comparison_figure(comparison: Comparison, title: str) -> Figure:
    """Draw every policy with a plan, hollow where it does not fit."""
    result, capacity = comparison.result, comparison.result.server.gpu.memory_bytes
    figure = new_figure(title, caption(result) + peaks_note(result.kernels))
    axes = figure.add_axes((0.075, 0.16, 0.9, 0.68))
    memory = byte_scale((capacity, *map(result.needed_bytes, result.slowest)))
    seconds = time_scale(row.metrics.iteration_s for row in result.slowest)
    points, limit = _points(comparison, memory, seconds), capacity / memory.factor
    across, up = [limit, *(each.place[0] for each in points)], [each.place[1] for each in points] or [1.0]
    for axis, values in ((axes.xaxis, across), (axes.yaxis, up)):
        if spread(axis, values, _ROOM):
            plain_ticks(axis)
    axes.set_xlabel(f"{COLUMNS['process_bytes' if holds_more(result) else 'allocated_bytes'].label}, {memory.unit}")
    axes.set_ylabel(f"{COLUMNS['iteration_s'].label}, {seconds.unit}")
    ruled(axes, "both")
    stairs = _draw_front(axes, sorted(each.place for each in points if each.kind[0]))
    for each in points:
        axes.plot(*each.place, **_look(each.kind))
    mark_capacity(axes, limit, capacity)
    lines = [stairs, [(limit, end) for end in axes.get_ylim()]]
    left_out = write_names(axes, points, [each.place for each in points], lines)
    present = {each.kind for each in points}
    handles = [Line2D([], [], label=label, **_look(kind)) for kind, label in _KINDS.items() if kind in present]
    if left_out:
        handles.append(Line2D([], [], linestyle="", label=f"{left_out} without a name"))
    write_legend(figure, handles)
    return figure


draw_comparison = as_png(comparison_figure)


def _points(comparison: Comparison, memory: Scale, seconds: Scale) -> list[Named]:
    """Return the points, the most important names first."""

    def point(row: PolicyResult, policies: tuple[str, ...], *, on_front: bool) -> Named:
        place = comparison.result.needed_bytes(row) / memory.factor, row.metrics.iteration_s / seconds.factor
        type_: dict[str, Any] = {"fontsize": 14, "fontweight": "bold"} if on_front else {"fontsize": 11}
        look = type_ | {"color": INK if row.fits else MUTED, "zorder": 6}
        return Named(place, policies, (on_front, row.fits), look, is_insisted=on_front)

    # The title names the ends of the front.
    order = sorted(
        comparison.standings,
        key=lambda each: (not (each.on_front and 1 in (each.time_rank, each.memory_rank)), not each.on_front),
    )
    fitting = [point(each.row, each.policies, on_front=each.on_front) for each in order]
    return fitting + [point(row, (row.policy,), on_front=False) for row in comparison.unfit]


def _look(kind: tuple[bool, ...]) -> dict[str, Any]:
    on_front, fits = kind
    return {
        "linestyle": "",
        "marker": "o",
        "markersize": 11 if on_front else 8,
        "markerfacecolor": (_FRONT if on_front else _BEATEN) if fits else "white",
        "markeredgecolor": "white" if fits else MUTED,
        "zorder": 5 if on_front else 4,
    }


def _draw_front(axes: Axes, front: list[Place]) -> list[Place]:
    """Draw the front as stairs; return their corners."""
    corners = front[:1] + [corner for (_, y), (x, next_y) in pairwise(front) for corner in ((x, y), (x, next_y))]
    axes.plot([x for x, _ in corners], [y for _, y in corners], color=_FRONT, linewidth=1.5, zorder=2)
    return corners
