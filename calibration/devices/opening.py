"""Opening of a device by name, errors of devices in one line, and queries of nvidia-smi."""

import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

import torch

from calibration.devices.cpu import CpuDevice
from calibration.devices.cuda import CudaDevice
from calibration.devices.interface import Device
from vdnnsim.errors import DeviceError
from vdnnsim.units import format_bytes

# Twice the context of this process, all that it has on a GPU beyond PyTorch's segments.
_CONTEXT_BYTES = 1 << 30
_PATIENCE_S = 20.0
"""For an answer of nvidia-smi."""

_OF_GPU: Final = (torch.AcceleratorError, torch.OutOfMemoryError)
_OF_LIBRARIES: Final = ("CUDA error: ", "CUDA driver error: ", "cuDNN error: ", "cuDNN Frontend error: ")
"""What PyTorch's plain RuntimeErrors begin with when cuBLAS, the driver's own functions or cuDNN fail
(aten/src/ATen/cuda/Exceptions.h, aten/src/ATen/cudnn/Exceptions.h, c10/cuda/driver_api.h)."""


def open_device(
    kind: Literal["cuda", "cpu"],
    gpu: int | None = None,
    *,
    warn: Callable[[str], None],
    memory_limit_bytes: int | None = None,
) -> Device:
    """Return a device, as CUDA counts GPUs the first by default; its own settings, as clocks, are not changed.

    `warn` is called with one line on what may disturb a measurement; the limit is less memory than the device has.

    Raises:
        DeviceError: there is no such device; the message names those that there are.
    """
    if kind == "cpu":
        if gpu is not None:
            raise DeviceError(f"the CPU has no GPU {gpu}; expected one of --gpu and --device cpu")
        return CpuDevice(memory_limit_bytes)
    index = 0 if gpu is None else gpu
    count = cuda_devices()
    if not 0 <= index < count:
        present = "GPU 0 is the only one" if count == 1 else f"there are GPUs 0 to {count - 1}"
        raise DeviceError(f"there is no GPU {index}: {present} that CUDA shows")
    others = _others_on(index)
    if others is not None:
        warn(others)
    return CudaDevice(index, memory_limit_bytes, is_shared=others is not None)


@contextmanager
def device_errors() -> Iterator[None]:
    """Raise errors of a GPU that is broken, taken by another process, or full as a DeviceError of one line."""
    try:
        yield
    except RuntimeError as failure:
        first_line = str(failure).partition("\n")[0]
        if not isinstance(failure, _OF_GPU) and not first_line.startswith(_OF_LIBRARIES):
            raise
        raise DeviceError(f"the GPU failed: {first_line}") from failure


def smi_name(index: int) -> str:
    """Return nvidia-smi's name of a GPU of CUDA, whose numbers differ where some are hidden."""
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def cuda_devices() -> int:
    """Return how many there are, or raise DeviceError where none."""
    with warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    if count > 0:
        return count
    version = f"PyTorch {torch.__version__}"
    build = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
    driver = query_gpu(["driver_version"]).get("driver_version")
    found = f"{version} is built {build}, " + (
        "nvidia-smi finds no driver" if driver is None else f"nvidia-smi finds driver {driver}"
    )
    # PyTorch's warning gives the reason, with the place in its source at the end.
    why = "".join(f"; {str(reason.message).partition(' (Triggered')[0]}" for reason in reasons[:1])
    raise DeviceError(f"there is no CUDA device: {found}{why}".replace("\n", " "))


def _others_on(index: int) -> str | None:
    name = smi_name(index)
    processes = {pid: memory for pid, memory in query_processes(name).items() if pid != os.getpid()}
    if processes:
        uses = ", ".join(f"process {pid} ({memory})" for pid, memory in sorted(processes.items()))
        return f"GPU {index} is also used by {uses}; times and free memory may suffer"
    # Inside a container no process is listed, but its memory is in use.
    free_bytes, total_bytes = torch.cuda.mem_get_info(index)
    used_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved(index)
    if used_bytes > _CONTEXT_BYTES:
        return f"others use {format_bytes(used_bytes)} of GPU {index}; times and free memory may suffer"
    return None


def query_gpu(fields: Sequence[str], gpu: str | None = None) -> dict[str, str]:
    """Return the known values of fields (`nvidia-smi --help-query-gpu`) of a GPU, by default the first."""
    lines = _ask(f"--query-gpu={','.join(fields)}", gpu)
    texts = [text.strip() for text in lines[0].split(",")] if lines else []
    if len(texts) != len(fields):
        return {}
    # Unknown values are [N/A] or [Not Supported].
    return {field: text for field, text in zip(fields, texts, strict=True) if text and not text.startswith("[")}


def query_processes(gpu: str) -> dict[int, str]:
    """Return the memory of each process that computes on a GPU, as text with its unit, by the process's number.

    Inside a container the numbers may be those of the machine outside, and there may be none at all.
    """
    pairs = [line.split(",") for line in _ask("--query-compute-apps=pid,used_gpu_memory", gpu)]
    return {int(pair[0]): pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].strip().isdecimal()}


def _ask(query: str, gpu: str | None) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader", *([] if gpu is None else [f"--id={gpu}"])]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603  # no part of it is a user's
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in answer.stdout.splitlines() if line.strip()]
