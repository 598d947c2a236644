"""Titles, labels and legends of the pictures of a validation."""

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tests.toy import TOY_SERVER
from tests.unit.report.conftest import move_trace
from tests.unit.validation.conftest import RowMaker, one_side
from tests.unit.validation.fake_device import slowed
from vdnnsim.report.palette import ALARM
from vdnnsim.report.picture import Pair, Parity
from vdnnsim.report.plots.validation import memories_figure, parity_figure, timelines_figure
from vdnnsim.validation.method import FREE_GPU, PACED_CPU
from vdnnsim.validation.report.write import draw_validation, instructive_row
from vdnnsim.validation.validate import Validation

PARITY = Parity(
    title="title",
    subtitle="subtitle",
    pairs=(Pair("a (1)", 0, 1.0, 1.02), Pair("a (1)", 0, 2.0, 2.0), Pair("b (2)", 1, 1.0, 1.5)),
    kinds=("known", "unknown"),
    tolerance=0.05,
    band="within 5 %",
)


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_all_rows_stand_beside_their_network() -> None:
    figure = parity_figure(PARITY)
    diagonal, errors = figure.axes
    assert (diagonal.get_xlabel(), diagonal.get_ylabel()) == ("measured iteration time", "simulated iteration time")
    assert [text.get_text() for text in errors.get_yticklabels()] == ["a (1)", "b (2)"]
    assert legend_texts(figure) == ["known", "unknown", "within 5 %"]


def test_rows_outside_the_band_have_a_red_rim() -> None:
    """Only the last pair, 50 % off, is; the band itself is drawn too."""
    _, errors = parity_figure(PARITY).axes
    rims = [line.get_markeredgecolor() for line in errors.get_lines() if line.get_marker() in ("o", "D")]
    assert rims == ["white", "white", ALARM]
    low, high = errors.get_xlim()
    assert low == -high
    assert high > 0.5


def test_both_timelines_share_an_axis_of_time() -> None:
    """The measured iteration takes 12 s where the simulated one takes 8: both halves show the longer one."""
    figure = timelines_figure("title", "subtitle", slowed(move_trace(), 1.5), move_trace())
    whole, part = figure.axes
    assert whole.get_xlim() == (0, 12.0)
    assert part.get_xlim()[1] == pytest.approx(12.0)
    rows = [text.get_text() for text in whole.get_yticklabels()]
    assert rows == ["measured", "simulated"] * 3
    assert {"compute stream", "stalls", "memory stream"} <= {text.get_text() for text in whole.texts}
    assert "offload (and its stalls)" in legend_texts(figure)
    written = [text.get_text() for text in part.texts]
    assert written.count("conv1") == 4  # forward and backward, measured and simulated


def test_memory_has_both_maxima_in_its_legend() -> None:
    figure = memories_figure("title", "subtitle", slowed(move_trace(), 1.5), move_trace())
    assert legend_texts(figure) == ["measured, maximum 60 B", "simulated, maximum 60 B"]
    (axes,) = figure.axes
    assert axes.get_xlim()[1] >= 12.0


def test_titles_and_the_row_that_is_shown(make_row: RowMaker) -> None:
    idle = make_row()
    assert idle.simulated is not None
    idle = replace(idle, simulated=replace(idle.simulated, stall_by_cause=()))
    waiting = make_row(network="vgg16")
    assert instructive_row([idle, waiting]) is waiting
    # One row is 20 % too fast in the simulator, one is exact: 10 % in the mean, one of two within 5 %.
    rows = make_row(1.25), make_row(network="vgg16")
    pictures = draw_validation(Validation("a GPU", (), TOY_SERVER, (), FREE_GPU, rows))
    assert [each.description for each in pictures] == [
        "Simulated iteration times are 10.0 % off in the mean, 1 of 2 rows within 5 %",
        "move(m): 10.0 s measured, 8.00 s simulated; the compute stream waits 50.0 % and 50.0 % of it",
        "move(m): peak requested memory 60 B, as simulated",
    ]
    # A title says that memory differs.
    row = replace(make_row(), measured=one_side(requested_bytes=80))
    pictures = draw_validation(Validation("a CPU", (), TOY_SERVER, (), PACED_CPU, (row,)))
    assert pictures[2].description == "move(m): peak requested memory 80 B, simulated 60 B"
