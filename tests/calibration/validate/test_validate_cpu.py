"""The commands `calibrate` and `validate` on the CPU, from nothing to a report and its exit status."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import pytest

from tests.calibration.measure.test_calibrate_cpu import CALIBRATE, QUICK, minimal
from tests.command_line import csv_rows, vdnnsim
from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.validation.method import PACED_CPU, Method, Task

POLICIES = ("base(p)", "vdnn_all(m)", "vdnn_dyn", "page_migration(p)")
VALIDATE = ("validate", "--device", "cpu")


def policies(*names: str) -> tuple[Policy, ...]:
    return tuple(resolve_policy(name, known_policies()) for name in names)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder with the profile of this CPU, calibrated under a very small network at batch 2."""
    path = tmp_path_factory.mktemp("validation")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.setitem(NETWORKS, "minimal", minimal)
        patch.setattr("calibration.measure.timing.CPU_EXTENT", QUICK)
        vdnnsim(*CALIBRATE)
        yield path


def shorten(monkeypatch: pytest.MonkeyPatch, method: Method, *names: str) -> None:
    monkeypatch.setattr("vdnnsim.validation.method.PACED_CPU", method)
    monkeypatch.setattr("vdnnsim.validation.method.every_policy", lambda _types: policies(*names))


def test_calibrate_then_validate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order and memory are exact and times within 5 % in every row, at the calibrated batch of 2 and at one of 3.

    In 80 % of what base(p) asks for base(p) does not fit. The executor refuses page_migration by name. The profile says
    that it was measured with another PyTorch.
    """
    profile = copytree(folder / "hw_profiles", folder / "other") / "cpu.yaml"
    text = profile.read_text(encoding="utf-8")
    assert text.count("\n  torch: ") == 1
    profile.write_text(text.replace("\n  torch: ", '\n  torch: "0.1"  # '), encoding="utf-8")
    tasks = Task("minimal", 2), Task("minimal", 2, memory_share=0.8), Task("minimal", 3)
    shorten(monkeypatch, replace(PACED_CPU, tasks=tasks), *POLICIES)
    done = vdnnsim(*VALIDATE, "--profile", str(profile), "--csv", "table.csv")
    assert "warning: torch: 0.1 in the profile cpu" in done.stderr
    assert "minimal (2), memory 80 %" in done.stdout
    report = folder / "reports" / "validation" / "cpu"
    assert {path.name for path in report.iterdir()} == {
        *("README.md", "validation.csv", "run.json", "iteration_time.png", "timelines.png", "memory.png")
    }
    assert (report / "validation.csv").read_bytes() == (folder / "table.csv").read_bytes()
    rows = {(row["batch_size"], row["memory_share"], row["policy"]): row for row in csv_rows(report / "validation.csv")}
    assert rows["2", "0.8", "base(p)"]["outcome"] == "does not fit"
    assert rows["2", "", "page_migration(p)"]["outcome"] == "refused"
    ran = [row for row in rows.values() if row["outcome"] == "ran"]
    assert len(ran) == 8
    for row in ran:
        assert (row["order"], row["requested_error"]) == ("kept", "0.0")
        assert abs(float(row["iteration_error"])) <= 0.05
        assert row["measured_offloaded_bytes"] == row["simulated_offloaded_bytes"]
        assert float(row["raw_measured_iteration_s"]) > 0
    assert int(rows["2", "", "vdnn_all(m)"]["measured_offloaded_bytes"]) > 0
    assert rows["3", "", "base(p)"]["calibrated"] == "false"
    assert rows["2", "", "vdnn_dyn"]["decision"] == "same: none(p)"
    manifest = json.loads((report / "run.json").read_text(encoding="utf-8"))
    assert {each["name"] for each in manifest["inputs"]} >= {"cpu.kernels.csv"}
    assert all(each["holds"] for each in manifest["requirements"])


def test_times_beyond_the_tolerance_are_exit_status_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are paced at a thousandth of their time, so the device is late."""
    assert PACED_CPU.pacing is not None
    hurried = replace(PACED_CPU.pacing, kernel_factor=1e-3, least_kernel_s=0.0, copy_latency_s=0.0, stretches=(1.0,))
    shorten(monkeypatch, replace(PACED_CPU, tasks=(Task("minimal", 2),), pacing=hurried), "base(p)")
    done = vdnnsim(*VALIDATE, "--out", "late", status=3)
    assert "FAILS: iteration time" in done.stderr
    assert "**Does not hold: iteration time" in Path("late/README.md").read_text(encoding="utf-8")


def test_what_was_too_noisy_to_time_is_predicted_and_executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile in which no convolution has a time: its algorithms are still those of the device."""
    profile = copytree(folder / "hw_profiles", folder / "noisy") / "cpu.yaml"
    table = profile.with_name("cpu.kernels.csv")
    rows = csv_rows(table)
    untimed = {"time_s": "", "note": "spread of 30 % of the median"}
    rows = [{**row, **untimed} if row["operator"].startswith("conv") else row for row in rows]
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    shorten(monkeypatch, replace(PACED_CPU, tasks=(Task("minimal", 2), Task("minimal", 3))), "base(p)")
    vdnnsim(*VALIDATE, "--profile", str(profile), "--csv", "noisy.csv")
    assert [row["outcome"] for row in csv_rows(Path("noisy.csv"))] == ["ran", "ran"]


def test_missing_profile_suggests_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = vdnnsim(*VALIDATE, status=1)
    assert "hw_profiles/cpu.yaml: not found; `vdnnsim calibrate --device cpu`" in done.stderr


@pytest.mark.parametrize("option", ["--out", "--csv"])
def test_where_nothing_can_be_written_nothing_is_measured(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that names no network would be refused as soon as it began."""
    shorten(monkeypatch, replace(PACED_CPU, tasks=(Task("no such network", 1),)), "base(p)")
    Path("taken").touch()
    done = vdnnsim(*VALIDATE, option, "taken/table.csv", status=1)
    assert "cannot be written: Not a directory" in done.stderr
