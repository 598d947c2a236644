"""Times a step of a loop: operations between points of the schedule, copies and memory."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self, cast

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from calibration.apply.copy_stream import CopyStream, CpuCopyStream, CudaCopyStream, card_of
from calibration.apply.loop import Loop
from calibration.apply.loop_state import LoopState, StepLog
from calibration.apply.reservation import memory_history
from calibration.apply.saved_storage import SavedTensor
from calibration.apply.step_hooks import StepHooks
from calibration.capture.nodes import is_in_backward
from calibration.devices.worker import WorkerMark
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.live_step import Level, LiveCopy, LiveStep, Pause, Stretch, Way


@dataclass
class Timed:
    """A timed step; `step` is None before its end, and if it left the plan or backward ran elsewhere."""

    log: StepLog = field(default_factory=StepLog)
    step: LiveStep | None = None


@contextmanager
def timed(
    loop: Loop, model: nn.Module, number: int, *, closely: bool = False, snapshot: bool = False
) -> Iterator[Timed]:
    """Apply a loop to a step of a model, and time it.

    `closely` times each point of the schedule and each copy; `snapshot` takes one of PyTorch's allocator, on a GPU.
    """
    found = Timed()
    with _Timing(loop, closely=closely) as timing, _history(loop.device, wanted=snapshot) as history:
        with loop.apply(model) as found.log:
            yield found
        timing.end()
        hooks = timing.hooks
        if hooks is not None and hooks.is_whole:
            found.step = timing.step(number, hooks, found.log, history())


def forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


class CpuStopwatch:
    """Times of a loop on a CPU, by the host's clock."""

    def __init__(self, copy_stream: CpuCopyStream) -> None:
        self._copy_stream = copy_stream
        self._begun_s = copy_stream.clock.now_s()

    def here(self) -> float:
        return self._copy_stream.clock.now_s()

    def beside(self) -> WorkerMark:
        """Mark the copying thread after its queued work."""
        return self._copy_stream.stream.mark()

    def seconds(self, mark: float | WorkerMark) -> float:
        """Wait for a mark, and return its time since the begin."""
        if isinstance(mark, WorkerMark):
            mark.join()
            mark = mark.time_s
        return mark - self._begun_s


