"""Dry runs of operations without a device, and kernel times on a simulated GPU."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch._ops import OpOverload

from calibration.apply import operation_measurement
from calibration.apply.operation_measurement import DryRun, Measured, _is_indifferent, kernel_seconds
from calibration.capture.record import Call
from tests.apply.models import MODELS
from tests.apply.training import planned, request_of
from vdnnsim.dnn.layers import Phase

GPU, HOST = torch.device("cuda", 0), torch.device("cpu")


def test_calls_have_the_storages_of_their_operations() -> None:
    case = MODELS["perceptron"]
    found = request_of(case, case.make_model(), "pytorch")
    step = found.captured
    assert any(call.read for call in found.tape.calls)
    for operation, call in zip(step.operations, found.tape.calls, strict=True):
        touched = {step.tensors[each.memory].storage for each in operation.operands}
        assert {*call.read, *call.made} == touched, operation.name


def test_a_result_on_the_host_is_read_there(monkeypatch: pytest.MonkeyPatch) -> None:
    case = MODELS["perceptron"]
    model = case.make_model()
    found = request_of(case, model, "pytorch")
    places: dict[str, set[tuple[torch.device, ...]]] = {}

    def ran(call: Call, on: Sequence[torch.device], _: torch.device, *, is_timed: bool) -> Measured:
        places.setdefault(str(call.func), set()).add(tuple(on))
        assert not is_timed
        return Measured(made=(HOST if "tanh.default" in str(call.func) else GPU,) * len(call.made))

    monkeypatch.setattr(operation_measurement, "_ran", ran)
    run = DryRun(GPU, is_timed=False)
    for operation, call in zip(found.captured.operations, found.tape.calls, strict=True):
        if operation.phase is not Phase.UPDATE:
            assert run.measured(call).changes == range(0)
    (storage,) = run.elsewhere
    assert run.elsewhere == {storage: HOST}
    assert places["aten.tanh_backward.default"] == {(GPU, HOST)}
    assert {name for name, on in places.items() if any(HOST in each for each in on)} == {
        "aten.tanh_backward.default",
        "aten.addmm.default",
        "aten.mm.default",
    }
    assert storage in found.tape.let_go
    assert storage not in found.tape.without(run.elsewhere.keys()).let_go
    assert storage in planned(case, model, "save_on_cpu").loop.schedule.offloaded


_CYCLES_PER_S = 2e9


class Gpu:
    """A stream that runs beside the host."""

    def __init__(self) -> None:
        self.host_s = self.stream_s = 0.0

    def works(self, kernel_s: float, queueing_s: float) -> Callable[[], None]:

        def run() -> None:
            self.host_s += queueing_s
            self.stream_s = max(self.stream_s, self.host_s) + kernel_s

        return run

    def synchronize(self, *_: object) -> None:
        self.host_s = max(self.host_s, self.stream_s)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_s = max(gpu.stream_s, gpu.host_s)

        def query(self) -> bool:
            return self.at_s <= gpu.host_s

        def elapsed_time(self, end: "Event") -> float:
            return (end.at_s - self.at_s) * 1e3

    def sleep(cycles: int) -> None:
        gpu.stream_s = max(gpu.stream_s, gpu.host_s) + cycles / _CYCLES_PER_S

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(torch._C, "_cuda_sleep", sleep, raising=False)  # noqa: SLF001  # of CUDA's build
    return gpu


@pytest.mark.parametrize("queueing_s", [1e-6, 200e-6, 1e-3])
def test_host_time_is_not_kernel_time(gpu: Gpu, queueing_s: float) -> None:
    """A kernel of 50 us; the host queues four, at 1 us, 200 us and 1 ms each, within a pause of 1, 4 or 16 ms."""
    assert kernel_seconds(gpu.works(50e-6, queueing_s), GPU) == pytest.approx(50e-6)


def test_an_operation_that_waits_for_the_gpu_has_no_time(gpu: Gpu) -> None:

    def run() -> None:
        gpu.works(50e-6, 1e-6)()
        gpu.synchronize()

    assert kernel_seconds(run, GPU) is None


def called(func: OpOverload, args: tuple[object, ...]) -> Call:
    return Call.of(func, args, {}, None, lambda _: 0)


def test_operations_that_are_timed_with_zeros() -> None:
    """Not an embedding, which would read one row alone."""
    aten = torch.ops.aten
    numbers, words = torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64)
    assert not _is_indifferent(called(aten.embedding.default, (numbers, words)))
    assert _is_indifferent(called(aten.masked_fill.Scalar, (numbers, numbers > 0, 0.0)))
    assert _is_indifferent(called(aten.nll_loss_forward.default, (numbers, words, None, 1, -100)))
    assert _is_indifferent(called(aten.add.Tensor, (numbers, words.sum())))
