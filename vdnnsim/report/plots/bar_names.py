"""What is written at bars: numbers in and above them, below them the names of their groups and slots."""

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes

from vdnnsim.report.chart import Panel
from vdnnsim.report.plots.style import ALARM, INK, MUTED

SLOTS_OF_A_GROUP: Final = 0.82
"""Share of the width of a group that its bars fill."""
_POINTS: Final = 12.5
_PIXELS_PER_CHARACTER: Final = 13
"""Labels that need more than their room are turned."""


def write_above(axes: Axes, text: str, place: float, height: float, *, alarm: bool, turned: bool) -> None:
    """Write above the end of a bar, in the colour of an alarm or not, from below to above if `turned`."""
    axes.annotate(
        text,
        (place, height),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        va="bottom",
        rotation=90 if turned else 0,
        fontsize=_POINTS,
        color=ALARM if alarm else INK,
        fontweight="bold" if alarm else "normal",
        zorder=6,
    )


def write_inside(axes: Axes, text: str, place: float, height: float, *, pale: bool) -> None:
    """Write into the middle of a part of a bar, which is pale or dark."""
    axes.text(place, height, text, ha="center", va="center", fontsize=_POINTS, color=INK if pale else "white", zorder=4)


def write_groups(axes: Axes, panel: Panel, pixels: float, slot_places: Sequence[float]) -> None:
    """Write below the bars the names of the groups, and between both those of the slots, if they have names.

    Args:
        axes: those of the panel.
        panel: what the axes show.
        pixels: width of the axes.
        slot_places: the middle of each slot, from that of its group.
    """
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
    upright = not turns_slots(panel, pixels)
    axes.tick_params(axis="x", pad=28 if upright else 74)
    for group in range(len(labels)):
        for place, label in zip(slot_places, slots, strict=True):
            axes.annotate(
                label,
                (group + place, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -6),
                textcoords="offset points",
                ha="center",
                va="top",
                rotation=0 if upright else 90,
                fontsize=13,
                color=MUTED,
                annotation_clip=False,
            )


def turns_slots(panel: Panel, pixels: float) -> bool:
    """Whether the names of slots need more room than the slots have on axes of a width."""
    longest = max(len(slot.label) for slot in panel.slots)
    return longest * _PIXELS_PER_CHARACTER > pixels / len(panel.groups) * SLOTS_OF_A_GROUP / len(panel.slots)