class CudaStopwatch:
    """Times of a loop on a GPU, by events."""

    def __init__(self, copy_stream: CudaCopyStream, device: torch.device) -> None:
        self._device, self._stream = device, copy_stream.stream
        self._begun = self.here()

    def here(self) -> torch.cuda.Event:
        return self._recorded(torch.cuda.current_stream(self._device))

    def beside(self) -> torch.cuda.Event:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._recorded(self._stream)

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Wait for a mark, and return its time since the begin."""
        mark.synchronize()
        milliseconds: float = self._begun.elapsed_time(mark)
        return milliseconds / 1000

    def _recorded(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


Stopwatch = CpuStopwatch | CudaStopwatch


def stopwatch(copy_stream: CopyStream, device: torch.device) -> Stopwatch:
    if isinstance(copy_stream, CudaCopyStream):
        return CudaStopwatch(copy_stream, device)
    assert isinstance(copy_stream, CpuCopyStream), "there are two kinds"
    return CpuStopwatch(copy_stream)


class TimedStepHooks(StepHooks):
    """Hooks that time the points of the schedule.

    Attributes:
        points: reached points, with marks of their begin and end.
        memory: allocated bytes at each, on a GPU.
    """

    def __init__(self, loop: LoopState, model: nn.Module, watch: Stopwatch, *, closely: bool) -> None:
        super().__init__(loop, model)
        self._stopwatch, self._closely = watch, closely
        self._last_unpack = max(loop.schedule.unpack_points.values(), default=-1)
        self.points: list[tuple[int, Any, Any]] = []
        self.memory: list[int] = []

    @property
    def is_whole(self) -> bool:
        """Whether all captured saves and unpacks were reached."""
        return not self.log.departure and self._next_point > self._last_unpack

    def storage_of(self, tensor: torch.Tensor) -> int | None:
        identity = tensor.untyped_storage()._cdata  # noqa: SLF001 - its identity
        live = ((number, each.live) for number, each in list(self._storages.items()))
        return next((number for number, each in live if each is not None and each._cdata == identity), None)  # noqa: SLF001

    def _pack(self, tensor: torch.Tensor) -> SavedTensor:
        if not self._closely:
            return super()._pack(tensor)
        reached = self._stopwatch.here()
        packed = super()._pack(tensor)
        if packed.save is not None:
            self._note(packed.save, reached)
        return packed

    def _unpack(self, packed: SavedTensor) -> torch.Tensor:
        if not self._closely:
            return super()._unpack(packed)
        reached = self._stopwatch.here()
        tensor = super()._unpack(packed)
        point = None if packed.save is None else self._schedule.unpack_points.get(packed.save)
        if point is not None:
            self._note(point, reached)
        return tensor

    def _note(self, point: int, reached: Any) -> None:  # noqa: ANN401 - a mark
        if self.points and point <= self.points[-1][0]:
            return
        left = self._stopwatch.here()
        self.points.append((point, reached, left))
        if self._loop.device.type == "cuda":
            self.memory.append(torch.cuda.memory_allocated(self._loop.device))


class _Timing:
    """Replaces a loop's hooks and copy stream for its next step by timed ones."""

    def __init__(self, loop: Loop, *, closely: bool) -> None:
        self._loop, self._device, self._closely = loop, loop.device, closely
        self._watch = stopwatch(loop.copy_stream, loop.device)
        self.hooks: TimedStepHooks | None = None
        self._copies: list[tuple[Way, int, range, Any, Any]] = []
        self._end: Any = None

    def __enter__(self) -> Self:
        self._before = self._loop.make_hooks, self._loop.copy_stream
        self._loop.make_hooks = self._make_hooks
        if self._closely:
            self._loop.copy_stream = cast("CopyStream", _TimedCopyStream(self._loop.copy_stream, self))
        # The update may run within the context; those in backward are a part of it.
        self._hook = register_optimizer_step_pre_hook(lambda *_: None if is_in_backward() else self.end())
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()
        # Its copy stream refers to this.
        self.hooks = None
        self._loop.make_hooks, self._loop.copy_stream = self._before

    def end(self) -> None:
        if self._end is None:
            self._end = self._watch.here()

    def copied(self, copy_stream: CopyStream, target: torch.Tensor, source: torch.Tensor) -> Any:  # noqa: ANN401 - a mark
        pinned = self._loop.arena.slice(0, 0).untyped_storage()._cdata  # noqa: SLF001 - its identity
        way = Way.OUT if target.untyped_storage()._cdata == pinned else Way.BACK  # noqa: SLF001
        live = source if way is Way.OUT else target
        storage = None if self.hooks is None else self.hooks.storage_of(live)
        begun = self._watch.beside()
        mark = copy_stream.copy(target, source)
        if storage is not None:
            first = int(live.storage_offset())
            self._copies.append((way, storage, range(first, first + live.nbytes), begun, self._watch.beside()))
        return mark

    def step(self, number: int, hooks: TimedStepHooks, log: StepLog, snapshot: bytes | None) -> LiveStep:
        seconds = self._watch.seconds
        points = self._points(hooks)
        stretches, pauses = self._parts(points) if self._closely else ((), ())
        is_cuda = self._device.type == "cuda"
        return LiveStep(
            device=card_of(self._device)[0],
            number=number,
            seconds=seconds(self._end),
            peak_bytes=torch.cuda.max_memory_allocated(self._device) if is_cuda else None,
            offloaded_bytes=log.offloaded_bytes,
            fetched_bytes=log.fetched_bytes,
            stretches=stretches,
            pauses=pauses,
            copies=tuple(
                LiveCopy(way, storage, extent, seconds(begun), seconds(ended))
                for way, storage, extent, begun, ended in self._copies
            ),
            memory=tuple(
                Level(operation, left_s, nbytes)
                for (operation, _, left_s), nbytes in zip(points, hooks.memory, strict=False)
            ),
            snapshot=snapshot,
        )

    def _points(self, hooks: TimedStepHooks) -> list[tuple[int, float, float]]:
        """Return of each point the operation after it, its begin and its end."""
        issued, seconds, end = self._loop.schedule.issued, self._watch.seconds, self._updates_from
        return [(min(issued[point], end), seconds(reached), seconds(left)) for point, reached, left in hooks.points]

    def _parts(self, points: list[tuple[int, float, float]]) -> tuple[tuple[Stretch, ...], tuple[Pause, ...]]:
        """Return the stretches between points, and the pauses at them."""
        end_s = self._watch.seconds(self._end)
        places = [(0, 0.0, 0.0), *points, (self._updates_from, end_s, end_s)]
        stretches = (
            Stretch(range(first, last), left_s, reached_s)
            for (first, _, left_s), (last, reached_s, _) in pairwise(places)
            if first < last
        )
        pauses = (Pause(operation, reached_s, left_s) for operation, reached_s, left_s in places if reached_s < left_s)
        return tuple(stretches), tuple(pauses)

    @property
    def _updates_from(self) -> int:
        operations = self._loop.schedule.captured.operations
        return next((at for at, each in enumerate(operations) if each.phase is Phase.UPDATE), len(operations))

    def _make_hooks(self, loop: LoopState, model: nn.Module) -> StepHooks:
        self.hooks = TimedStepHooks(loop, model, self._watch, closely=self._closely)
        return self.hooks


class _TimedCopyStream:
    """A copy stream whose copies are timed."""

    def __init__(self, copy_stream: CopyStream, timing: _Timing) -> None:
        self._copy_stream, self._timing = copy_stream, timing
        for name in ("pin", "unpin", "current", "is_current", "on", "wait", "finish", "join", "lend"):
            setattr(self, name, getattr(copy_stream, name))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:  # noqa: ANN401 - a mark
        return self._timing.copied(self._copy_stream, target, source)


@contextmanager
def _history(device: torch.device, *, wanted: bool) -> Iterator[Any]:
    """Record PyTorch's memory history; yields a function that returns its pickled snapshot."""
    if not wanted or device.type != "cuda":
        yield lambda: None
        return
    with memory_history(device):
        yield lambda: pickle.dumps(torch.cuda.memory._snapshot(device), protocol=4)  # noqa: SLF001
