"""The streams on which a plan issues its work, on the CPU, with streams that are names."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from calibration.apply import live_constraints
from calibration.apply.copy_stream import CpuCopyStream
from calibration.apply.live_constraints import as_repeatable, is_deterministic_on_cuda, movable_storages
from calibration.apply.pinned_slots import PinnedSlots
from calibration.apply.saved_storage import SavedStorage
from calibration.capture.tape import Tape
from tests.apply.models import MODELS, Function, rows
from tests.apply.training import alike, gradients, requested
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase

NBYTES = 64
MAIN, SIDE = "main", "side"


class NamedStreams:
    """A copy stream that copies at once and logs each call with the current stream, a name."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.stream = MAIN

    def pin(self, nbytes: int) -> Tensor:
        return torch.zeros(nbytes, dtype=torch.uint8)

    def unpin(self, tensor: Tensor) -> None:
        del tensor

    def current(self) -> str:
        return self.stream

    def is_current(self, stream: str) -> bool:
        return self.stream == stream

    @contextmanager
    def on(self, stream: str) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def copy(self, target: Tensor, source: Tensor) -> int:
        self.log.append(("copy", self.stream))
        target.copy_(source)
        return len(self.log)

    def wait(self, mark: int) -> None:
        assert mark
        self.log.append(("wait", self.stream))

    def finish(self, mark: int) -> None:
        assert mark
        self.log.append(("finish", self.stream))

    def join(self, stream: str) -> None:
        self.log.append((f"join {stream}", self.stream))

    def lend(self, tensor: Tensor) -> None:
        assert tensor.nbytes == NBYTES
        self.log.append(("lend", self.stream))

    def __deepcopy__(self, _: object) -> "NamedStreams":
        return self

    def taken(self) -> list[tuple[str, str]]:
        taken, self.log = self.log, []
        return taken


def held_on(copy_stream: NamedStreams) -> SavedStorage:
    arena = PinnedSlots(copy_stream, [(0, NBYTES)])
    arena.reserve(NBYTES)
    assert arena.open(1)
    content = torch.arange(NBYTES, dtype=torch.uint8)
    return SavedStorage(0, content.untyped_storage(), copy_stream, MAIN, arena, 1)


def test_what_was_recomputed_is_released_only_behind_a_copy() -> None:
    """Its recipe is used up: it stays where no copy of it is left, as behind a prefetch before the release."""
    held = held_on(NamedStreams())
    again = torch.zeros(NBYTES, dtype=torch.uint8).untyped_storage()
    held.recompute = lambda: held.restore(again)
    assert held.release()
    assert held.materialize() is again
    assert not held.release()
    assert held.offload(range(NBYTES), 0)
    assert held.release()


def test_a_storage_is_moved_collected_and_recomputed_on_the_stream_of_its_step() -> None:
    """Copies and waits are issued on the step's stream, to which freed memory is lent; a reading stream joins it."""
    copy_stream = NamedStreams()
    held = held_on(copy_stream)
    with copy_stream.on(SIDE):
        assert held.offload(range(NBYTES), 0)
        assert held.release()
        assert copy_stream.taken() == [("copy", MAIN), ("wait", MAIN), ("lend", MAIN)]
        assert held.prefetch(range(NBYTES))
        assert list(held.materialize()) == list(range(NBYTES))
        assert copy_stream.taken() == [("copy", MAIN), ("wait", MAIN), ("join main", SIDE), ("lend", SIDE)]
        held.materialize()
        assert copy_stream.taken() == [("join main", SIDE), ("lend", SIDE)]
    held.materialize()
    assert copy_stream.taken() == []
    # A collected storage waits on the stream of its step.
    copy_stream = NamedStreams()
    held = held_on(copy_stream)
    assert held.offload(range(NBYTES), 0)
    copy_stream.taken()
    with copy_stream.on(SIDE):
        del held
        gc.collect()
    assert copy_stream.taken() == [("wait", MAIN), ("lend", MAIN)]
    # Recomputation runs on the stream of its step.
    copy_stream = NamedStreams()
    held = held_on(copy_stream)

    def recompute() -> None:
        copy_stream.log.append(("recompute", copy_stream.stream))
        held.restore(torch.zeros(NBYTES, dtype=torch.uint8).untyped_storage())

    held.recompute = recompute
    assert held.release()
    copy_stream.taken()
    with copy_stream.on(SIDE):
        assert bytes(held.materialize()) == bytes(NBYTES)
    assert copy_stream.taken() == [("recompute", MAIN), ("join main", SIDE), ("lend", SIDE)]


def test_the_copying_thread_waits_for_none_of_its_copies() -> None:
    """Python's collector may run in that thread, where a wait would never end."""
    copy_stream = CpuCopyStream()
    begun, go_on = threading.Event(), threading.Event()
    ended: list[bool] = []

    def work() -> None:
        begun.set()
        go_on.wait()
        copy_stream.wait(mark)
        ended.append(True)

    copy_stream.stream.launch(work)
    mark = copy_stream.copy(torch.zeros(1), torch.ones(1))
    begun.wait()
    go_on.set()
    copy_stream.wait(mark)
    assert ended == [True]


