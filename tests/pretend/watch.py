"""Operations of a process on a GPU, from PyTorch's dispatcher, its streams and events, and its allocator's history."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from calibration.capture.schemas import OperatorMode, operands_of, tensors_in
from tests.pretend.stream_races import (
    HOST,
    Allocated,
    Freed,
    HandedOn,
    Happening,
    Lend,
    Record,
    Synchronize,
    Touch,
    Wait,
    Work,
)
from tests.pytorch_allocator.history import Entry, recorded

Counts = tuple[int, int]
"""How many allocations there were, and how many were given up."""


class Watch(OperatorMode):
    """Notes what PyTorch dispatches while it is entered: on which stream, what it touches, and what waits for what.

    What an operation allocates for itself is found in the allocator's record, by how many allocations there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copied_bytes: dict[int, int] = {}
        self._noted: list[tuple[Happening, Counts, Counts]] = []
        # Kept, so that no other event has the identity of one of them.
        self._events: list[torch.cuda.Event] = []

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if func.is_view or torch.Tag.inplace_view in func.tags:
            return func(*args, **kwargs)
        touched = list(operands_of(func, args, kwargs))
        before = counts()
        result = func(*args, **kwargs)
        touched += [(each, True) for each in tensors_in(result)]
        touches = [touch(each, writes=writes) for each, writes in touched if each.nbytes]
        devices = {each.device.type for each, _ in touched if each.nbytes}
        stream = torch.cuda.current_stream().cuda_stream if "cuda" in devices else HOST
        if len(devices) > 1:
            self.copied_bytes[stream] = self.copied_bytes.get(stream, 0) + args[0].nbytes
        self._noted.append((Work(stream, touches), before, counts()))
        return result

    def note(self, happening: Happening) -> None:
        now = counts()
        self._noted.append((happening, now, now))

    @contextmanager
    def following(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Note what streams and the host wait for, within."""
        event, lend = torch.cuda.Event, torch.Tensor.record_stream
        record, wait, synchronize = event.record, event.wait, event.synchronize

        def handle(stream: Any) -> int:  # noqa: ANN401
            handle: int = (stream or torch.cuda.current_stream()).cuda_stream
            return handle

        def recording(self_: torch.cuda.Event, stream: Any = None) -> None:  # noqa: ANN401
            record(self_, stream)
            self._events.append(self_)
            self.note(Record(id(self_), handle(stream)))

        def waiting(self_: torch.cuda.Event, stream: Any = None) -> None:  # noqa: ANN401
            wait(self_, stream)
            self.note(Wait(id(self_), handle(stream)))

        def synchronizing(self_: torch.cuda.Event) -> None:
            synchronize(self_)
            self.note(Wait(id(self_), HOST))

        def all_done(*_: object) -> None:
            everything()
            self.note(Synchronize(None))

        def lending(tensor: torch.Tensor, stream: Any) -> None:  # noqa: ANN401
            lend(tensor, stream)
            self.note(Lend(tensor.untyped_storage().data_ptr(), handle(stream)))

        everything = torch.cuda.synchronize
        with monkeypatch.context() as patch:
            patch.setattr(event, "record", recording)
            patch.setattr(event, "wait", waiting)
            patch.setattr(event, "synchronize", synchronizing)
            patch.setattr(torch.cuda, "synchronize", all_done)
            patch.setattr(torch.Tensor, "record_stream", lending)
            with self:
                yield

    def happened(self, entries: list[Entry], first: Counts) -> list[Happening]:
        """Return all that happened, with what the allocator did meanwhile: what an operation takes before it."""
        found: list[Happening] = []
        allocated = [each for each in entries if each["action"] == "alloc"]
        rest = iter(entries)
        entry, (taken, freed) = next(rest, None), first
        listed = taken
        for happening, before, after in self._noted:
            while entry is not None:
                is_taken, is_freed = entry["action"] == "alloc", entry["action"] == "free_requested"
                if taken + is_taken > before[0] or freed + is_freed > before[1]:
                    break
                taken, freed = taken + is_taken, freed + is_freed
                if not is_taken or taken > listed:
                    found += _of_allocator(entry)
                entry = next(rest, None)
            own = allocated[before[0] - first[0] : after[0] - first[0]]
            found += (each for entry in own for each in _of_allocator(entry))
            listed = max(listed, taken, after[0])
            if isinstance(happening, Work):
                more = [Touch(each["addr"], each["addr"] + each["size"], writes=True) for each in own]
                found.append(replace(happening, touches=[*happening.touches, *more]))
            else:
                found.append(happening)
        return found


def _of_allocator(entry: Entry) -> Iterator[Happening]:
    start, stop, stream = entry["addr"], entry["addr"] + entry["size"], entry["stream"]
    match entry["action"]:
        case "alloc":
            yield Allocated(start, stop, stream)
        case "free_requested":
            yield Freed(start, stop, stream)
        case "free_completed":
            yield HandedOn(start)
        case _:
            pass


def watched(
    work: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *, collects: bool = True
) -> tuple[Watch, list[Happening]]:
    """Run work on the first GPU; return who watched it, and what happened, until the collector has come if it does."""
    watch = Watch()

    def run() -> None:
        with watch.following(monkeypatch):
            work()
            if collects:
                gc.collect()

    first = counts()
    _, entries = recorded(run, 0)
    return watch, watch.happened(entries, first)


def counts() -> Counts:
    """Return how many allocations there were in this process, and how many were given up."""
    made = torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]
    return made["allocated"], made["freed"]


def touch(tensor: torch.Tensor, *, writes: bool) -> Touch:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return Touch(tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize, writes)
