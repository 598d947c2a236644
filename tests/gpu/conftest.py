"""A GPU as the executor's tests take it, real or pretended; what only a real one can show is skipped on the other."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.devices.cuda import CudaDevice
from calibration.kernels.cudnn_library import library_for
from calibration.kernels.port import KernelLibrary
from calibration.pretend.arithmetic import arithmetic_of_the_host, is_pretended
from tests.calibration.executor.bench import Bench
from tests.pretended_gpu import tensors_shown_without_values

__all__ = ["tensors_shown_without_values"]


@pytest.fixture(autouse=True, scope="session")
def cuda() -> None:
    """Skip all of it where there is no GPU."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.fixture(autouse=True)
def as_hardware(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a pretended GPU, skip what asks for a real one, and let the host compute what a test reads."""
    if not is_pretended():
        yield
        return
    hardware = request.node.get_closest_marker("hardware")
    if hardware is not None:
        pytest.skip(f"the GPU is pretended: {hardware.args[0]}")
    computes = request.node.get_closest_marker("arithmetic") is not None
    with arithmetic_of_the_host() if computes else nullcontext():
        yield


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    gpu = CudaDevice(0)
    with arithmetic(tf32=False):
        yield gpu
    gpu.close()


@pytest.fixture(scope="module")
def library() -> KernelLibrary:
    """One for all, for it looks for cuDNN's plans of each shape once."""
    return library_for(torch.device("cuda", 0), channels_last=False, tf32=False)


@pytest.fixture
def bench(device: CudaDevice, library: KernelLibrary) -> Bench:
    return Bench.of(device, library)
