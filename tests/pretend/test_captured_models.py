"""Models that are captured as on a GPU, beside the same on a pretended GPU: bytes saved, peaks, operators."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.request_capture import compare
from tests.calibration.capture.programs import PROGRAMS, program
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

pytestmark = pytest.mark.pretend


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


def embedded() -> torch.Tensor:
    return torch.randn(2, 24, 32)


SHARED = {name: each for name, each in PROGRAMS.items() if not name.startswith("language")}
"""All but the one that looks into a mask, whose values nobody computes on a pretended GPU."""

MODELS: dict[str, Program] = {
    **SHARED,
    **{
        f"encoder, {optimizer}, {precision.value}": program(encoder, embedded, optimizer=optimizer, precision=precision)
        for optimizer, precision in (
            ("sgd", Precision.FLOAT32),
            ("momentum", Precision.AMP_BFLOAT16),
            ("adam", Precision.AMP_FLOAT16),
            ("adamw_fused", Precision.FLOAT32),
            ("rmsprop", Precision.BFLOAT16),
            ("adagrad", Precision.FLOAT32),
        )
    },
    "encoder, inference": program(encoder, embedded, optimizer="none", mode=Mode.INFERENCE),
}


# Layers are copied, and PyTorch's fakes warn when they are.
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("name", MODELS)
def test_capture_from_fakes_equals_capture_on_the_pretended_gpu(name: str) -> None:
    found = capture(MODELS[name], CaptureDevice(compute_capability=torch.cuda.get_device_capability()))
    # They make labels without saying where; RAdam reads its steps, which must be on the host.
    with torch.device("cuda") if name in SHARED and MODELS[name].optimizer != "radam" else nullcontext():
        expected = capture(MODELS[name], CaptureDevice(real=True, device_type="cuda"))
    difference = compare(found, expected)
    assert difference.is_equal, difference
