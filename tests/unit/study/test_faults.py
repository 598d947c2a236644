"""What may pass is no result: files that are away for a while; folders of others; what points that failed end in."""

import csv
from pathlib import Path

import pytest

from tests.command_line import SMALL, vdnnsim
from vdnnsim.cost.model import ServerCosts
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server
from vdnnsim.study import sweep as module
from vdnnsim.study.points import compute

STUDY = """
schema_version: 1
scenario:
  schema_version: 1
  workload: {network: tiny_linear, batch_size: 4, element_type: float32}
  hardware: titan_x_maxwell
  policies: [base(p), vdnn_all(m)]
axes:
  workload.batch_size: [1, 2, 3]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(STUDY)
    (tmp_path / "s").mkdir()
    module._runner.cache_clear()  # noqa: SLF001  # nothing but a new process forgets
    return tmp_path


def sweep(folder: Path, *options: str) -> tuple[int, list[str], str]:
    """Sweep in this process: exit status, counts, talk."""
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--out", "s", *options, folder=folder)
    return done.returncode, done.stdout.split()[3:], done.stderr


def test_points_whose_files_are_away_are_missing_and_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel table is away while the first of three batches is costed: 2 of 6 points wait, and then come."""
    asked = 0

    def away(server: Server) -> ServerCosts:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise ProfileError("a.kernels.csv: cannot be read: no such file or directory") from FileNotFoundError()
        return ServerCosts(server)

    monkeypatch.setattr(compute, "ServerCosts", away)
    code, counts, talk = sweep(folder)
    assert (code, counts) == (1, ["4", "0", "2"])
    assert "2 points are missing: a.kernels.csv: cannot be read" in talk
    assert sweep(folder)[:2] == (0, ["6", "0", "0"])


def test_a_profile_that_is_away_leaves_its_points_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once for the file and then for the points of its axis, at which it cannot be read."""
    (folder / "s.yaml").write_text(STUDY.replace("workload.batch_size: [1, 2, 3]", "hardware: [titan_xp]"))

    def away(path: Path) -> Server:
        raise ProfileError(f"{path.name}: cannot be read: input/output error") from OSError()

    with monkeypatch.context() as patch:
        patch.setattr("vdnnsim.study.points.resolve.read_profile", away)
        code, counts, talk = sweep(folder)
    assert (code, counts) == (1, ["0", "0", "2"])
    assert "2 points are missing: titan_xp.yaml: cannot be read: input/output error" in talk
    assert sweep(folder)[:2] == (0, ["2", "0", "0"])


def test_points_that_failed_are_computed_anew_where_that_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(_server: Server) -> ServerCosts:
        raise ProfileError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(compute, "ServerCosts", wrong)
        assert sweep(folder)[:2] == (1, ["0", "6", "0"])
    code, counts, talk = sweep(folder)
    assert (code, counts) == (1, ["0", "6", "0"])
    assert "6 points failed, the first: a bug" in talk
    assert sweep(folder, "--retry-failed")[:2] == (0, ["6", "0", "0"])


def test_a_sweep_into_the_folder_of_a_run_is_refused(folder: Path) -> None:
    """Both would be called results.csv; before anything is computed, and the other way round as well."""
    (folder / "small.yaml").write_text(SMALL)
    assert vdnnsim("run", "small.yaml", "--out", "s", folder=folder).returncode == 0
    before = {path.name: path.read_bytes() for path in (folder / "s").iterdir()}
    code, _, talk = sweep(folder)
    assert code == 1
    assert "s/results.csv: was not written by an earlier sweep" in talk
    assert {path.name: path.read_bytes() for path in (folder / "s").iterdir()} == before

    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--out", "t", folder=folder)
    assert done.returncode == 0
    done = vdnnsim("run", "small.yaml", "--out", "t", folder=folder)
    assert "t/run.json: was not written by an earlier run" in done.stderr


def test_the_table_of_a_sweep_goes_through_links_and_over_its_own(folder: Path) -> None:
    """`--csv` leads to a file elsewhere, whose link stays one; a second sweep writes over the results of the first."""
    (folder / "elsewhere.csv").write_text("old")
    (folder / "link.csv").symlink_to("elsewhere.csv")
    for _ in range(2):
        assert sweep(folder, "--csv", "link.csv")[0] == 0
    assert (folder / "link.csv").is_symlink()
    with (folder / "elsewhere.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6
