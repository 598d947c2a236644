"""Pictures of studies: axes, places, numbers, colours by their meaning, what fits."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vdnnsim.errors import InputError
from vdnnsim.report.palette import ALARM, SERIES_COLORS
from vdnnsim.report.plots.study.curves import lines_figure, pareto_figure
from vdnnsim.report.plots.study.heat_map import heat_map_figure
from vdnnsim.report.study_picture import Mark, PictureKind, StudyCells, StudyPicture, best, cell, shown_rows, study_axis

PICTURE = StudyPicture("p", "title", PictureKind.LINES, "gpus", "stall_s", where=(("policy", ("a",)),))


def test_rows_cells_and_axes_of_pictures() -> None:
    rows: list[StudyCells] = [
        {"policy": "a", "gpus": 1, "stall_s": 1.0},
        {"policy": "a", "gpus": 2, "stall_s": None},
        {"policy": "a", "gpus": 3, "stall_s": ""},
        {"policy": "b", "gpus": 4, "stall_s": 1.0},
    ]
    assert [row["gpus"] for row in shown_rows(rows, PICTURE)] == [1]
    # An empty selection is refused.
    with pytest.raises(InputError, match="picture 'p': found no row to draw, expected one that has policy a and was"):
        shown_rows([{"policy": "b", "gpus": 1, "stall_s": 1.0}], PICTURE)
    # 7 * 4 / 2 is 14.
    row: StudyCells = {"speed": 4.0, "link": 2, "policy": "a"}
    assert cell(row, "7 * speed / link") == 14.0
    assert cell(row, "policy") == "a"
    with pytest.raises(InputError, match="found 'a' for policy, expected a number"):
        cell(row, "speed / policy")
    # Names stand in the order of the rows.
    axis = study_axis("hardware", ["titan", "h200", "titan"])
    assert (axis.place("titan"), axis.place("h200")) == (0.0, 1.0)
    assert study_axis("x", [1.0], "what x is").label == "what x is"
    # More speed and less of anything else is better.
    columns = ("samples_per_s", "performance_ratio", "allocated_bytes")
    assert [best(each, (1.0, 2.0)) for each in columns] == [2.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("column", "value", "label", "text"),
    [
        ("gpu.memory_bytes", 24 * 2**30, "GPU memory, GiB", "24"),
        ("link.bandwidth_bytes_per_s", 12.8e9, "bandwidth of the host link, each way, GB/s", "12.8"),
        ("stall_s", 0.0125, "stalls, ms", "12.5"),
        ("gpu.peak.float32_flop_per_s", 7e12, "gpu.peak.float32 flop per s, TFLOP/s", "7"),
        ("samples_per_s", 1234.56, "samples/s", "1235"),
        ("performance_ratio", 0.988, "speed, % of that with unlimited memory", "98.8"),
        ("performance_ratio", 0.996, "speed, % of that with unlimited memory", "99.6"),
        ("performance_ratio", 0.9999, "speed, % of that with unlimited memory", "99.9"),
        ("performance_ratio", 1.0, "speed, % of that with unlimited memory", "100"),
        ("gpus", 8, "GPUs", "8"),
        ("hardware", "h200", "hardware", "h200"),
    ],
)
def test_a_column_is_known_by_its_name(column: str, value: float | str, label: str, text: str) -> None:
    axis = study_axis(column, [value])
    assert (axis.label, axis.text(value)) == (label, text)


GIB = 2**30


def row(policy: str, batch: int, speed: float, *, fits: bool = True, hardware: str = "one") -> StudyCells:
    memory = {"gpu.memory_bytes": 12 * GIB, "allocated_bytes": batch * GIB}
    return {"policy": policy, "batch_size": batch, "samples_per_s": speed, "fits": fits, "hardware": hardware, **memory}


ROWS = [
    *(row("slow", 1, 10.0), row("slow", 2, 12.0), row("slow", 4, 14.0)),
    *(row("fast", 1, 20.0), row("fast", 2, 24.0, fits=False), row("fast", 4, 28.0, fits=False)),
]
LINES = StudyPicture("speed", "what to see", PictureKind.LINES, "batch_size", "samples_per_s", by="policy")
MAP = StudyPicture("map", "what to see", PictureKind.HEAT_MAP, "batch_size", "policy", value="samples_per_s")
PARETO = StudyPicture("front", "what to see", PictureKind.PARETO, "allocated_bytes", "samples_per_s", by="policy")


def drawn(axes: Axes, marker: str) -> list[tuple[float, float]]:
    """Where the markers of a form stand."""
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_marker() == marker
        for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
    ]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for each in figure.legends for text in each.get_texts()]


def written(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_text()]


def test_a_line_marks_the_last_point_that_fits() -> None:
    """Of "fast" only the batch of 1 fits: there stands the bar, at its 20 samples/s; the other points are hollow."""
    figure = lines_figure(ROWS, LINES)
    (axes,) = figure.axes
    assert drawn(axes, "|") == [(1.0, 20.0)]
    hollow = [line for line in axes.lines if line.get_marker() == "s" and line.get_markerfacecolor() == "white"]
    assert [np.asarray(line.get_xdata()).tolist() for line in hollow] == [[2.0], [4.0]]
    assert legend(figure) == ["slow", "fast", "does not fit", "boundary of what fits"]
    assert axes.get_ylabel() == "samples/s"
    assert figure.get_supxlabel() == "batch size"
    assert [text.get_text() for text in figure.texts][:2] == [
        "what to see",
        "on one; hollow where it does not fit, replayed without a capacity",
    ]


def test_marks_and_panels() -> None:
    other = [{**each, "hardware": "two"} for each in ROWS]
    marks = (Mark("here", 2.0), Mark("far", 400.0))
    figure = lines_figure([*ROWS, *other], replace(LINES, panels="hardware", marks=marks))
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    assert [written(axes) for axes in figure.axes] == [["here"], ["here"]]


@pytest.mark.parametrize(
    ("column", "values", "titles"),
    [
        ("gpu.memory_bytes", (300 * 2**20, 512 * 2**20), ["GPU memory 300 MiB", "GPU memory 512 MiB"]),
        ("gpus", (1, 2), ["GPUs 1", "GPUs 2"]),
        ("gpu.compute_speed", (0.5, 1.5), ["0.5", "1.5"]),
        ("refusal", (None, "no room"), ["None", "no room"]),
    ],
)
def test_panels_have_the_unit_of_their_quantity(column: str, values: tuple[object, ...], titles: list[str]) -> None:
    """Memory that the file says as 300 MiB is 314572800 B in a row."""
    rows: Any = [{**each, column: value} for value in values for each in ROWS]
    figure = lines_figure(rows, replace(LINES, panels=column))
    assert [axes.get_title() for axes in figure.axes] == titles


def test_speeds_have_a_line_at_the_oracular_baseline() -> None:
    rows = [{**each, "performance_ratio": 0.5} for each in ROWS]
    (axes,) = lines_figure(rows, replace(LINES, y="performance_ratio")).axes
    assert any(np.asarray(line.get_ydata()).tolist() == [100.0, 100.0] and line.is_dashed() for line in axes.lines)
    # 10 and 12 images/s over batches of 1 and 2 are 10 and 6.
    picture = replace(LINES, y="samples_per_s / batch_size", y_label="images/s for one")
    (axes,) = lines_figure(ROWS[:2], picture).axes
    assert drawn(axes, "o") == [(1.0, 10.0), (2.0, 6.0)]
    assert axes.get_ylabel() == "images/s for one"


def test_two_points_at_one_place_are_refused() -> None:
    with pytest.raises(InputError, match="picture 'speed': found two points of one line at batch_size 1, expected one"):
        lines_figure(ROWS, replace(LINES, by=""))
    # A cell for two points is refused.
    with pytest.raises(InputError, match="picture 'map': found 2 points at batch_size 1 and hardware one, expected"):
        heat_map_figure(ROWS, replace(MAP, y="hardware"))


@pytest.mark.parametrize(("batches", "scale"), [([1, 2, 4, 8], "log"), (list(range(1, 9)), "linear")])
def test_scale_and_ticks_of_an_axis(batches: list[int], scale: str) -> None:
    axes = lines_figure([row("slow", each, 1.0) for each in batches], LINES).axes[0]
    assert (axes.get_xscale(), axes.get_xticks().tolist()) == (scale, batches)


def test_a_heat_map_has_a_line_around_what_fits() -> None:
    """The two cells of "fast" that do not fit have no number; they have three sides towards cells that fit.

    "slow" is the lower row. Right of "fast" (1) stands one that does not fit, above "slow" (2) and "slow" (4) as well.
    """
    figure = heat_map_figure(ROWS, MAP)
    (axes,) = figure.axes
    assert written(axes) == ["10", "12", "14", "20"]
    sides = [
        (np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist())
        for line in axes.lines
        if line.get_color() == ALARM
    ]
    assert sorted(sides) == [([0.5, 0.5], [0.5, 1.5]), ([0.5, 1.5], [0.5, 0.5]), ([1.5, 2.5], [0.5, 0.5])]
    assert legend(figure) == ["does not fit", "boundary of what fits"]


def test_each_cell_names_its_best_policy() -> None:
    """At a batch of 1 "fast" is best with 20; beyond it does not fit, so "slow" is."""
    figure = heat_map_figure(ROWS, replace(MAP, y="hardware", by="policy"))
    (axes,) = figure.axes
    assert written(axes) == ["fast\n20", "slow\n12", "slow\n14"]
    assert [to_hex(patch.get_facecolor()) for patch in axes.patches] == [SERIES_COLORS[number] for number in (1, 0, 0)]
    assert legend(figure) == ["slow", "fast"]
    assert figure.texts[1].get_text() == "6 points; in each cell samples/s, of the best policy that fits"


def test_a_pareto_picture_has_the_capacity_and_the_front() -> None:
    """Of what fits in memory (1, 10), (2, 12), (4, 14) and (1, 20) only the last is unbeaten; there are 12 GiB."""
    figure = pareto_figure(ROWS, PARETO)
    (axes,) = figure.axes
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert np.asarray(dashed.get_xydata()).tolist() == [[1.0, 20.0]]
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line.get_color() == ALARM] == [[12.0, 12.0]]
    assert legend(figure) == ["slow", "fast", "does not fit", "boundary of what fits", "unbeaten"]
    # The points stand alone, in the picture as in its legend.
    assert [handle.get_linestyle() for handle in figure.legends[0].get_lines()] == ["None", "None", "None", "-", "--"]
    assert len(drawn(axes, "o")) == 3


def test_without_a_stated_capacity_the_boundary_is_where_the_last_fits() -> None:
    """Batches of 1, 2 and 4 fit, of as many GiB, and one of 8 does not."""
    rows = [*ROWS[:3], row("slow", 8, 16.0, fits=False)]
    stripped = [{key: value for key, value in each.items() if key != "gpu.memory_bytes"} for each in rows]
    (axes,) = pareto_figure(stripped, PARETO).axes
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line.get_color() == ALARM] == [[4.0, 4.0]]
