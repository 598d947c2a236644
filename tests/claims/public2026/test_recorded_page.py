"""The page on published measurements, drawn from the tables beside it."""

import pytest

from reports.public2026.__main__ import FOLDER, recorded_paper
from reports.public2026.report import paper_report


@pytest.mark.usefixtures("no_labels_overlap")
def test_page_and_tables_are_those_that_the_tables_give() -> None:
    """Nothing is replayed; pictures hang on the version of matplotlib."""
    paper = recorded_paper(FOLDER)
    drawn = paper_report(paper.file, paper.check(), paper.runs, ())
    assert {name for name in drawn if name.endswith(".png")} == {each.name for each in FOLDER.glob("*.png")}
    for name, content in drawn.items():
        if name.endswith((".md", ".csv")):
            assert content == (FOLDER / name).read_bytes(), name
