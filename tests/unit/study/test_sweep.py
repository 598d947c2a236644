"""`vdnnsim sweep` as scripts rely on it."""

import re
from pathlib import Path

import pytest

from tests.command_line import SMALL, csv_rows, vdnnsim
from vdnnsim.cost.model import ServerCosts
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server
from vdnnsim.study import sweep as module
from vdnnsim.study.points import compute
from vdnnsim.study.store import DATABASE

STUDY = """
schema_version: 1
scenario:
  schema_version: 1
  workload: {network: tiny_linear, batch_size: 4, element_type: float32}
  hardware: titan_x_maxwell
  policies: [base(p), vdnn_all(m)]
axes:
  link.bandwidth: [8 GB/s, 16 GB/s]
  gpus: [1, 2]
where: gpus == 1 or link.bandwidth > 10 GB/s
"""
BATCHES = STUDY.split("axes:", maxsplit=1)[0] + "axes:\n  workload.batch_size: [1, 2, 3]\n"


def counted(printed: str) -> list[str]:
    """Return how many points are done, failed and missing."""
    return re.findall(r"(\d+) (?:done|failed|missing)", printed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(STUDY)
    return tmp_path


def test_every_point_is_a_row_in_the_order_of_the_file(folder: Path) -> None:
    """Two links and two policies on one GPU; a second GPU, which the machine lacks, on one link."""
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--csv", "copy.csv", folder=folder, status=1)

    assert "2 points failed, the first: titan_x_maxwell: found 2 GPUs" in done.stderr
    assert "--retry-failed" in done.stderr
    assert counted(done.stdout) == ["4", "2", "0"]
    # The second GPU fails; by the faster link nothing but the offload is faster.
    assert [line.split()[:3] for line in done.stdout.splitlines()[3:5]] == [["8", "GB/s", "1"], ["16", "GB/s", "1"]]
    assert done.stdout.count("base(p)") == 2
    found = csv_rows(folder / "reports" / "s" / "results.csv")
    assert (folder / "copy.csv").read_bytes() == (folder / "reports" / "s" / "results.csv").read_bytes()
    assert [(row["link.bandwidth_bytes_per_s"], row["gpus"], row["policy"]) for row in found] == [
        (rate, gpus, policy)
        for rate, gpus in (("8000000000.0", "1"), ("16000000000.0", "1"), ("16000000000.0", "2"))
        for policy in ("base(p)", "vdnn_all(m)")
    ]
    assert [row["error"] for row in found] == [""] * 4 + ["titan_x_maxwell: found 2 GPUs, but it has 1"] * 2
    assert (found[0]["fits"], found[5]["iteration_s"]) == ("true", "")
    assert float(found[1]["iteration_s"]) > float(found[3]["iteration_s"])
    vdnnsim("sweep", "s.yaml", "--workers", "2", "--out", "two", folder=folder, status=1)
    assert (folder / "copy.csv").read_bytes() == (folder / "two" / "results.csv").read_bytes()


def test_status_computes_nothing_and_new_points_are_computed(folder: Path) -> None:
    assert vdnnsim("sweep", "s.yaml", "--status", folder=folder).stdout.split()[3:] == ["0", "0", "6"]
    assert not (folder / "reports").exists()
    vdnnsim("sweep", "s.yaml", "--workers", "1", folder=folder, status=1)
    before = (folder / "reports" / "s" / DATABASE).read_bytes()
    vdnnsim("sweep", "s.yaml", "--workers", "1", folder=folder, status=1)
    (folder / "s.yaml").write_text(STUDY.replace("[8 GB/s", "[4 GB/s, 8 GB/s"))

    checked = vdnnsim("check", "s.yaml", folder=folder).stdout
    assert checked.endswith(" on titan_x_maxwell: 3 link.bandwidth x 2 gpus x 2 policy: 8 of 12 points\n")
    status = vdnnsim("sweep", "s.yaml", "--status", "--csv", "status.csv", folder=folder)

    assert (folder / "reports" / "s" / DATABASE).read_bytes() == before
    assert status.stdout.split()[3:] == ["4", "2", "2"]
    assert csv_rows(folder / "status.csv") == [{"done": "4", "failed": "2", "missing": "2"}]
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", folder=folder, status=1)
    assert counted(done.stdout) == ["6", "2", "0"]


@pytest.mark.parametrize(
    ("policies", "memory", "batches", "fastest", "more"),
    [
        ("base(p), vdnn_all(m)", "12 GiB", 2, "base(p)", 0),
        ("vdnn_all(m), base(p)", "12 GiB", 2, "base(p)", 0),
        ("base(p)", "1 B", 2, "none fits", 0),
        ("base(p)", "12 GiB", 23, "base(p)", 3),
        # More than so many points are counted alone.
        ("base(p)", "12 GiB", 26, "", 0),
    ],
)
def test_the_fastest_policy_that_fits_is_printed_for_each_choice_of_other_axes(
    policies: str,
    memory: str,
    batches: int,
    fastest: str,
    more: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Offloads take time, of which base(p) takes none; twenty rows are printed, as many as stand on a screen."""
    monkeypatch.setattr("vdnnsim.study.fastest._MOST_POINTS", 25)
    text = STUDY.split("axes:", maxsplit=1)[0].replace("base(p), vdnn_all(m)", policies)
    axes = f"axes: {{gpu.memory: [{memory}], workload.batch_size: {{from: 1, to: {batches}, step: 1}}}}\n"
    (tmp_path / "s.yaml").write_text(text + axes)
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", folder=tmp_path)
    assert counted(done.stdout) == [str(batches * (1 + policies.count(","))), "0", "0"]
    shown = [line for line in done.stdout.splitlines() if line.startswith(memory)]
    assert len(shown) == (min(batches, 20) if fastest else 0)
    assert all(fastest in line for line in shown)
    assert (f"and {more} more; results.csv has all" in done.stdout) is (more > 0)


SPEEDS = "gpu.compute_speed: {from: 1, to: 2, count: 1000000}"
CONDITION = "  - workload.batch_size != 3 or workload.batch_size > 7\n"
LONG = f"axes:\n  workload.batch_size: {{from: 1, to: 100000, step: 1}}\nwhere:\n{CONDITION * 1000}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus == 1 or", "gpus == 3 and", "where: leaves none of 8 points"),
        ("gpus: [1, 2]", SPEEDS, "axes: found a grid of 4000000 points"),
        ("gpus: [1, 2]", f"{SPEEDS}\n  host.memory: {{from: 1 B, to: 300 kB, step: 1 B}}", "1200000000000 points"),
        ("schema_version: 1\nscenario", "schema_version: 2\nscenario", "found 2, expected 1"),
        ("scenario:", "scenario: base.yml\nother:", "'other' is not a key"),
        ("gpus: [1, 2]", "workload.precision: [float32]\n  workload.element_type: [float16]", "beside 'workload.pre"),
        # A thousand conditions of two comparisons each at 100,000 batches: 400 million.
        (STUDY[STUDY.index("axes") :], LONG, "found 2000 comparisons at each of 200000 points, expected 50000000 in"),
    ],
)
def test_wrong_studies_are_refused_in_one_line(folder: Path, old: str, new: str, message: str) -> None:
    text = STUDY.replace(old, new)
    if "compute_speed" in new:
        text = text[: text.index("where")]
    (folder / "s.yaml").write_text(text)
    done = vdnnsim("sweep", "s.yaml", folder=folder, status=1)
    assert done.stderr.startswith("vdnnsim: s.yaml")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "reports").exists()


def test_a_damaged_database_ends_a_sweep_in_one_line(folder: Path) -> None:
    (folder / "reports" / "s").mkdir(parents=True)
    path = folder / "reports" / "s" / DATABASE
    path.write_bytes(b"no database" * 1000)

    for arguments in ((), ("--status",)):
        done = vdnnsim("sweep", "s.yaml", *arguments, folder=folder, status=1)
        assert "is damaged" in done.stderr
        assert done.stderr.count("\n") == 1
    assert path.read_bytes() == b"no database" * 1000


def test_parquet_without_pyarrow_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = vdnnsim("sweep", "s.yaml", "--parquet", "s.parquet", folder=folder, status=1)
    assert done.stderr.startswith("vdnnsim: --parquet: pyarrow is not installed")


def test_parquet_equals_the_csv(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")

    vdnnsim("sweep", "s.yaml", "--workers", "1", "--parquet", "s.parquet", folder=folder)

    table = parquet.read_table(folder / "s.parquet").to_pylist()
    text = csv_rows(folder / "reports" / "s" / "results.csv")
    assert [list(row) for row in table] == [list(row) for row in text]
    assert [row["iteration_s"] for row in table[:4]] == [float(row["iteration_s"]) for row in text[:4]]
    assert [row["iteration_s"] for row in table[4:]] == [None, None]
    assert [row["fits"] for row in table] == [True] * 4 + [None] * 2


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(BATCHES)
    (tmp_path / "s").mkdir()
    module._runner.cache_clear()  # noqa: SLF001  # only a new process has none
    return tmp_path


def sweep(batches: Path, *options: str) -> tuple[int, list[str], str]:
    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--out", "s", *options, folder=batches, status=None)
    return done.returncode, counted(done.stdout), done.stderr


def test_points_whose_files_cannot_be_read_are_tried_again(batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel table cannot be read while the first of three batches is costed: 2 of 6 points are missing then."""
    asked = 0

    def unreadable(server: Server) -> ServerCosts:
        nonlocal asked
        asked += 1
        if asked <= 2:
            raise ProfileError("a.kernels.csv: cannot be read: no such file or directory") from FileNotFoundError()
        return ServerCosts(server)

    monkeypatch.setattr(compute, "ServerCosts", unreadable)
    code, counts, error = sweep(batches)
    assert (code, counts) == (1, ["4", "0", "2"])
    assert "2 points are missing: a.kernels.csv: cannot be read" in error
    assert sweep(batches)[:2] == (0, ["6", "0", "0"])


def test_an_unreadable_profile_leaves_its_points_missing(batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once for the file and then for the points of its axis, at which it cannot be read."""
    (batches / "s.yaml").write_text(BATCHES.replace("workload.batch_size: [1, 2, 3]", "hardware: [titan_xp]"))

    def unreadable(path: Path) -> Server:
        raise ProfileError(f"{path.name}: cannot be read: input/output error") from OSError()

    with monkeypatch.context() as patch:
        patch.setattr("vdnnsim.study.points.resolve.checked_profile", unreadable)
        code, counts, error = sweep(batches)
    assert (code, counts) == (1, ["0", "0", "2"])
    assert "2 points are missing: titan_xp.yaml: cannot be read: input/output error" in error
    assert sweep(batches)[:2] == (0, ["2", "0", "0"])


def test_points_that_failed_are_computed_anew_where_asked(batches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_server: Server) -> ServerCosts:
        raise ProfileError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(compute, "ServerCosts", wrong)
        assert sweep(batches)[:2] == (1, ["0", "6", "0"])
    code, counts, error = sweep(batches)
    assert (code, counts) == (1, ["0", "6", "0"])
    assert "6 points failed, the first: a bug" in error
    assert sweep(batches, "--retry-failed")[:2] == (0, ["6", "0", "0"])


def test_a_sweep_into_the_folder_of_a_run_is_refused(batches: Path) -> None:
    """Both would be called results.csv; before anything is computed, and the other way round as well."""
    (batches / "small.yaml").write_text(SMALL)
    vdnnsim("run", "small.yaml", "--out", "s", folder=batches)
    before = {path.name: path.read_bytes() for path in (batches / "s").iterdir()}
    code, _, error = sweep(batches)
    assert code == 1
    assert "s/results.csv: was not written by an earlier sweep" in error
    assert {path.name: path.read_bytes() for path in (batches / "s").iterdir()} == before

    done = vdnnsim("sweep", "s.yaml", "--workers", "1", "--out", "t", folder=batches)
    done = vdnnsim("run", "small.yaml", "--out", "t", folder=batches, status=1)
    assert "t/run.json: was not written by an earlier run" in done.stderr


def test_the_table_of_a_sweep_goes_through_links_and_over_its_own(batches: Path) -> None:
    """`--csv` leads to a file elsewhere, whose link stays one; a second sweep writes over the results of the first."""
    (batches / "elsewhere.csv").write_text("old")
    (batches / "link.csv").symlink_to("elsewhere.csv")
    for _ in range(2):
        assert sweep(batches, "--csv", "link.csv")[0] == 0
    assert (batches / "link.csv").is_symlink()
    assert len(csv_rows(batches / "elsewhere.csv")) == 6
