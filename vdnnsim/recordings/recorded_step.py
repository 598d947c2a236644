"""A recorded training step: its operations with their work, and the idle time of the GPU by cause."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import RecordingError
from vdnnsim.recordings.kineto import Event, Trace, read_trace
from vdnnsim.recordings.operation_work import OperationWork, work_of
from vdnnsim.recordings.trace_operations import CONVOLUTION, Operation, autograd_threads, is_transfer, operations_of
from vdnnsim.recordings.trace_steps import NO_OPERATOR, Call, Launch, TracedStep, calls_of, chosen_step

WAITS_FOR_DATA: Final = "waits for the next batch"
WAITS_FOR_COPIES: Final = "waits for copies between host and GPU"
WAITS_FOR_HOST: Final = "waits for the host to issue {}"
BETWEEN_NODES: Final = "launched by autograd between its operators (gradients that add up)"
_LOADER: Final = "enumerate(DataLoader)"
_PHASES: Final = {Phase.FORWARD: "forward", Phase.BACKWARD: "backward", Phase.UPDATE: "the update"}
Span = tuple[float, float]


@dataclass(frozen=True)
class RecordedStep:
    """One step of a recorded training.

    Attributes:
        operations: those with kernels, in the order of their launches.
        batch_size: samples, by the sizes of forward or as given.
    """

    trace: Trace
    step: TracedStep
    operations: tuple[Operation, ...]
    works: tuple[OperationWork, ...]
    batch_size: int
    waits: tuple[Event, ...]

    @property
    def has_shapes(self) -> bool:
        return any(any(each.dims) for each in self.operations)

    @cached_property
    def kernels(self) -> tuple[Launch, ...]:
        """Kernels, and copies and fills within the GPU."""
        return tuple(each for each in self.step.launches if not is_transfer(each.event))

    @cached_property
    def copies(self) -> tuple[Event, ...]:
        """Copies between host and GPU."""
        return tuple(each.event for each in self.step.launches if is_transfer(each.event))

    @property
    def kernel_s(self) -> float:
        return sum(each.event.seconds for each in self.kernels)

    @property
    def attributed_s(self) -> float:
        """Seconds of the kernels of operations."""
        return sum(each.seconds for each in self.operations)

    @cached_property
    def unattributed(self) -> dict[str, tuple[int, float]]:
        """Number and seconds of kernels without an operation, by the reason."""
        found: dict[str, tuple[int, float]] = {}
        for each in self.kernels:
            if each.operator is None:
                between = each.reason == NO_OPERATOR and each.thread in self._autograd_threads
                reason = BETWEEN_NODES if between else each.reason
                count, seconds = found.get(reason, (0, 0.0))
                found[reason] = count + 1, seconds + each.event.seconds
        return found

    @property
    def busy_s(self) -> float:
        """Seconds of the step in which a kernel ran."""
        return sum(end - begin for begin, end in self._busy)

    @cached_property
    def idle(self) -> dict[str, float]:
        """Seconds of the step in which no kernel ran, by cause."""
        data = _joined((each.event.start_s, each.event.end_s) for each in self._loading)
        copying = _joined((each.start_s, each.end_s) for each in self.copies)
        starts = [each.event.start_s for each in self._by_start]
        found: defaultdict[str, float] = defaultdict(float)
        for gap in _between(self._busy, (self.step.begin_s, self.step.end_s)):
            loading = _overlap(gap, data)
            moving = min(_overlap(gap, copying), gap[1] - gap[0] - loading)
            following = self._by_start[min(bisect_left(starts, gap[1]), len(starts) - 1)]
            found[WAITS_FOR_DATA] += loading
            found[WAITS_FOR_COPIES] += moving
            found[WAITS_FOR_HOST.format(self._phase_of(following))] += gap[1] - gap[0] - loading - moving
        return {cause: seconds for cause, seconds in found.items() if seconds > 0}

    @property
    def issue_s(self) -> float:
        """Mean host time of an operation: of the step without loading data and waiting for the GPU."""
        spans = [(each.event.start_s, each.event.end_s) for each in self._loading]
        spans += [(each.start_s, each.end_s) for each in self.waits]
        host = (self.step.host_begin_s, self.step.host_end_s)
        return (host[1] - host[0] - _overlap(host, _joined(spans))) / max(1, len(self.operations))

    @cached_property
    def _busy(self) -> list[Span]:
        return _joined((each.event.start_s, each.event.end_s) for each in self.kernels)

    @cached_property
    def _by_start(self) -> list[Launch]:
        return sorted(self.kernels, key=lambda each: each.event.start_s)

    @cached_property
    def _loading(self) -> list[Call]:
        return [each for each in self.step.calls if each.event.name.startswith(_LOADER)]

    @cached_property
    def _autograd_threads(self) -> frozenset[str]:
        return autograd_threads(self.step)

    @cached_property
    def _phases(self) -> dict[Launch, Phase]:
        return {launch: each.phase for each in self.operations for launch in each.launches}

    def _phase_of(self, launch: Launch) -> str:
        otherwise = Phase.BACKWARD if launch.thread in self._autograd_threads else Phase.FORWARD
        return _PHASES[self._phases.get(launch, otherwise)]


def read_step(path: Path, batch_size: int | None = None) -> RecordedStep:
    """Read a trace, and return its representative step, with the batch by the sizes of forward unless given.

    Raises:
        RecordingError: it is no trace of PyTorch's profiler, or has no kernels.
    """
    trace = read_trace(path)
    calls = calls_of(trace)
    step = chosen_step(trace, calls)
    operations = operations_of(step)
    if not operations:
        raise RecordingError(
            f"{trace.name}: no kernel of {step.name} was launched by an operator, expected "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] from before the step"
        )
    if step.seconds <= 0 or not any(each.seconds for each in operations):
        raise RecordingError(f"{trace.name}: the kernels of {step.name} took no time, expected a longer step")
    works = tuple(work_of(each, operations[each.forward] if each.forward is not None else None) for each in operations)
    waits = tuple(each for each in calls.waits if step.host_begin_s <= each.start_s < step.host_end_s)
    return RecordedStep(trace, step, operations, works, batch_size or _batch_size(operations), waits)


def _batch_size(operations: Sequence[Operation]) -> int:
    """Return the batch of the first convolution or embedding, else the most frequent first size of forward."""
    forward = [each for each in operations if each.phase is Phase.FORWARD and any(each.dims)]
    for each in forward:
        if each.name == CONVOLUTION and each.dims[0]:
            return each.dims[0][0]
        if each.name == "embedding" and len(each.dims) > 1 and each.dims[1]:
            return each.dims[1][0]
    firsts = Counter(each.dims[0][0] for each in forward if len(each.dims[0]) > 1)
    return max(1, firsts.most_common(1)[0][0]) if firsts else 1


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, overlapping ones joined."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _between(spans: Sequence[Span], whole: Span) -> list[Span]:
    ends = [whole[0], *(min(max(end, whole[0]), whole[1]) for _, end in spans)]
    begins = [*(min(max(begin, whole[0]), whole[1]) for begin, _ in spans), whole[1]]
    return [(end, begin) for end, begin in zip(ends, begins, strict=True) if begin > end]


def _overlap(span: Span, others: Iterable[Span]) -> float:
    return sum(max(0.0, min(span[1], end) - max(span[0], begin)) for begin, end in others)
