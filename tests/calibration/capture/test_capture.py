from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from calibration.capture.capture import capture, capture_batches
from calibration.capture.losses import AssumedLoss
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.request_capture import compare
from tests.calibration.capture.programs import PROGRAMS, numbers, program
from tests.calibration.capture.real_run import run_really
from vdnnsim.dnn.captured_accumulation import accumulating
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep, last_round
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase

# The workspace of oneDNN's recurrent layers is known only when they run.
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
    """By another instrument: storages that autograd saves, and storages alive after each operation."""
    step = capture(PROGRAMS[name], CPU)
    assert (step.saved_bytes, step.peak_live_bytes) == run_really(PROGRAMS[name])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_captured_together_are_as_captured_alone(name: str) -> None:
    """The second finds the model, the states and the labels of the first; its own labels are made before it begins."""

    def of(samples: int) -> Program:
        loss = AssumedLoss("model", PROGRAMS[name].accumulate)
        args, kwargs = PROGRAMS[name].make_inputs()
        inputs = lambda: (tuple(each[:samples] for each in args), kwargs)  # noqa: E731
        return replace(PROGRAMS[name], make_inputs=inputs, batch_size=samples, loss=loss, labels=loss.labels)

    together = tuple(capture_batches((of(4), of(2)), CPU))
    assert together == tuple(capture(of(samples), CPU) for samples in (4, 2))


ALONE = [name for name, each in PROGRAMS.items() if each.accumulate == 1 and not each.in_backward]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALONE)
def test_a_micro_batch_accumulates_as_autograd_does(name: str) -> None:
    """A capture of two micro-batches divides the loss and its gradient by 2, and holds a quotient of 4 B or less.

    The order in which gradients of one kernel are added is not compared.
    """
    last = last_round(capture(replace(PROGRAMS[name], accumulate=2), CPU))
    made = accumulating(capture(PROGRAMS[name], CPU), 2)
    check_captured_step(made, name)

    def operands(step: CapturedStep) -> list[tuple[tuple[str, ...], ...]]:
        runs = groupby(
            (
                (each.name, *(f"{one.kind.value} {one.nbytes} {one.given}" for one in step.storages_of(each.operands)))
                for each in step.operations
                if each.phase is not Phase.UPDATE and each.name != "aten.div.Tensor"
            ),
            key=itemgetter(0),
        )
        return [tuple(sorted(run)) for _, run in runs]

    assert operands(made) == operands(last)
    assert last.peak_live_bytes - made.peak_live_bytes in range(5)


@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions_have_the_memory_format_of_the_program(*, channels_last: bool) -> None:
    step = capture(replace(PROGRAMS["residual"], channels_last=channels_last), CPU)

    layouts = [each.work.channels_last for each in step.operations if isinstance(each.work, ConvolutionWork)]
    assert len(layouts) > 3
    assert set(layouts) == {channels_last}


@pytest.mark.parametrize("name", ["two linears, scaled", "residual, mixed", "custom"])
def test_real_tensors_are_recorded_as_fake_ones_are(name: str) -> None:
    fake, real = capture(PROGRAMS[name], CPU), capture(PROGRAMS[name], CaptureDevice(real=True))
    assert [each.name for each in fake.operations] == [each.name for each in real.operations]
    assert (fake.saved_bytes, fake.live_bytes) == (real.saved_bytes, real.live_bytes)


def test_comparison_of_dropout_on_a_gpu_and_on_the_cpu() -> None:
    """4 x 10 elements: a mask of a byte each on a GPU, of four on the CPU."""
    dropping = program(lambda: nn.Sequential(nn.Linear(10, 10), nn.Dropout(0.5)), numbers)
    as_gpu, as_cpu = capture(dropping, CaptureDevice()), capture(dropping, CPU)
    found = compare(as_gpu, as_cpu)
    assert found.saved_bytes == (40, 160)
    assert found.operators["aten.native_dropout.default"] == (1, 0)
    assert not found.is_equal
    assert compare(as_gpu, as_gpu).is_equal
