"""What ranks of a captured step spend its time on: kernels, and waits of the compute stream by what it waits for."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Communicate
from vdnnsim.plans.trace import IterationTrace, Span, StallCause

_GATHERS: Final = (CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST)
_OFFLOADS: Final = (StallCause.OFFLOAD, StallCause.PREFETCH, StallCause.ON_DEMAND, StallCause.ON_HOST)

Awaited = CollectiveKind | StallCause
"""A kind of collective, or the cause of a wait for something else."""


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Times of a step, each the mean of all ranks that were replayed.

    Attributes:
        step_s: until the last rank is done.
        kernels_s: of kernels on the compute stream.
        update_s: of what updates parameters: kernels, or the host.
        communication_s: of collectives, in part beside kernels.
        waits_s: of the compute stream, which has nothing to do until something is done, also behind its last kernel.
    """

    step_s: float
    kernels_s: float
    update_s: float
    communication_s: float
    waits_s: Mapping[Awaited, float]

    @property
    def gather_s(self) -> float:
        """Waits for parameters of other ranks."""
        return self._waits_s(*_GATHERS)

    @property
    def reduce_s(self) -> float:
        """Waits for other collectives, most of which reduce gradients or activations."""
        return self._waits_s(StallCause.COMMUNICATION, *(each for each in CollectiveKind if each not in _GATHERS))

    @property
    def exposed_s(self) -> float:
        """Waits for collectives of all kinds."""
        return self.gather_s + self.reduce_s

    @property
    def offload_s(self) -> float:
        """Waits for copies from and to the host, and for its update."""
        return self._waits_s(*_OFFLOADS)

    @property
    def bubble_s(self) -> float:
        """Waits for other stages of a pipeline, or for their end."""
        return self._waits_s(StallCause.PIPELINE)

    @property
    def other_s(self) -> float:
        """The host issues, or allocates."""
        return max(0.0, self.step_s - self.kernels_s - self.exposed_s - self.offload_s - self.bubble_s)

    def _waits_s(self, *kinds: Awaited) -> float:
        return sum((self.waits_s.get(each, 0.0) for each in kinds), 0.0)


def rank_times(traces: Sequence[IterationTrace]) -> RankTimes:
    """Return the times of the step of a rank, or of each rank of a pipeline."""
    step_s, waits_s = max(each.iteration_s for each in traces), Counter[Awaited]()
    is_pipeline = len(traces) > 1
    for trace in traces:
        for kind, seconds in (*_waits(trace), (StallCause.PIPELINE, is_pipeline * (step_s - trace.iteration_s))):
            waits_s[kind] += seconds / len(traces)  # type: ignore[assignment]  # a Counter sums floats as well
    return RankTimes(
        step_s,
        fmean(_seconds(span for span, _ in each.kernels) for each in traces),
        fmean(map(_update_s, traces)),
        fmean(_seconds(_collectives(each)) for each in traces),
        {kind: seconds for kind, seconds in waits_s.most_common() if seconds},
    )


def _waits(trace: IterationTrace) -> Iterator[tuple[Awaited, float]]:
    # No stall has collectives behind the last kernel, as the broadcasts of `zero1`, but one before the host's update.
    behind, done_s = list[tuple[Awaited, float]](), max(span.end_s for span, _ in trace.kernels)
    for span in sorted(_collectives(trace), key=lambda each: each.end_s):
        if span.end_s > done_s:
            behind.append((_kind(trace, span.operation), span.end_s - done_s))
            done_s = span.end_s
    yield from behind
    for stall in trace.stalls:
        kind: Awaited = stall.cause
        if stall.cause is StallCause.COMMUNICATION and stall.waited_for is not None:
            kind = _kind(trace, stall.waited_for)
        begin_s = max(stall.start_s, done_s) if stall.cause is StallCause.ON_HOST else stall.start_s
        yield kind, stall.end_s - begin_s


def _kind(trace: IterationTrace, position: int) -> Awaited:
    """Return the kind of a collective; of a copy from its buffers that of the last one on that stream."""
    before = [each for each in trace.plan.operations[: position + 1] if isinstance(each, Communicate)]
    of_stream = (each.collective for each in reversed(before) if each.stream is before[-1].stream)
    found = next(filter(None, of_stream), None)
    return StallCause.COMMUNICATION if found is None else found.kind


def _update_s(trace: IterationTrace) -> float:
    on_host = (span for span, each in _communications(trace) if _is(each, CollectiveKind.ON_HOST))
    return _seconds(on_host) + _seconds(span for span, kernel in trace.kernels if kernel.phase is Phase.UPDATE)


def _is(operation: Communicate, kind: CollectiveKind) -> bool:
    return operation.collective is not None and operation.collective.kind is kind


def _communications(trace: IterationTrace) -> Iterator[tuple[Span, Communicate]]:
    found = ((span, trace.plan.operations[span.operation]) for span in trace.spans)
    return ((span, each) for span, each in found if isinstance(each, Communicate))


def _collectives(trace: IterationTrace) -> Iterator[Span]:
    """Yield spans of collectives, and of copies into their buffers; not what a rank does with its host alone."""
    return (span for span, each in _communications(trace) if each.collective is None or not each.collective.is_of_host)


def _seconds(spans: Iterator[Span]) -> float:
    return sum((each.end_s - each.start_s for each in spans), 0.0)
