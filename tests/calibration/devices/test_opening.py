"""What opening a device says when it cannot, and of what it warns. PyTorch's own answers are replaced."""

import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from calibration.availability import require_torch
from calibration.devices import opening
from calibration.devices.cpu import CpuDevice
from calibration.devices.opening import device_errors, open_device, query_gpu, query_processes
from tests.refusals import refusal
from vdnnsim.errors import DeviceError

Smi = Callable[[Mapping[str, str]], Path]
ROOT = Path(__file__).parents[3]
PROCESSES = "--query-compute-apps=pid,used_gpu_memory"
GIB = 2**30
Opened = tuple[int, int | None, bool]


def unexpected(text: str) -> None:
    raise AssertionError(text)


def test_pytorch_is_asked_for_before_anything_imports_it() -> None:
    """A process in which `import torch` finds nothing can still import the module that says so."""
    script = "import sys, vdnnsim; sys.modules['torch'] = None; "
    asked = {"a real device": "vdnnsim.validate()", "capture": "vdnnsim.capture(print, 3)"}
    for what, call in asked.items():
        words = [sys.executable, "-c", script + call]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert f"DeviceError: {what} needs PyTorch, which is not installed" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import no_such_module_of_torch", "PyTorch cannot be imported, no_such_module_of_torch is missing"),
        ("raise OSError('libcudart.so: no such file\\nmore')", "cannot be imported: libcudart.so: no such file; "),
        ("raise ImportError('undefined symbol: x')", "cannot be imported: undefined symbol: x; "),
        ("__version__ = '2.4.1+cu121'", "PyTorch 2.4.1+cu121 found, expected 2.11 or later; "),
        ("__version__ = 'unknown'", "PyTorch unknown found, expected 2.11 or later; "),
    ],
)
def test_a_pytorch_that_is_broken_or_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    (tmp_path / "torch.py").write_text(body + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    assert message in refusal(DeviceError, require_torch)
    # The real one comes back when monkeypatch undoes its deletion.
    sys.modules.pop("torch", None)


@pytest.mark.parametrize(("of_user", "seen"), [(None, "ERROR"), ("INFO", "INFO")])
def test_pytorch_logs_errors_alone_by_default(monkeypatch: pytest.MonkeyPatch, of_user: str | None, seen: str) -> None:
    """Its C++ takes its level when it is loaded; what the user asked for holds."""
    script = (
        "import os, sys\n"
        "class Watcher:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'torch._C': print(os.environ['TORCH_CPP_LOG_LEVEL'])\n"
        "sys.meta_path.insert(0, Watcher())\n"
        "from vdnnsim.cli.devices import opened\n"
        "with opened('cpu', None): pass\n"
    )
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    if of_user is not None:
        monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", of_user)
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [seen]


def test_the_cpu_is_opened_with_its_limit_and_has_no_gpu() -> None:
    require_torch()
    device = open_device("cpu", warn=unexpected, memory_limit_bytes=4096)
    assert isinstance(device, CpuDevice)
    assert device.memory_bytes == 4096
    device.close()
    with pytest.raises(DeviceError, match="the CPU has no GPU 1"):
        open_device("cpu", 1, warn=unexpected)


def test_missing_cuda_names_build_and_missing_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        DeviceError, match=r"no CUDA device: PyTorch 2\.13\.0\+cpu .* without CUDA, nvidia-smi .* no driver"
    ):
        open_device("cuda", 0, warn=unexpected)


def test_missing_cuda_quotes_pytorch_and_names_the_driver(monkeypatch: pytest.MonkeyPatch, nvidia_smi: Smi) -> None:
    def too_old() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver on your system is too old. (Triggered internally at x.cpp:1.)",
            stacklevel=1,
        )
        return False

    nvidia_smi({"--query-gpu=driver_version": "470.82.01"})
    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(DeviceError, match=r"CUDA 13\.0, .* 470\.82\.01; CUDA init.*: The NVIDIA driver .* too old\.$"):
        open_device("cuda", warn=unexpected)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    """Two idle GPUs of 80 GiB, 3 reserved here; returns number, memory limit and sharing of each that is opened."""
    opened: list[Opened] = []

    def open_it(index: int, limit_bytes: int | None, *, is_shared: bool) -> None:
        opened.append((index, limit_bytes, is_shared))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: types.SimpleNamespace(uuid=f"0000-{index}", name="A")
    )
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (76 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 3 * GIB)
    monkeypatch.setattr(opening, "CudaDevice", open_it)
    return opened


