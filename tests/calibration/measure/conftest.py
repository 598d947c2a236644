"""What all tests of calibrate share."""

import types

import pytest
import torch

from tests.calibration.measure.fake_device import FakeGpu


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Return a GPU of four multiprocessors that PyTorch's sleep keeps busy."""
    gpu = FakeGpu()
    monkeypatch.setattr("torch._C._cuda_sleep", gpu.sleep, raising=False)
    properties = types.SimpleNamespace(multi_processor_count=4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return gpu
