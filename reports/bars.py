"""Grouped and stacked bars with markers on a right axis: the form of most figures in the papers."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from reports.charts import Axis, Chart, Panel, Points, Series, Slot
from vdnnsim.report.palette import ALARM, INK, MUTED
from vdnnsim.report.plots.style import ABOVE, as_png, new_figure, ruled, write

_MARKER = "#a3195b"
_DIAMOND: Final[Any] = {"color": _MARKER, "markersize": 8, "markeredgecolor": "white", "zorder": 5, "clip_on": False}
_LEFT, _RIGHT, _BETWEEN, _TOP, _BOTTOM = 0.075, 0.925, 0.095, 0.795, 0.12
_BOTTOM_WITH_LABELS, _BOTTOM_WITH_TURNED_LABELS = 0.155, 0.19
_ROOM, _ROOM_UNDER_POINTS = 1.14, 1.32
"""Height of an axis over its largest value; more below markers whose axis has a given end."""
_SLIDE_PIXELS = 1600
_NARROW_PIXELS = 46
"""Numbers of narrower bars are turned."""
_SLOTS_OF_A_GROUP: Final = 0.82
"""Share of the width of a group that its bars fill."""
_POINTS: Final = 12.5
_PIXELS_PER_CHARACTER: Final = 13
"""Wider labels are turned."""


def bar_figure(chart: Chart) -> Figure:
    """Draw a chart."""
    figure = new_figure(chart.title, chart.subtitle)
    count = len(chart.panels)
    all_axes = figure.subplots(1, count, squeeze=False)[0]
    right = _RIGHT if chart.panels[-1].right else 0.98
    width = (right - _LEFT - (count - 1) * _BETWEEN) / count
    bottom = _BOTTOM
    if any(slot.label for panel in chart.panels for slot in panel.slots):
        turned = any(_turns_slots(panel, width * _SLIDE_PIXELS) for panel in chart.panels)
        bottom = _BOTTOM_WITH_TURNED_LABELS if turned else _BOTTOM_WITH_LABELS
    figure.subplots_adjust(left=_LEFT, right=right, top=_TOP, bottom=bottom, wspace=_BETWEEN / width)
    entries: dict[str, Artist] = {}
    for number, (axes, panel) in enumerate(zip(all_axes, chart.panels, strict=True)):
        entries |= _draw_panel(axes, panel, width * _SLIDE_PIXELS, outer=number == count - 1)
    if len(entries) > 1:
        look: Any = {"frameon": False, "columnspacing": 1.6, "handletextpad": 0.5, "ncols": len(entries)}
        figure.legend(entries.values(), entries.keys(), loc="upper left", bbox_to_anchor=(0.022, 0.89), **look)
    return figure


draw_bars = as_png(bar_figure)


def _draw_panel(axes: Axes, panel: Panel, pixels: float, *, outer: bool) -> dict[str, Artist]:
    step = _SLOTS_OF_A_GROUP / len(panel.slots)
    centers = _beside(len(panel.slots), step)
    entries: dict[str, Artist] = {}
    tops = [panel.level.value if panel.level else 0.0]
    for slot, center in zip(panel.slots, centers, strict=True):
        entries |= _draw_slot(axes, panel, slot, center, pixels / len(panel.groups) * step)
        tops += [height for bar in slot.bars for height in _heights(bar)]
    factor = panel.left.scale.factor
    room = _ROOM_UNDER_POINTS if panel.right and panel.right.axis.top else _ROOM
    top = (panel.left.top or room * max(tops) or 1.0) / factor
    axes.set(xlim=(-0.55, len(panel.groups) - 0.45), ylim=(0, top), ylabel=_label(panel.left))
    ruled(axes, "y")
    _write_groups(axes, panel, pixels, centers)
    if panel.level:
        entries[panel.level.name] = axes.axhline(panel.level.value / factor, color=ALARM, linewidth=2.5, zorder=3)
    if panel.right:
        entries |= _draw_points(axes, panel.right, step, label=outer)
    return entries


def _draw_slot(axes: Axes, panel: Panel, slot: Slot, center: float, pixels: float) -> dict[str, Artist]:
    scale, room = panel.left.scale, _SLOTS_OF_A_GROUP / len(panel.slots) / len(slot.bars)
    entries: dict[str, Artist] = {}
    look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": _POINTS, "zorder": 6}
    if panel.numbered and pixels / len(slot.bars) < _NARROW_PIXELS:
        look["rotation"] = 90
    for bar, shift in zip(slot.bars, _beside(len(slot.bars), room), strict=True):
        places = [group + center + shift for group in range(len(panel.groups))]
        base = np.zeros(len(places))
        for series in bar:
            heights = np.asarray(series.values) / scale.factor
            width = room * (0.94 if len(slot.bars) == 1 else 0.86)
            axes.bar(places, heights, width, base, color=series.tint.color, linewidth=0, zorder=2)
            entries.setdefault(series.name, Patch(facecolor=series.tint.color))
            base += heights
        for group, (place, height, end) in enumerate(zip(places, _heights(bar), base.tolist(), strict=True)):
            failed = bool(slot.failed) and slot.failed[group] and (bar is slot.bars[-1] or panel.numbered)
            number = (scale.number(height) if height else "0") if panel.numbered else ""
            color = {"color": ALARM, "fontweight": "bold"} if failed else {"color": INK}
            where = place if panel.numbered else group + center
            write(axes, f"{number}{'*' * failed}", (where, end), (0, 3), **look, **color)
    return entries


def _heights(bar: tuple[Series, ...]) -> list[float]:
    return [sum(values) for values in zip(*(series.values for series in bar), strict=True)]


def _beside(count: int, width: float) -> list[float]:
    """Return the offsets of the middles of adjacent bars of one width."""
    return [(number - (count - 1) / 2) * width for number in range(count)]


def _draw_points(axes: Axes, points: Points, step: float, *, label: bool) -> dict[str, Artist]:
    other = axes.twinx()
    factor = points.axis.scale.factor
    drawn: dict[str, Artist] = {}
    for values, center in zip(points.values, _beside(len(points.values), step), strict=True):
        shown = [(group + center, value / factor) for group, value in enumerate(values) if value is not None]
        across, up = zip(*shown, strict=True) if shown else ((), ())
        (line,) = other.plot(across, up, "D-" if points.joined else "D", **_DIAMOND)
        drawn.setdefault(points.name, line)
    largest = max((value for values in points.values for value in values if value is not None), default=0.0)
    other.set_ylim(0, (points.axis.top or _ROOM * largest or 1.0) / factor)
    other.spines["right"].set_visible(True)
    other.spines["right"].set_color(_MARKER)
    other.tick_params(axis="y", colors=_MARKER)
    if label:
        other.set_ylabel(_label(points.axis), color=_MARKER)
    return drawn


def _label(axis: Axis) -> str:
    return f"{axis.label}, {axis.scale.unit}" if axis.scale.unit else axis.label


def _write_groups(axes: Axes, panel: Panel, pixels: float, slot_places: Sequence[float]) -> None:
    labels = [group.replace(" (", "\n(") for group in panel.groups]
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    turned = longest * _PIXELS_PER_CHARACTER > pixels / len(labels)
    axes.set_xticks(range(len(labels)), panel.groups if turned else labels, rotation=45 if turned else 0)
    if turned:
        for text in axes.get_xticklabels():
            text.set_horizontalalignment("right")
            text.set_rotation_mode("anchor")
    axes.tick_params(axis="x", length=0)
    slots = [slot.label for slot in panel.slots]
    if not any(slots):
        return
    upright = not _turns_slots(panel, pixels)
    axes.tick_params(axis="x", pad=28 if upright else 74)
    look = {"ha": "center", "va": "top", "rotation": 0 if upright else 90, "fontsize": 13, "color": MUTED}
    for group in range(len(labels)):
        for place, label in zip(slot_places, slots, strict=True):
            write(axes, label, (group + place, 0), (0, -6), ABOVE, annotation_clip=False, **look)


def _turns_slots(panel: Panel, pixels: float) -> bool:
    longest = max(len(slot.label) for slot in panel.slots)
    return longest * _PIXELS_PER_CHARACTER > pixels / len(panel.groups) * _SLOTS_OF_A_GROUP / len(panel.slots)