@pytest.mark.parametrize(
    ("count", "number", "present"),
    [(2, 2, "there are GPUs 0 to 1"), (2, -1, "there are GPUs 0 to 1"), (1, 1, "GPU 0 is the only one")],
)
def test_missing_gpu_is_named(
    two_gpus: list[Opened], monkeypatch: pytest.MonkeyPatch, count: int, number: int, present: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(DeviceError, match=f"there is no GPU {number}: {present}"):
        open_device("cuda", number, warn=unexpected)
    assert two_gpus == []


def test_idle_gpu_is_opened_without_warning(two_gpus: list[Opened], nvidia_smi: Smi) -> None:
    """80 GiB less 76 free less 3 of this process leave 1 GiB, which its context may be. This process is no other."""
    nvidia_smi({PROCESSES: f"{os.getpid()}, 3584 MiB"})
    open_device("cuda", 1, warn=unexpected, memory_limit_bytes=GIB)
    open_device("cuda", warn=unexpected)
    assert two_gpus == [(1, GIB, False), (0, None, False)]


def test_other_processes_are_named_with_their_memory(two_gpus: list[Opened], nvidia_smi: Smi) -> None:
    calls = nvidia_smi({PROCESSES: f"4000000001, 1024 MiB\n{os.getpid()}, 512 MiB\n4000000002, 20 MiB"})
    said: list[str] = []
    open_device("cuda", 1, warn=said.append)
    both = "process 4000000001 (1024 MiB), process 4000000002 (20 MiB)"
    assert both in said[0]
    assert two_gpus == [(1, None, True)]
    assert "--id=GPU-0000-1" in calls.read_text(encoding="utf-8")


def test_memory_of_unlisted_processes_is_a_warning(
    two_gpus: list[Opened], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """80 GiB less 60 free less 3 of this process: 17 GiB."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (60 * GIB, 80 * GIB))
    said: list[str] = []
    open_device("cuda", 0, warn=said.append)
    assert "17.0 GiB of GPU 0" in said[0]
    assert two_gpus == [(0, None, True)]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (torch.AcceleratorError, "CUDA error: device busy"),
        (torch.OutOfMemoryError, "CUDA out of memory. Tried to allocate 2 GiB."),
        (RuntimeError, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        (RuntimeError, "CUDA driver error: unknown error"),
        (RuntimeError, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    ],
)
def test_failing_gpu_is_one_line(kind: type[RuntimeError], line: str) -> None:
    """CUDA's advice for developers is left out. PyTorch has no type of its own for what cuBLAS and cuDNN say."""
    with pytest.raises(DeviceError) as raised, device_errors():
        raise kind(f"{line}\nCompile with TORCH_USE_CUDA_DSA")
    assert str(raised.value) == f"the GPU failed: {line}"


@pytest.mark.parametrize("text", ["shapes differ", "not a CUDA error: a mistake of ours"])
def test_an_error_of_ours_shows_where_it_came_from(text: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{text}$"), device_errors():
        raise RuntimeError(text)


@pytest.mark.parametrize(("gpu", "chosen"), [("GPU-1", ["--id=GPU-1"]), (None, [])])
def test_fields_of_one_gpu_or_the_first_without_those_it_does_not_know(
    nvidia_smi: Smi, gpu: str | None, chosen: list[str]
) -> None:
    calls = nvidia_smi({"--query-gpu=driver_version,clocks.sm,clocks.mem": "580.65.06, 1980 MHz, [N/A]\n570, 1, 2"})
    found = query_gpu(["driver_version", "clocks.sm", "clocks.mem"], gpu)
    assert found == {"driver_version": "580.65.06", "clocks.sm": "1980 MHz"}
    assert calls.read_text(encoding="utf-8").split()[1:] == ["--format=csv,noheader", *chosen]


@pytest.mark.parametrize(
    ("answer", "found"), [("4242, 1024 MiB\n17, [N/A]", {4242: "1024 MiB", 17: "[N/A]"}), ("", {})]
)
def test_processes_have_their_memory(nvidia_smi: Smi, answer: str, found: dict[int, str]) -> None:
    nvidia_smi({PROCESSES: answer})
    assert query_processes("GPU-1") == found


@pytest.mark.parametrize("answer", ["", "580.65.06", "Unable to determine the device handle, GPU is lost, reboot"])
def test_an_answer_that_does_not_fit_the_question_is_none(nvidia_smi: Smi, answer: str) -> None:
    """Nor is there one of a field that this nvidia-smi does not know."""
    nvidia_smi({"--query-gpu=driver_version,clocks.sm": answer})
    assert query_gpu(["driver_version", "clocks.sm"]) == query_gpu(["driver_version", "no.such.field"]) == {}
