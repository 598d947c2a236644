"""Dry runs of operations, on devices that compute nothing, and their times, on a GPU that is made of numbers."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch._ops import OpOverload

from calibration.apply import operation_measurement
from calibration.apply.operation_measurement import DryRun, Measured, _is_indifferent, kernel_seconds
from calibration.capture.record import Call
from tests.apply.models import MODELS
from tests.apply.training import asked, planned
from vdnnsim.dnn.layers import Phase

GPU, HOST = torch.device("cuda", 0), torch.device("cpu")


def test_a_call_knows_its_storages_by_the_numbers_of_the_step() -> None:
    """Each touches what its operation in the captured step does: what autograd saves in between is the same storage."""
    case = MODELS["perceptron"]
    found = asked(case, case.make_model(), "pytorch")
    step = found.captured
    assert any(call.read for call in found.tape.calls)
    for operation, call in zip(step.operations, found.tape.calls, strict=True):
        touched = {step.tensors[each.memory].storage for each in operation.operands}
        assert {*call.read, *call.made} == touched, operation.name


def test_a_result_on_the_host_is_read_there_by_the_next_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a perceptron have the result of tanh on the host: its backward and two products read it there."""
    case = MODELS["perceptron"]
    model = case.make_model()
    found = asked(case, model, "pytorch")
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
    """A stream that works while the host queues; a call waits for neither."""

    def __init__(self) -> None:
        self.host_s = self.stream_s = 0.0

    def works(self, kernel_s: float, queueing_s: float) -> Callable[[], None]:
        """Return an operation of the GPU, and what it takes the host to queue it."""

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
    """It is never queued behind the pause, however long that is."""

    def run() -> None:
        gpu.works(50e-6, 1e-6)()
        gpu.synchronize()

    assert kernel_seconds(run, GPU) is None


def called(func: OpOverload, args: tuple[object, ...]) -> Call:
    return Call.of(func, args, {}, None, lambda _: 0)


def test_integers_that_say_where_to_read_are_not_timed_as_zeros() -> None:
    """An embedding of one word alone is no embedding of a sequence; a mask of booleans, and indices of pooling, are."""
    aten = torch.ops.aten
    numbers, words = torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64)
    assert not _is_indifferent(called(aten.embedding.default, (numbers, words)))
    assert _is_indifferent(called(aten.masked_fill.Scalar, (numbers, numbers > 0, 0.0)))
    assert _is_indifferent(called(aten.nll_loss_forward.default, (numbers, words, None, 1, -100)))
    assert _is_indifferent(called(aten.add.Tensor, (numbers, words.sum())))
