from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from calibration.devices.opening import query_gpu, query_processes

Smi = Callable[[Mapping[str, str]], Path]


def test_fields_are_asked_of_one_gpu_and_what_it_does_not_know_is_left_out(nvidia_smi: Smi) -> None:
    calls = nvidia_smi({"--query-gpu=driver_version,clocks.sm,clocks.mem": "580.65.06, 1980 MHz, [N/A]"})
    found = query_gpu(["driver_version", "clocks.sm", "clocks.mem"], "GPU-1")
    assert found == {"driver_version": "580.65.06", "clocks.sm": "1980 MHz"}
    assert calls.read_text(encoding="utf-8").split()[1:] == ["--format=csv,noheader", "--id=GPU-1"]


def test_without_a_gpu_the_first_line_counts(nvidia_smi: Smi) -> None:
    calls = nvidia_smi({"--query-gpu=driver_version": "580.65.06\n580.65.06"})
    assert query_gpu(["driver_version"]) == {"driver_version": "580.65.06"}
    assert "--id" not in calls.read_text(encoding="utf-8")


def test_processes_are_told_with_their_memory(nvidia_smi: Smi) -> None:
    nvidia_smi({"--query-compute-apps=pid,used_gpu_memory": "4242, 1024 MiB\n17, [N/A]"})
    assert query_processes("GPU-1") == {4242: "1024 MiB", 17: "[N/A]"}


def test_no_process_is_no_line(nvidia_smi: Smi) -> None:
    nvidia_smi({"--query-compute-apps=pid,used_gpu_memory": ""})
    assert query_processes("GPU-1") == {}


def test_a_field_that_this_nvidia_smi_does_not_know_costs_the_others_too_but_no_error(nvidia_smi: Smi) -> None:
    nvidia_smi({"--query-gpu=driver_version": "580.65.06"})
    assert query_gpu(["driver_version", "no.such.field"]) == {}


@pytest.mark.parametrize("answer", ["", "580.65.06", "Unable to determine the device handle, GPU is lost, reboot"])
def test_an_answer_that_does_not_fit_the_question_is_none(nvidia_smi: Smi, answer: str) -> None:
    nvidia_smi({"--query-gpu=driver_version,clocks.sm": answer})
    assert query_gpu(["driver_version", "clocks.sm"]) == {}


def test_it_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_gpu(["driver_version"]) == {}
    assert query_processes("GPU-1") == {}
