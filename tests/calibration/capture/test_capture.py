from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from calibration.capture.capture import CaptureDevice, capture
from tests.calibration.capture.programs import PROGRAMS
from tests.calibration.capture.real_run import run_really
from vdnnsim.dnn.kernel_work import ConvolutionWork

# Of a recurrent layer of oneDNN nobody knows the workspace without running it.
pytestmark = [
    pytest.mark.usefixtures("without_onednn"),
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN"),
]
CPU = CaptureDevice(compute_capability=None)


@pytest.fixture(name="without_onednn")
def _without_onednn() -> Iterator[None]:
    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_bytes_are_those_of_a_real_run(name: str) -> None:
    """Which another instrument measures: storages that autograd saves, and storages alive after each operation."""
    step = capture(PROGRAMS[name], CPU)
    assert (step.saved_bytes, step.peak_live_bytes) == run_really(PROGRAMS[name])


@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions_work_in_the_memory_that_is_asked_for(*, channels_last: bool) -> None:
    """Forward and backward of every one, for what reads maps with their channels last writes such."""
    step = capture(replace(PROGRAMS["residual"], channels_last=channels_last), CPU)

    layouts = [each.work.channels_last for each in step.operations if isinstance(each.work, ConvolutionWork)]
    assert len(layouts) > 3
    assert set(layouts) == {channels_last}


@pytest.mark.parametrize("name", ["two linears, scaled", "residual, mixed", "custom"])
def test_real_tensors_are_recorded_as_fake_ones_are(name: str) -> None:
    fake, real = capture(PROGRAMS[name], CPU), capture(PROGRAMS[name], CaptureDevice(real=True))
    assert [each.name for each in fake.operations] == [each.name for each in real.operations]
    assert (fake.saved_bytes, fake.live_bytes) == (real.saved_bytes, real.live_bytes)
