"""What all tests of calibrate share."""

import types
from collections.abc import Iterator

import pytest
import torch

from tests.calibration.measure.fake_device import FakeGpu


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: what is computed here is tiny, and threads that wait for a busy core take long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Return a GPU of four multiprocessors that PyTorch's sleep keeps busy."""
    gpu = FakeGpu()
    monkeypatch.setattr("torch._C._cuda_sleep", gpu.sleep, raising=False)
    properties = types.SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return gpu
