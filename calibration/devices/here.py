"""What PyTorch finds on this machine."""

from collections.abc import Iterator

import torch

from calibration.devices.opening import cuda_devices
from calibration.devices.provenance import cudnn_version
from vdnnsim.errors import DeviceError
from vdnnsim.units import format_bytes


def found_by_torch() -> Iterator[tuple[str, str]]:
    """Yield (name, text) of its build, its cuDNN and each GPU that it can use."""
    yield "torch", f"{torch.__version__}, built {_built_for()}"
    if (cudnn := cudnn_version()) is not None:
        yield "cuDNN", cudnn
    for index in range(0 if lacking_gpu() else cuda_devices()):
        gpu = torch.cuda.get_device_properties(index)
        yield f"GPU {index}", f"{gpu.name}, {format_bytes(gpu.total_memory)}, capability {gpu.major}.{gpu.minor}"


def lacking_gpu() -> str:
    """Return why no GPU can be used; empty where one can."""
    try:
        cuda_devices()
    except DeviceError as refusal:
        return str(refusal)
    return ""


def _built_for() -> str:
    return "without CUDA" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