class OnASide(nn.Module):
    """A perceptron whose second layer runs on another stream, given a copy stream."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(16, 16) for _ in range(3))
        self.copy_streams: list[NamedStreams] = []

    def forward(self, batch: Tensor) -> Tensor:
        batch = torch.tanh(self.first(batch))
        with self.copy_streams[0].on(SIDE) if self.copy_streams else nullcontext():
            batch = torch.tanh(self.second(batch))
        result: Tensor = self.third(batch)
        return result


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
def test_a_step_departs_where_a_tensor_is_saved_on_another_stream(policy: str) -> None:
    torch.manual_seed(0)
    model = OnASide()
    made = requested(model, rows(), policy).planned()
    copy_stream = made.loop.copy_stream = NamedStreams()
    given = rows()

    plain = gradients(model, given)
    model.copy_streams.append(copy_stream)
    with pytest.warns(UserWarning, match="on another stream"):
        assert alike(plain, gradients(model, given, applied=made.apply))
    assert "another stream" in made.loop.steps[-1].departure


def captured(model: nn.Module, given: Tensor) -> tuple[CapturedWorkload, Tape]:
    found = requested(model, given, "pytorch")
    return CapturedWorkload.of(found.captured), found.tape


def test_storages_of_other_streams_are_neither_moved_nor_recomputed() -> None:
    workload, tape = captured(MODELS["perceptron"].make_model(), rows())
    moved = movable_storages(workload, tape)
    number = next(iter(moved))
    aside = replace(tape, aside=frozenset({number}))
    assert movable_storages(workload, aside) == {each: span for each, span in moved.items() if each != number}
    step = as_repeatable(workload, "cpu", aside.aside).step
    for operation in step.operations:
        touches = number in {step.tensors[each.memory].storage for each in operation.operands}
        assert operation.repeatable is not touches


class Scattered(nn.Module):
    """Sums rows by index, on a GPU in another order each time."""

    def forward(self, batch: Tensor) -> Tensor:
        numbers = torch.zeros(len(batch), dtype=torch.long, device=batch.device)
        return torch.zeros_like(batch).index_add(0, numbers, batch)


def test_nondeterministic_operations_are_not_recomputed_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six blocks, of which `checkpoint` recomputes sums on a CPU and not on CUDA.

    There sums are kept: 64 KiB more, two of 512 rows of 16 numbers in float32.
    """
    blocks = [nn.Sequential(nn.Linear(16, 16), Scattered(), nn.Tanh()) for _ in range(6)]
    model = nn.Sequential(*blocks)
    inputs = [torch.randn(512, 16) for _ in range(3)]
    made = {"cpu": requested(model, inputs[0], "checkpoint").planned()}
    monkeypatch.setattr(
        live_constraints, "as_repeatable", lambda workload, _, aside: as_repeatable(workload, "cuda", aside)
    )
    made["cuda"] = requested(model, inputs[0], "checkpoint").planned()
    again = {
        device: {
            each.loop.schedule.captured.operations[number].name for number in each.loop.schedule.recomputed_operations
        }
        for device, each in made.items()
    }
    assert again["cpu"] - again["cuda"] == {"aten.index_add.default"}
    peaks = {device: each.predicted.metrics.allocated_bytes for device, each in made.items()}
    assert peaks["cuda"] - peaks["cpu"] == 2 * 4 * 512 * 16

    assert alike(gradients(model, *inputs), gradients(model, *inputs, applied=made["cuda"].apply))
    assert {each.departure for each in made["cuda"].loop.steps} == {""}
    assert any(what == "recompute" for what, _ in made["cuda"].loop.steps[-1].order)


@pytest.mark.parametrize(
    ("build", "name", "expected"),
    [
        (lambda: nn.Conv2d(2, 2, 3), "convolution", True),
        (lambda: nn.ConvTranspose2d(2, 2, 3), "convolution", False),
        (lambda: nn.AvgPool2d(2), "avg_pool2d", True),
        (lambda: Function(lambda _, batch: batch.flatten().cumprod(0)), "cumprod", False),
        (lambda: Function(lambda _, batch: batch.flatten().logcumsumexp(0)), "logcumsumexp", False),
    ],
)
def test_transposed_convolutions_and_scans_are_not_deterministic(
    build: Callable[[], nn.Module],
    name: str,
    expected: bool,  # noqa: FBT001
) -> None:
    workload, _ = captured(nn.Sequential(nn.Conv2d(2, 2, 1), build()), torch.zeros(1, 2, 8, 8))
    found = [each for each in workload.step.operations if each.phase is Phase.FORWARD]
    (last,) = [each for each in found if name in each.name][-1:]
    assert is_deterministic_on_cuda(last) is expected
