"""Planned loops on a pretended GPU, watched operation by operation: nothing touches what a copy is still about."""

import gc
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from calibration.apply.lane import CudaLane
from calibration.capture.schemas import OperatorMode, operands_of, tensors_in
from tests.calibration.executor.races import Touch, find_races
from tests.pretend.test_apply import MODELS, part_of_plain, planned, train
from tests.pytorch_allocator.history import recorded
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Compute, Offload, Operation, RecordEvent, Stream, WaitEvent

pytestmark = pytest.mark.pretend


class Watch(OperatorMode):
    """Notes what PyTorch dispatches while it is entered: on which stream, what it touches, and what streams wait for.

    What an operation allocates for itself is found in the allocator's record, by how many allocations there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Operation] = []
        self.touches: dict[int, list[Touch]] = {}
        self.allocations: dict[int, range] = {}
        self.copied_bytes = 0
        self._main = torch.cuda.current_stream()
        # Kept, so that no other event has the identity of one of them.
        self._events: list[torch.cuda.Event] = []

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if func.is_view or torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        touched = list(operands_of(func, args, kwargs))
        first = allocations()
        result = func(*args, **kwargs)
        position = len(self.operations)
        self.allocations[position] = range(first, allocations())
        touched += [(each, True) for each in tensors_in(result)]
        self.touches[position] = [touch(each, writes=writes) for each, writes in touched if each.nbytes]
        if self._stream_of(torch.cuda.current_stream()) is Stream.COMPUTE:
            self.operations.append(Compute(0, Phase.FORWARD, "", ()))
        else:
            self.operations.append(Offload(0, 0))
            self.copied_bytes += args[0].nbytes
        return result

    def record(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Note that an event marks a point of a stream."""
        self._events.append(event)
        self.operations.append(RecordEvent(id(event), self._stream_of(stream)))

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        """Note that a stream waits for an event."""
        self.operations.append(WaitEvent(id(event), self._stream_of(stream)))

    def _stream_of(self, stream: torch.cuda.Stream) -> Stream:
        return Stream.COMPUTE if stream == self._main else Stream.MEMORY


def allocations() -> int:
    """Return how many there were in this process."""
    made: int = torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["allocated"]
    return made


def touch(tensor: torch.Tensor, *, writes: bool) -> Touch:
    """Return the bytes from the first to the last number of a tensor."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Touch(tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize, writes)


def watched(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, int]:
    """Return what two steps of a planned model did, and how many bytes their plan moves in one."""
    make, part = MODELS[name]
    model, batch = make()
    model.cuda()
    # Without copies there would be nothing to watch.
    made = planned(model, batch, part_of_plain(model, batch, part), policy="optimal(recompute=false)")
    watch = Watch()
    record, wait = torch.cuda.Stream.record_event, torch.cuda.Stream.wait_event

    def recording(stream: torch.cuda.Stream, event: torch.cuda.Event | None = None) -> torch.cuda.Event:
        marked: torch.cuda.Event = record(stream, event)
        watch.record(stream, marked)
        return marked

    def waiting(stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        wait(stream, event)
        watch.wait(stream, event)

    monkeypatch.setattr(torch.cuda.Stream, "record_event", recording)
    monkeypatch.setattr(torch.cuda.Stream, "wait_event", waiting)

    def steps() -> None:
        with watch:
            train(model, batch, 2, made.apply)
        gc.collect()

    first = allocations()
    _, entries = recorded(steps, 0)
    allocated = [each for each in entries if each["action"] == "alloc"]
    for position, own in watch.allocations.items():
        for entry in allocated[own.start - first : own.stop - first]:
            watch.touches[position].append(Touch(entry["addr"], entry["addr"] + entry["size"], writes=True))
    assert [each.departure for each in made.loop.steps[-2:]] == ["", ""]
    return watch, made.loop.agenda.offloaded_bytes


@pytest.mark.parametrize("name", ["perceptron", "convolutional", "encoder"])
def test_nothing_overlaps_a_copy_that_is_not_ordered_before_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: all that leaves and comes back is copied, on a stream of its own, and no two disturb each other."""
    watch, offloaded_bytes = watched(name, monkeypatch)
    assert watch.copied_bytes == 4 * offloaded_bytes > 0
    assert find_races(watch.operations, watch.touches) == []


@pytest.mark.parametrize(("whose", "left_out"), [(CudaLane, "wait"), (torch.cuda.Stream, "wait_stream")])
def test_a_wait_that_is_left_out_is_a_race(whose: type, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loop for its copies, or of copies for the loop."""
    monkeypatch.setattr(whose, left_out, lambda *_: None)
    watch, _ = watched("perceptron", monkeypatch)
    assert find_races(watch.operations, watch.touches) != []
