"""The studies that come with vdnnsim, and the reports that are kept of them."""

import csv
import json
from pathlib import Path

import pytest

from vdnnsim.study.read import read_study
from vdnnsim.study.results import table_header

ROOT = Path(__file__).parents[3]
STUDIES = sorted((ROOT / "scenarios" / "studies").glob("*.yaml"))


def test_each_question_has_its_study() -> None:
    assert [path.stem for path in STUDIES] == ["batch", "crossover", "gpus", "memory", "nvlink"]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_report_of_a_study_is_of_its_grid(path: Path) -> None:
    """As many rows as points, in their order, none of them failed; every picture is there and shown."""
    study = read_study(path)
    report = ROOT / "reports" / "studies" / path.stem
    with (report / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == table_header(study)
    assert [row["policy"] for row in rows] == [point["policy"].label for point in study.points()]  # type: ignore[union-attr]
    assert {row["error"] for row in rows} == {""}
    words = (report / "README.md").read_text(encoding="utf-8")
    for picture in study.pictures:
        assert (report / f"{picture.name}.png").is_file()
        assert f"({picture.name}.png)" in words
    manifest = json.loads((report / "run.json").read_text(encoding="utf-8"))
    assert manifest["points"] == {"done": len(rows), "failed": 0, "missing": 0}
