import pytest

from calibration.devices.cpu import CpuDevice
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import Bench


@pytest.fixture(scope="session")
def library() -> PyTorchLibrary:
    """One for all, for it measures the workspace of each shape once."""
    return PyTorchLibrary("cpu")


@pytest.fixture
def bench(device: CpuDevice, library: PyTorchLibrary) -> Bench:
    return Bench.of(device, library)
