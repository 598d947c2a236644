"""Provenance of a measurement: hardware and software, and nothing that identifies an owner.

Names follow a profile's section `provenance`. What is unknown is left out.
"""

import ctypes
import os
import platform
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import torch

from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import Device
from calibration.devices.opening import cuda_devices, query_gpu, smi_name
from vdnnsim.errors import DeviceError
from vdnnsim.hardware.server import PRETENDED
from vdnnsim.units import format_bytes

_PROCESSORS = Path("/proc/cpuinfo")
_PRETENDED: Final = "by vdnnsim: no kernel computes, and all takes the time that a profile or a data sheet says"


def provenance(device: Device) -> tuple[tuple[str, str], ...]:
    """Return (name, text) pairs; after a measurement, so that the clocks are those under load."""
    of_device = _of_cpu(device) if isinstance(device, CpuDevice) else _of_gpu(device)
    return (
        *([(PRETENDED, _PRETENDED)] if is_pretended(device) else []),
        *of_device,
        ("torch", str(torch.__version__)),
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("date", datetime.now(UTC).date().isoformat()),
    )


def is_pretended(device: Device) -> bool:
    """Return whether a device is a GPU of `vdnnsim pretend`, whose runtime is then loaded into this process."""
    return device.torch_device.type == "cuda" and hasattr(ctypes.CDLL(None), "pretend_clock_ns")


def _of_gpu(device: Device) -> Iterator[tuple[str, str]]:
    index = device.torch_device.index
    properties = torch.cuda.get_device_properties(index)
    yield "gpu", properties.name
    yield "compute_capability", f"{properties.major}.{properties.minor}"
    fields = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem")
    seen = ("pcie.link.gen.current", "pcie.link.width.current")
    most = ("pcie.link.gen.max", "pcie.link.width.max")
    known = query_gpu([*fields, *seen, *most], smi_name(index))
    if "driver_version" in known:
        yield "driver", known["driver_version"]
    for name, field in (("sm_clock", "sm"), ("memory_clock", "mem")):
        if f"clocks.{field}" in known and f"clocks.max.{field}" in known:
            yield name, f"{known[f'clocks.{field}']} seen, at most {known[f'clocks.max.{field}']}"
    if all(field in known for field in seen):
        at_most = f", at most {_link(known, most)}" if all(field in known for field in most) else ""
        yield "pcie", f"{_link(known, seen)} seen{at_most}"
    if torch.version.cuda is not None:
        yield "cuda", torch.version.cuda
    if (cudnn := cudnn_version()) is not None:
        yield "cudnn", cudnn
    yield "processor", _processor()


def cudnn_version() -> str | None:
    """Return the version of cuDNN that PyTorch loads; None where it was built without."""
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    # 91900 is 9.19.0 (cudnn_version.h).
    return None if cudnn is None else f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"


def _link(known: Mapping[str, str], fields: tuple[str, str]) -> str:
    generation, width = (known[field] for field in fields)
    return f"generation {generation} x{width}"


def _of_cpu(device: CpuDevice) -> Iterator[tuple[str, str]]:
    yield "processor", _processor()
    yield "cores", str(len(os.sched_getaffinity(0)))
    yield "compute_threads", str(device.compute_threads)
    # oneDNN under its old name.
    library = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    if library is not None:
        yield "onednn", library.group(1)


def _processor() -> str:
    """Return the model of the processor; its architecture where Linux does not state it (it does on x86)."""
    try:
        text = _PROCESSORS.read_text(encoding="utf-8")
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return platform.machine() if model is None else model.group(1).strip()


def torch_report() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of PyTorch's build, its cuDNN and each GPU that it can use."""
    built = "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
    yield "torch", f"{torch.__version__}, built {built}"
    if (cudnn := cudnn_version()) is not None:
        yield "cuDNN", cudnn
    for index in range(0 if missing_gpu_reason() else cuda_devices()):
        gpu = torch.cuda.get_device_properties(index)
        yield f"GPU {index}", f"{gpu.name}, {format_bytes(gpu.total_memory)}, capability {gpu.major}.{gpu.minor}"


def missing_gpu_reason() -> str:
    """Return why no GPU can be used; empty where one can."""
    try:
        cuda_devices()
    except DeviceError as refusal:
        return str(refusal)
    return ""
