"""The pictures of the studies that come with vdnnsim, of the results that are kept with them: no label over another."""

from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tests.command_line import csv_rows
from tests.overlaps import overlapping
from tests.toy import ROOT
from vdnnsim.analysis.columns import Value
from vdnnsim.report.plots.study import draw_study_picture
from vdnnsim.report.study_picture import StudyCells
from vdnnsim.study.read import read_study

STUDIES = sorted((ROOT / "scenarios" / "studies").glob("*.yaml"))


def kept_rows(name: str) -> list[StudyCells]:
    return [
        {column: _value(cell) for column, cell in row.items()}
        for row in csv_rows(ROOT / "reports" / "studies" / name / "results.csv")
    ]


def _value(cell: str) -> Value:
    if cell in ("true", "false"):
        return cell == "true"
    try:
        return float(cell)
    except ValueError:
        return cell


@pytest.mark.thorough
@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_no_labels_overlap_in_the_pictures_of_a_study(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is written: to make a PNG takes longer than to see where its labels are."""
    found: list[list[tuple[str, str]]] = []

    def looked_at(canvas: FigureCanvasAgg) -> tuple[bytes, tuple[int, int]]:
        found.append(overlapping(canvas.figure))
        return bytes(4), (1, 1)

    monkeypatch.setattr(FigureCanvasAgg, "print_to_buffer", looked_at)
    rows, pictures = kept_rows(path.stem), read_study(path).pictures

    for picture in pictures:
        draw_study_picture(rows, picture)

    assert found == [[]] * len(pictures)
