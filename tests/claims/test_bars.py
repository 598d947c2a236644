"""Bar charts: labels with units, heights, marks, numbers, places of markers."""

import struct
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from reports.bars import bar_figure, draw_bars
from reports.charts import Axis, Chart, Level, Panel, Points, Series, Slot, Tint
from vdnnsim.report.scale import Scale

KIB_AXIS = Axis("memory", Scale("KiB", 1024.0, 1))
STACK = (Series("lower", Tint.GPU_MEMORY, (1024.0, 2048.0)), Series("upper", Tint.HOST_MEMORY, (512.0, 0.0)))
PANEL = Panel(("net (1)", "net (2)"), (Slot((STACK,), failed=(False, True)),), KIB_AXIS)
CHART = Chart("what to see", "what is shown", (PANEL,))


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def places(line: Line2D) -> list[tuple[float, float]]:
    columns = (np.asarray(data).tolist() for data in (line.get_xdata(), line.get_ydata()))
    return list(zip(*columns, strict=True))


def test_stacks_have_totals_legends_and_asterisks() -> None:
    """Bars of 1 + 0.5 and 2 + 0 KiB."""
    figure = bar_figure(CHART)
    (axes,) = figure.axes
    drawn = [(patch.get_y(), patch.get_height()) for patch in axes.patches]  # type: ignore[attr-defined]
    assert drawn == [(0.0, 1.0), (0.0, 2.0), (1.0, 0.5), (2.0, 0.0)]
    assert written(axes) == ["1.5", "2.0*"]
    assert axes.get_ylabel() == "memory, KiB"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["net\n(1)", "net\n(2)"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["lower", "upper"]
    assert [text.get_text() for text in figure.texts] == ["what to see", "what is shown"]
    # One colour needs no legend and no height is zero without decimals.
    empty = replace(PANEL, slots=(Slot.of("only", Tint.DYN, (0.0, 0.0)),))
    figure = bar_figure(replace(CHART, panels=(empty,)))
    assert not figure.legends
    assert written(figure.axes[0]) == ["0", "0"]
    assert figure.axes[0].get_ylim() == (0.0, 1 / 1024)
    # Without numbers only the failures are marked.
    pair = tuple((Series(name, Tint.MEAN, (1.0, 2.0)),) for name in ("a", "b"))
    panel = replace(PANEL, slots=(Slot(pair, failed=(False, True)),), numbered=False)
    assert written(bar_figure(replace(CHART, panels=(panel,))).axes[0]) == ["*"]


def test_markers_and_the_capacity_stand_on_axes_with_room() -> None:
    """Two slots share 0.82 of a group: their middles are 0.205 left and right of it. None has no marker."""
    bars = (Series("bar", Tint.BASE_P, (1.0, 1.0)),)
    slots = tuple(Slot((bars,), label) for label in ("a", "b"))
    points = Points("share", Axis("fraction", Scale("%", 0.01, 0), 1.0), ((0.5, 0.25), (None, 1.0)), joined=False)
    figure = bar_figure(replace(CHART, panels=(replace(PANEL, slots=slots, right=points),)))
    left, right = figure.axes
    first, second = right.lines
    assert places(first) == [pytest.approx((-0.205, 50.0)), pytest.approx((0.795, 25.0))]
    assert places(second) == [pytest.approx((1.205, 100.0))]
    assert right.get_ylabel() == "fraction, %"
    assert right.get_ylim() == (0.0, 100.0)
    assert [text for text in written(left) if text in "ab"] == ["a", "b", "a", "b"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["bar", "share"]
    # Markers without a given end leave room above.
    points = Points("weights", Axis("plain", Scale("", 1.0, 0)), ((50.0, 100.0),), joined=True)
    right = bar_figure(replace(CHART, panels=(replace(PANEL, right=points),))).axes[1]
    assert right.get_ylim() == pytest.approx((0.0, 114.0))
    assert right.get_ylabel() == "plain"
    assert right.lines[0].get_linestyle() == "-"
    # The capacity is on the picture even above all bars.
    panel = replace(PANEL, level=Level("capacity 8 KiB", 8192.0))
    figure = bar_figure(replace(CHART, panels=(panel,)))
    assert "capacity 8 KiB" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert figure.axes[0].get_ylim()[1] > 8


def test_long_labels_are_turned() -> None:
    values = tuple(float(number) for number in range(20))
    bars = (Series("bar", Tint.CONV_P, values),)
    slots = tuple(Slot((bars,), label) for label in ("all(m)", "all(p)"))
    panel = Panel(tuple(f"layer {number}" for number in range(20)), slots, KIB_AXIS)
    figure = bar_figure(replace(CHART, panels=(panel, panel)))
    assert {label.get_rotation() for label in figure.axes[0].get_xticklabels()} == {45.0}
    assert {text.get_rotation() for text in figure.axes[0].texts if text.get_text().startswith("all")} == {90.0}


def test_a_chart_is_a_slide_whatever_the_settings_of_the_user() -> None:
    """A PNG states its width and height as two big-endian numbers from byte 16 on."""
    picture = draw_bars(CHART)
    assert struct.unpack(">II", picture[16:24]) == (1600, 900)
    with mpl.rc_context({"font.size": 30}):
        assert draw_bars(CHART) == picture
