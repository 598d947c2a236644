"""Captures of some models in plain PyTorch, compared to independent instruments."""

import pytest
import torch

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice
from reports.capture.case import Case
from reports.capture.instruments import measure
from reports.capture.own_cases import cases
from reports.capture.page import PEAK_TOLERANCE

SMALL = {
    "MLP, adam",
    "two inputs, three losses",
    "attention, dropout",
    "GPT, checkpointed, every second",
    "U-Net",
}

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN", "ignore:enable_nested_tensor")


@pytest.mark.parametrize("case", [each for each in cases() if each.name in SMALL], ids=lambda case: case.name)
def test_a_capture_says_what_a_real_run_takes(case: Case) -> None:
    with torch.backends.mkldnn.flags(enabled=case.onednn):
        measured = measure(case.program)
        step = capture(case.program, CaptureDevice(compute_capability=None))

    assert step.saved_bytes == measured.hooked_saved_bytes == measured.walked_saved_bytes
    assert step.peak_live_bytes == pytest.approx(measured.peak_bytes, rel=PEAK_TOLERANCE)
