"""`python -m reports PAPER`."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from reports.__main__ import redraw
from reports.page import manifest, page_writer
from tests.toy import ROOT
from vdnnsim.claims.claim import PAPERS, read_claims
from vdnnsim.errors import OutputError
from vdnnsim.report.folder import earlier_files


def test_a_page_is_written_with_the_rows_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One claim, that AlexNet (128) takes 1.1 GiB."""
    file = read_claims("vdnn2016")
    one = msgspec.structs.replace(file, claims=tuple(each for each in file.claims if each.id == "v-mem-1"))
    monkeypatch.setattr("reports.__main__.read_claims", lambda _: one)
    monkeypatch.setattr(
        "reports.vdnn2016.report.paper_report",
        lambda file, rows, _runs, profiles, _progress: {
            "README.md": repr(rows).encode(),
            "run.json": manifest(file, profiles).encode(),
        },
    )

    done = CliRunner().invoke(redraw, ["vdnn2016", "--out", str(tmp_path)], catch_exceptions=False)

    assert (done.exit_code, done.stderr.splitlines()[0]) == (0, "1 of 1 claims reproduced")
    assert "v-mem-1" in (tmp_path / "README.md").read_text()
    assert CliRunner().invoke(redraw, ["vdnn2016", "--out", str(tmp_path)]).exit_code == 0, "it is its own"


def test_nothing_of_others_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "run.json").write_text(manifest(read_claims("vdnn2016"), []))
    with pytest.raises(OutputError, match=r"README\.md: was not written by an earlier report on swap2018"):
        CliRunner().invoke(redraw, ["swap2018", "--out", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "README.md").read_text() == "mine"


@pytest.mark.parametrize("paper", PAPERS)
def test_the_pages_of_the_repository_are_those_of_the_command(paper: str) -> None:
    assert {"README.md", "claims.csv"} <= earlier_files(ROOT / "reports" / paper, page_writer(paper))


def test_a_page_of_captured_networks_is_not_drawn_without_their_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows in ten would be left out, and the page on the others written over that on all."""
    monkeypatch.setattr("reports.__main__.capture", lambda: None)

    refused = CliRunner().invoke(redraw, ["public2026"])

    assert refused.exit_code == 2
    assert "expected all of them installed" in refused.output
