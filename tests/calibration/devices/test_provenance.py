import ctypes
import os
import platform
import re
import socket
import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
import torch

from calibration.devices import provenance as module
from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import Device
from calibration.devices.provenance import provenance
from vdnnsim.hardware.sections import what_identifies

Smi = Callable[[Mapping[str, str]], Path]
UUID = "12345678-9abc-def0-1234-56789abcdef0"
ANSWER = "580.65.06, 1755 MHz, 1980 MHz, 3201 MHz, 3201 MHz, 5, 16, 5, 16"
QUERY = (
    "--query-gpu=driver_version,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,"
    "pcie.link.gen.current,pcie.link.width.current,pcie.link.gen.max,pcie.link.width.max"
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Device:
    properties = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, uuid=UUID)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    return cast("Device", types.SimpleNamespace(torch_device=torch.device("cuda", 0)))


def test_provenance_names_a_pretended_gpu(gpu: Device, nvidia_smi: Smi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runtime is loaded into the process, and has a function that no driver has; it identifies nobody."""
    nvidia_smi({QUERY: ANSWER})
    loaded = types.SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: loaded)
    assert "pretended" not in dict(provenance(gpu))
    loaded.pretend_clock_ns = None
    name, text = provenance(gpu)[0]
    assert name == "pretended"
    assert what_identifies(name, text) is None


def days() -> set[str]:
    return {datetime.now(UTC).date().isoformat()}


def test_provenance_of_a_cpu() -> None:
    device, earlier = CpuDevice(), days()
    found = dict(provenance(device))
    device.close()
    assert found["torch"] == torch.__version__
    assert found["python"] == platform.python_version()
    assert found["cores"] == str(len(os.sched_getaffinity(0)))
    assert found["compute_threads"] == str(device.compute_threads)
    assert found["date"] in earlier | days()
    assert found["processor"]
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", found["onednn"])


def test_provenance_of_a_gpu_has_driver_clocks_and_link(gpu: Device, nvidia_smi: Smi) -> None:
    nvidia_smi({QUERY: ANSWER})
    assert (
        dict(provenance(gpu)).items()
        >= {
            "gpu": "NVIDIA H200",
            "compute_capability": "9.0",
            "driver": "580.65.06",
            "sm_clock": "1755 MHz seen, at most 1980 MHz",
            "memory_clock": "3201 MHz seen, at most 3201 MHz",
            "pcie": "generation 5 x16 seen, at most generation 5 x16",
            "cuda": "13.0",
            "cudnn": "9.19.0",
        }.items()
    )
    # It identifies no owner.
    nvidia_smi({QUERY: ANSWER})
    cpu = CpuDevice()
    found = [*provenance(cpu), *provenance(gpu)]
    cpu.close()
    assert all(re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name) for name, _ in found)
    assert [(name, text) for name, text in found if what_identifies(name, text)] == []
    everything = "\n".join(text for _, text in found)
    assert UUID not in everything
    assert socket.gethostname() not in everything


def test_fields_unknown_to_nvidia_smi_are_left_out(gpu: Device, nvidia_smi: Smi) -> None:
    """A virtual machine knows its own end of the link alone."""
    nvidia_smi({QUERY: "580.65.06, 1755 MHz, [N/A], 3201 MHz, 3201 MHz, [N/A], 16, 5, 16"})
    found = dict(provenance(gpu))
    assert "memory_clock" in found
    assert not {"sm_clock", "pcie"} & found.keys()
    nvidia_smi({QUERY: "580.65.06, 1755 MHz, 1980 MHz, 3201 MHz, 3201 MHz, 4, 16, [N/A], 16"})
    assert dict(provenance(gpu))["pcie"] == "generation 4 x16 seen"


def test_without_nvidia_smi_pytorchs_fields_remain(
    gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = dict(provenance(gpu))
    assert (found["gpu"], found["cuda"]) == ("NVIDIA H200", "13.0")
    assert not {"driver", "sm_clock", "memory_clock", "pcie"} & found.keys()


@pytest.mark.parametrize(
    ("content", "model"),
    [
        ("processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nflags\t\t: fpu\n", "Some CPU @ 2.00GHz"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", platform.machine()),
        (None, platform.machine()),
    ],
)
def test_the_processor_is_named_by_its_model_or_its_architecture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, model: str
) -> None:
    file = tmp_path / "cpuinfo"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    monkeypatch.setattr(module, "_PROCESSORS", file)
    device = CpuDevice()
    assert dict(provenance(device))["processor"] == model
    device.close()
