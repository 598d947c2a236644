"""`vdnnsim calibrate` on the CPU, from its options to a profile that a scenario can name."""

from pathlib import Path

import pytest

from calibration.measure.journal import Journal
from calibration.measure.timing import Extent, TimeBox, WarmUp
from tests.command_line import csv_rows, vdnnsim
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.hardware.profile import read_profile
from vdnnsim.units import MIB

QUICK = Extent(
    largest_copy=MIB,
    largest_pin=MIB,
    product_side=64,
    stream_bytes=MIB,
    copies=TimeBox(budget_s=0.005, most=20),
    kernels_s=0.5,
    window_s=0.005,
    warm_up=WarmUp(shortest_s=0.005, longest_s=0.005),
)
"""What `extent_of` gives a CPU takes 20 s."""

SCENARIO = """
schema_version: 1
workload: {network: minimal, batch_size: 4, element_type: float32}
hardware: cpu
policies: [base(p), vdnn_all(m)]
"""


def minimal() -> LayerGraph:
    net = GraphBuilder("minimal", MapShape(3, 16, 16))
    y = net.conv("conv", 0, 8, 3, padding=1)
    y = net.pool("pool", y, 2, stride=2)
    return net.build(net.fc("fc", y, 10, relu=False))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, a very small network, and a short extent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(NETWORKS, "minimal", minimal)
    monkeypatch.setattr("calibration.measure.timing.CPU_EXTENT", QUICK)
    return tmp_path


CALIBRATE = ("calibrate", "--device", "cpu", "--network", "minimal", "--batch-size", "2")


def test_a_profile_that_can_be_used_at_once(folder: Path) -> None:
    done = vdnnsim(*CALIBRATE, "--csv", "table.csv")
    profiles = folder / "hw_profiles"
    assert sorted(path.name for path in profiles.iterdir()) == ["cpu.copies.csv", "cpu.kernels.csv", "cpu.yaml"]
    assert "scenarios name it as `hardware: cpu`" in done.stderr
    assert "link.h2d" in done.stdout
    assert {row["what"] for row in csv_rows(folder / "table.csv")} >= {"gpu.memory", "host.issue", "kernels"}

    server = read_profile(profiles / "cpu.yaml")
    assert server.kernels is not None
    assert server.kernels.table == profiles / "cpu.kernels.csv"
    assert dict(server.provenance)["torch"]
    assert server.link.copies is not None
    assert server.link.copies.table == profiles / "cpu.copies.csv"
    checked = vdnnsim("check", "hw_profiles/cpu.yaml")
    assert "a hardware profile: CPU" in checked.stdout
    assert "; copies of " in checked.stdout

    (folder / "s.yaml").write_text(SCENARIO)
    run = vdnnsim("run", "s.yaml")
    assert "vdnn_all(m)" in run.stdout


def test_every_kernel_of_the_network_has_its_rows(folder: Path) -> None:
    """Of CONV three phases but no backward data, for it is first; two algorithms each. The rest has one.

    ReLU, POOL and loss have forward and backward data, FC all three: 2 x 2 + 3 x 2 + 3 rows.
    """
    vdnnsim(*CALIBRATE)

    rows = csv_rows(folder / "hw_profiles" / "cpu.kernels.csv")
    assert len(rows) == 13
    assert {row["algorithm"] for row in rows if row["operator"].startswith("conv")} == {"pytorch", "explicit_gemm"}
    assert {row["batch_size"] for row in rows} == {"2"}
    assert all(row["time_s"] or row["note"].startswith("spread of") for row in rows)
    copies = csv_rows(folder / "hw_profiles" / "cpu.copies.csv")
    alone = [(row["direction"], row["host_memory"], int(row["copied_bytes"])) for row in copies if not row["beside"]]
    sizes = [4096, 16384, 65536, 262144, 1048576]
    assert alone == [
        (way, memory, size) for way in ("h2d", "d2h") for memory in ("pinned", "pageable") for size in sizes
    ]


def test_an_interrupt_keeps_what_was_measured_and_can_be_resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Journal.keep

    def interrupted(journal: Journal, key: str, value: object) -> None:
        keep(journal, key, value)
        if len(journal) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "keep", interrupted)
        first = vdnnsim(*CALIBRATE, status=1)
    assert "5 measurements are kept in hw_profiles/cpu.partial.jsonl" in first.stderr
    assert "Traceback" not in first.stderr

    second = vdnnsim(*CALIBRATE)

    assert "5 measurements of an earlier run" in second.stderr
    assert not (folder / "hw_profiles" / "cpu.partial.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "alexnt"], "'alexnt' is not a network"),
        (["--batch-size", "0"], "--batch-size: found 0"),
        (["--gpu", "0"], "the CPU has no GPU 0"),
        (["--tf32"], "--tf32: the CPU"),
        (["--element-type", "float23"], "--element-type: 'float23' is not"),
        # It is how products of float32 are computed: --tf32.
        (["--element-type", "tf32"], "--element-type: 'tf32' is not"),
        (["--out", "cpu.yml"], "cpu.yml: expected"),
        (["--out", "my cpu.yaml"], "my cpu.yaml: expected"),
        (["--out", ""], "--out: found ''"),
        (["--out", "file/cpu.yaml"], "file: cannot be written"),
        (["--out", "/proc/cpu.yaml"], "/proc: cannot be written"),
        (["--csv", "file/table.csv"], "file/table.csv: cannot be written"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setattr("calibration.measure.calibrate.measure_rates", lambda *_: pytest.fail("measures"))
    done = vdnnsim("calibrate", "--device", "cpu", *arguments, status=1)
    assert done.stderr.startswith(f"vdnnsim: {message}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["file"]


def test_missing_pytorch_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    done = vdnnsim("calibrate", "--device", "cpu", status=1)
    assert "pip install 'vdnnsim[calibrate]'" in done.stderr
