"""The figures on the shipped Titan X: their structure, and that titles and facts are computed."""

import csv
import io
import struct

import pytest

from reports.page import SimulatedFigure, figure_files
from reports.vdnn2016.report import paper_figures
from vdnnsim.claims.vdnn2016.runs import VdnnRuns

STEMS = ("01", "04", "05", "06", "11", "12", "13", "14", "15")
CONV_OF_VGG16 = 16


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


def test_files_are_a_csv_and_a_slide_for_each_figure(figures: dict[str, SimulatedFigure]) -> None:
    shown = (figures["figure11"], figures["figure15"])
    files = figure_files(shown)
    assert list(files) == ["figure11.csv", "figure11.png", "figure15.csv", "figure15.png"]
    header, *rows = csv.reader(io.StringIO(files["figure11.csv"].decode()))
    assert header == list(figures["figure11"].columns)
    assert len(rows) == len(figures["figure11"].rows)
    # A PNG states its width and height as two big-endian numbers from byte 16 on.
    assert struct.unpack(">II", files["figure15.png"][16:24]) == (1600, 900)
