"""The folder of a validation: what stands in its page, its table, its manifest and its pictures."""

import csv
import io
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tests.toy import TOY_SERVER
from tests.unit.report.conftest import move_trace
from tests.unit.validation.conftest import RowMaker, one_side
from tests.unit.validation.fake_device import slowed
from vdnnsim.report.palette import ALARM
from vdnnsim.report.picture import Pair, Parity
from vdnnsim.report.plots.validation import memories_figure, parity_figure, timelines_figure
from vdnnsim.report.result_table import csv_text
from vdnnsim.validation.method import FREE_GPU, PACED_CPU, Method, Task
from vdnnsim.validation.report.page import page_text
from vdnnsim.validation.report.tables import HEADER, cells, column_names, summary_cells
from vdnnsim.validation.report.write import draw_validation, instructive_row, validation_files, write_validation
from vdnnsim.validation.row import Outcome, Raw, Row
from vdnnsim.validation.validate import Validation

UNFIT = Row(Task("vgg16", 1), "base(p)", Outcome.DOES_NOT_FIT, note="conv1 asked for 2 B")
REFUSED = Row(Task("vgg16", 1), "page_migration(p)", Outcome.REFUSED, note="copies page by page")


def validation(method: Method, *rows: Row) -> Validation:
    return Validation(
        device="the device",
        provenance=(("driver", "1.2"),),
        server=replace(TOY_SERVER, provenance=(("driver", "1.1"),)),
        sources=(("hw_profiles/toy.yaml", "ab12"),),
        method=method,
        rows=rows,
    )


def files(method: Method, *rows: Row) -> Mapping[str, bytes]:
    return validation_files(validation(method, *rows), ("driver: 1.1 in the profile, 1.2 here",))


def page(method: Method, *rows: Row) -> str:
    return page_text(validation(method, *rows), {}, ("driver: 1.1 in the profile, 1.2 here",))


def test_a_folder_has_a_page_a_table_a_manifest_and_three_pictures(make_row: RowMaker, tmp_path: Path) -> None:
    written = write_validation(validation(FREE_GPU, make_row(), UNFIT), (), tmp_path / "here")
    names = {"README.md", "validation.csv", "run.json", "iteration_time.png", "timelines.png", "memory.png"}
    assert {path.name for path in written} == names
    for path in written:
        if path.suffix == ".png":
            assert struct.unpack(">II", path.read_bytes()[16:24]) == (1600, 900)


def test_the_page_says_what_ran_and_what_holds(make_row: RowMaker) -> None:
    tasks = Task("vgg16", 1), Task("alexnet", 1, paper_alone=True), Task("alexnet", 2, paper_alone=True)
    both = "2 rows: every policy on vgg16 (1) and those of the vDNN paper on alexnet (1); alexnet (2). Each"
    assert both in page(replace(FREE_GPU, tasks=tasks), make_row(), UNFIT)
    assert "2 rows: every policy on vgg16 (1). Each" in page(replace(FREE_GPU, tasks=tasks[:1]), make_row(), UNFIT)
    # The page says what holds and what does not.
    good = page(FREE_GPU, make_row(1.01), UNFIT, REFUSED)
    assert "**Everything that is required holds.**" in good
    assert "- base(p), vgg16 (1): does not fit: conv1 asked for 2 B\n" in good
    assert "- page_migration(p), vgg16 (1): refused: copies page by page\n" in good
    assert "- driver: 1.2\n- warning: driver: 1.1 in the profile, 1.2 here\n" in good
    late = make_row(1.25, order_fault="b ran before a")
    bad = page(FREE_GPU, late)
    assert "**Does not hold: iteration time, kernels calibrated, order of kernels and copies.**" in bad
    assert "- order of kernels and copies: move(m), alexnet (1): b ran before a\n" in bad
    wide = page(FREE_GPU, make_row(1.25))
    assert "- iteration time, kernels calibrated: move(m), alexnet (1): time -20.0 %, memory +0 %\n" in wide
    # 8 s of a CPU without given durations, where its calibrated times say 6: -25 %.
    text = page(PACED_CPU, replace(make_row(), raw=Raw(8.0, 6.0)))
    assert "Not proven: the cost model." in text
    assert "| alexnet (1) | move(m) | 8.00 s | 6.00 s | -25 % |" in text
    assert "Not proven: the cost model." not in page(FREE_GPU, make_row())
    # Decisions on the device are listed once.
    rows = [replace(make_row(), decision="all(p) on the device, conv(p) in the simulator") for _ in range(2)]
    text = page(FREE_GPU, rows[0], replace(rows[1], profiled_on_device=True))
    assert text.count("- alexnet (1): all(p) on the device, conv(p) in the simulator\n") == 1


def test_the_table_has_every_number_and_empty_cells_for_the_rest(make_row: RowMaker) -> None:
    """8.8 s measured against 8 s: (8 - 8.8) / 8.8 = -1/11. The device has no allocator with blocks."""
    text = csv_text(column_names(), [cells(make_row(1.1, predicted_share=0.5)), cells(UNFIT)])
    ran, unfit = csv.DictReader(io.StringIO(text))
    assert float(ran["iteration_error"]) == pytest.approx(-1 / 11)
    assert (ran["measured_requested_bytes"], ran["requested_error"]) == ("60", "0.0")
    assert (ran["measured_reserved_bytes"], ran["memory_share"], ran["spread"]) == ("", "", "")
    assert (ran["calibrated"], ran["predicted_share"], ran["order"]) == ("false", "0.5", "kept")
    assert float(ran["simulated_stall_offload_s"]) == 2.0
    assert (ran["measured_stall_pinning_s"], ran["simulated_offloaded_bytes"]) == ("0.0", "10")
    assert (unfit["outcome"], unfit["measured_iteration_s"], unfit["calibrated"]) == ("does not fit", "", "")


def test_the_manifest_has_both_provenances_and_every_run(make_row: RowMaker) -> None:
    content = json.loads(files(FREE_GPU, make_row(1.25), UNFIT)["run.json"])
    assert content["device"] == {"name": "the device", "driver": "1.2"}
    assert content["profile"] == {"name": "toy", "driver": "1.1"}
    assert content["inputs"] == [{"name": "hw_profiles/toy.yaml", "sha256": "ab12"}]
    assert content["warnings"] == ["driver: 1.1 in the profile, 1.2 here"]
    assert content["rows"][0]["runs_s"] == [10.0]
    assert content["rows"][1]["measured_iteration_s"] is None
    holds = {each["name"]: each["holds"] for each in content["requirements"]}
    assert holds["iteration time, kernels calibrated"] is False


def test_without_a_row_to_compare_there_are_no_pictures() -> None:
    assert set(files(FREE_GPU, UNFIT)) == {"README.md", "validation.csv", "run.json"}


def test_the_summary_names_faults_in_its_last_column(make_row: RowMaker) -> None:
    """61 B measured are 1.6 % more than the 60 B simulated, which are so 1.6 % less."""
    odd = make_row(order_fault="b ran before a"), make_row(requested_bytes=61), replace(make_row(), simulated=None)
    summary = summary_cells([make_row(1.25), *odd, UNFIT])
    assert all(len(each) == len(HEADER) for each in summary)
    assert summary[0] == (
        *("alexnet (1)", "move(m)", "yes", "10.0 s", "8.00 s", "-20.0 %"),
        *("5.00 s", "4.00 s", "60 B", "60 B", ""),
    )
    assert [each[-1] for each in summary] == ["", "order", "memory -1.6 %", "fits on the device alone", "does not fit"]


# Titles, labels and legends of the pictures of a validation.

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
