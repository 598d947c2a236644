"""What is crowded stays on the slide."""

from dataclasses import replace

import pytest
from matplotlib.patches import Patch

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.trace import Stall, StallCause
from vdnnsim.report.plots.iteration.timeline import timeline_figure
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.plots.style import house_style, new_figure, write_legend


@pytest.mark.parametrize(("characters", "columns"), [(5, 4), (30, 3), (50, 2), (100, 1)])
def test_a_legend_takes_more_rows_rather_than_leave_the_slide(characters: int, columns: int) -> None:
    """An n of 14 points is 12.3 pixels wide, an entry about 60 more: 4 x 122, 3 x 429, 2 x 675, 1290 of 1600."""
    with house_style():
        figure = new_figure("title", "subtitle")
        write_legend(figure, [Patch(label="n" * characters) for _ in range(8)], fontsize=14, rows=2)
        (legend,) = figure.legends
        box = legend.get_window_extent()
    assert legend._ncols == columns  # type: ignore[attr-defined]  # noqa: SLF001  # it has no other way to ask
    assert box.x0 >= 0
    assert box.x1 <= 1600


def test_the_longest_labels_are_as_small_as_may_be_read(result: ScenarioResult, move: PolicyResult) -> None:
    rows = tuple(replace(move, policy="page_migration(" + "option=value, " * 9 + f"{number})") for number in range(14))
    labels = policies_figure(replace(result, results=rows)).axes[0].get_yticklabels()
    assert {label.get_fontsize() for label in labels} == {9}


def test_the_magnified_part_says_what_it_is_around(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult
) -> None:
    assert timeline_figure(result, move).axes[1].get_xlabel() == "time, s, where copies are waited for most"
    assert timeline_figure(result, keep).axes[1].get_xlabel() == "time, s"


def test_long_labels_of_many_policies_are_smaller(result: ScenarioResult, move: PolicyResult) -> None:
    """One line of 15 points in 14 rows takes 210 of 360; two take 420; of 13 points they take 364; of 11 points 308."""
    short, long = (
        tuple(replace(move, policy=f"{label}{number})") for number in range(14))
        for label in ("vdnn(", "page_migration(m, page_latency=")
    )
    for rows, points in ((short, 15), (long, 11)):
        labels = policies_figure(replace(result, results=rows)).axes[0].get_yticklabels()
        assert {label.get_fontsize() for label in labels} == {points}
    assert labels[0].get_text() == "page_migration(m,\npage_latency=0)"


def test_a_long_legend_of_the_timeline_stays_on_the_slide(result: ScenarioResult, move: PolicyResult) -> None:
    stalls = (*move.trace.stalls, *(Stall(3.0, 4.0, cause, 5, None) for cause in StallCause))
    figure = timeline_figure(result, replace(move, trace=replace(move.trace, stalls=stalls)))
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= 1600
