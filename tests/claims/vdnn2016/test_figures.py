"""The figures on the shipped Titan X: their structure, and that titles and facts are computed."""

import csv
import io
import struct
from dataclasses import replace

import pytest

from reports.page import SimulatedFigure, figure_files
from reports.vdnn2016.figure_parts import case_name, extremes
from reports.vdnn2016.layer_figures import figure_05, figure_06
from reports.vdnn2016.memory_figures import figure_01, figure_04
from reports.vdnn2016.policy_figures import figure_15
from reports.vdnn2016.report import BUILDERS, paper_figures
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, VERY_DEEP, VdnnRuns
from vdnnsim.hardware.server import Server
from vdnnsim.units import GIB

STEMS = ("01", "04", "05", "06", "11", "12", "13", "14", "15")
CONV_OF_VGG16 = 16


@pytest.fixture(scope="module")
def titan(vdnn_runs: VdnnRuns) -> Server:
    return vdnn_runs.server


@pytest.fixture(scope="module")
def figures(vdnn_runs: VdnnRuns) -> dict[str, SimulatedFigure]:
    return {figure.stem: figure for figure in paper_figures(vdnn_runs)}


def test_figures_have_the_rows_and_values_of_the_paper(figures: dict[str, SimulatedFigure]) -> None:
    assert list(figures) == [*(f"figure{number}" for number in STEMS), "power"]
    # V-A: 93, 90, 76 and 69 % less average memory, 73, 64, 52 and 49 % at most; V-C: losses of 58, 55 and 3 %.
    paper = {
        stem: [panel.slots[0].bars[0][0].values for panel in figures[stem].chart.panels]
        for stem in ("figure11", "figure14")
    }
    assert paper["figure11"] == [(0.93, 0.90, 0.76, 0.69), (0.73, 0.64, 0.52, 0.49)]
    assert paper["figure14"] == [pytest.approx((0.42, 0.45, 0.97)), pytest.approx((0.35, 0.37, 0.82))]
    # 16 CONV, 3 FC and 5 POOL layers; each CONV layer has three kernels, the first no data gradient.
    assert len(figures["figure05"].rows) == CONV_OF_VGG16 + 3
    assert len(figures["figure06"].rows) == CONV_OF_VGG16 + 3 + 5
    assert len(figures["figure13"].rows) == 3 * CONV_OF_VGG16 - 1
    assert len(figures["figure13"].chart.panels[0].groups) == CONV_OF_VGG16
    # Breakdowns add up and features are part of the whole.
    figure = figures["figure04"]
    totals = {row[:2]: row[2] for row in figures["figure01"].rows}
    for row in figure.rows:
        cells = dict(zip(figure.columns, row, strict=True))
        sizes = {name: float(cells[name]) for name in figure.columns if name.endswith("_bytes")}
        whole = {name: size for name, size in sizes.items() if not name.startswith("feature_extraction")}
        # Pool and trace round each allocation up to the granule.
        assert sum(whole.values()) == totals[row[:2]]
        assert all(sizes[f"feature_extraction_{name}"] <= size for name, size in whole.items())
    # Failures in the rows are asterisks in the chart.
    for stem in ("figure01", "figure12", "figure15", "power"):
        figure = figures[stem]
        fits = list(figure.columns).index("fits")
        marks = [mark for panel in figure.chart.panels for slot in panel.slots for mark in slot.failed]
        assert sum(marks) == sum(not row[fits] for row in figure.rows)
    # Titles fit on a slide.
    for figure in figures.values():
        assert len(figure.chart.title) <= 82
        assert len(figure.chart.subtitle) <= 140


@pytest.mark.parametrize(
    ("stem", "cases", "rows_each"),
    [
        ("figure01", ALL_TEN, 1),
        ("figure04", ALL_TEN, 1),
        ("figure11", CONVENTIONAL, 7),
        ("figure12", CONVENTIONAL, 3),
        ("figure14", CONVENTIONAL, 7),
        ("figure15", (("vgg16", 32), *VERY_DEEP), 2),
        ("power", CONVENTIONAL[:-1], 3),
    ],
)
def test_every_network_of_the_paper_has_its_rows_and_its_group(
    figures: dict[str, SimulatedFigure], stem: str, cases: tuple[tuple[str, int], ...], rows_each: int
) -> None:
    figure = figures[stem]
    assert [row[:2] for row in figure.rows] == [case for case in cases for _ in range(rows_each)]
    if stem in ("figure11", "figure14"):  # means of all networks, beside those of the paper
        return
    for panel in figure.chart.panels:
        assert panel.groups == tuple(case_name(case) for case in cases)


@pytest.mark.slow
def test_figures_change_with_the_machine(figures: dict[str, SimulatedFigure], titan: Server) -> None:
    """With far less arithmetic other algorithms are the fastest; with 3 GiB other networks fit.

    Figures 1, 4 and 15 take networks of up to 416 layers, and would show no more.
    """
    gpu = titan.gpu
    slower = {element: rate / 50 for element, rate in gpu.flop_per_s.items()}
    other = replace(titan, gpu=replace(gpu, memory_bytes=3 * GIB, flop_per_s=slower))
    runs = VdnnRuns(other)
    for build in set(BUILDERS) - {figure_01, figure_04, figure_15}:
        figure = build(runs)
        assert figure.facts != figures[figure.stem].facts, figure.stem
        assert figure.chart.title != figures[figure.stem].chart.title, figure.stem


def test_files_are_a_csv_and_a_slide_for_each_figure(figures: dict[str, SimulatedFigure]) -> None:
    shown = (figures["figure11"], figures["figure15"])
    files = figure_files(shown)
    assert list(files) == ["figure11.csv", "figure11.png", "figure15.csv", "figure15.png"]
    header, *rows = csv.reader(io.StringIO(files["figure11.csv"].decode()))
    assert header == list(figures["figure11"].columns)
    assert len(rows) == len(figures["figure11"].rows)
    # A PNG states its width and height as two big-endian numbers from byte 16 on.
    assert struct.unpack(">II", files["figure15.png"][16:24]) == (1600, 900)


def test_the_same_machine_gives_the_same_bytes(figures: dict[str, SimulatedFigure], titan: Server) -> None:
    runs = VdnnRuns(titan)
    for build in (figure_05, figure_06):
        again = build(runs)
        first = figures[again.stem]
        assert figure_files([again]) == figure_files([first])
        assert again == first


def test_names_as_people_write_them() -> None:
    assert case_name(("vgg16", 64)) == "VGG-16 (64)"
    assert case_name(("googlenet", 128)) == "GoogLeNet (128)"
    assert extremes(("a", "b"), (0.5, 0.25)) == "25.0 % for b to 50.0 % for a"
    assert len(BUILDERS) == len(STEMS) + 1
