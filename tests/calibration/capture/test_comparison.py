import pytest
import torch
from torch import nn

from calibration.capture.capture import CaptureDevice, capture
from calibration.capture.request import Request
from calibration.capture.sources import compare
from tests.calibration.capture.programs import program
from vdnnsim.errors import CaptureError


def test_captures_of_a_gpu_and_of_the_cpu_differ_by_the_mask_of_dropout() -> None:
    """4 x 10 elements: a mask of a byte each on a GPU, of four bytes on the CPU, and a number less of operations."""
    dropping = program(lambda: nn.Sequential(nn.Linear(10, 10), nn.Dropout(0.5)), lambda: torch.randn(4, 10))
    as_gpu, as_cpu = (capture(dropping, CaptureDevice(compute_capability=each)) for each in ((8, 9), None))
    found = compare(as_gpu, as_cpu)
    assert found.saved_bytes == (40, 160)
    assert found.operators["aten.native_dropout.default"] == (1, 0)
    assert not found.is_equal
    assert compare(as_gpu, as_gpu).is_equal


def test_a_model_runs_in_one_place() -> None:
    with pytest.raises(CaptureError, match="--real and --pretend: found both"):
        Request(model="torchvision:resnet50", batch_size=1, real=True, pretended="rtx_4090").check()
