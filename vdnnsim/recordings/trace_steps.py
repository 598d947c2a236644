"""Which iteration of a trace stands for all: the whole ones, and the one whose time is their median.

A step is what `profiler.step()` marks on the host, with all that it launched. The GPU is behind its host, so the time
of a step goes from the end of the last kernel of the step before to that of its own: those times add up to the time of
the training. The first step has none before it, and the profiler's own start in it; the last may end without what the
next would have kept busy.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.errors import RecordingError
from vdnnsim.recordings.kineto import Doing, Trace
from vdnnsim.recordings.trace_calls import Call, Calls, Launch

STEP: Final = "ProfilerStep"
_ENOUGH: Final = 3


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One iteration.

    Attributes:
        name: as the profiler calls it, `ProfilerStep#8`.
        why: why this one was chosen.
        begin_s, end_s: on the GPU, from when its time counts until its last kernel has ended.
        host_begin_s, host_end_s: on the host.
        thread: of the host, on which the profiler marks it; empty where it does not.
        launches: what it launched, in the order in which the host did.
    """

    name: str
    why: str
    begin_s: float
    end_s: float
    host_begin_s: float
    host_end_s: float
    thread: str
    calls: tuple[Call, ...]
    launches: tuple[Launch, ...]

    @property
    def seconds(self) -> float:
        """Its time."""
        return self.end_s - self.begin_s


def chosen_step(trace: Trace, calls: Calls) -> TracedStep:
    """Return the step that stands for all.

    Raises:
        RecordingError: nothing ran on a GPU.
    """
    if not any(each.event.doing is Doing.KERNEL for each in calls.launches):
        raise RecordingError(
            f"{trace.name}: found no kernel of a GPU, expected a trace with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA]"
        )
    marks = [each for each in calls.calls if each.event.name.startswith(STEP) and each.event.doing is Doing.ANNOTATION]
    steps = _steps(calls, marks)
    if not steps:
        return _whole(calls)
    names = [each.name for each in steps]
    between = steps[1:-1] if len(steps) >= _ENOUGH else steps[-1:]
    found = sorted(between, key=lambda each: each.seconds)[(len(between) - 1) // 2]
    which = f"of {names[0]} to {names[-1]}" if len(names) > 1 else "the only one"
    why = f"{which}; of those between first and last the median time" if len(steps) >= _ENOUGH else which
    return replace(found, why=why)


def _steps(calls: Calls, marks: Sequence[Call]) -> list[TracedStep]:
    """Return the steps that launched something, in their order."""
    steps: list[TracedStep] = []
    before: float | None = None
    starts, launched = [each.event.start_s for each in calls.calls], [each.launched_s for each in calls.launches]
    for mark in marks:
        begin, end = mark.event.start_s, mark.event.end_s
        launches = calls.launches[bisect_left(launched, begin) : bisect_left(launched, end)]
        if not launches:
            continue
        first = min(each.event.start_s for each in launches)
        last = max(each.event.end_s for each in launches)
        around = calls.calls[bisect_left(starts, begin) : bisect_left(starts, end)]
        within = tuple(each for each in around if each is not mark)
        since = first if before is None else before
        steps.append(TracedStep(mark.event.name, "", since, last, begin, end, mark.event.thread, within, launches))
        before = last
    return steps


def _whole(calls: Calls) -> TracedStep:
    events = [*(each.event for each in calls.calls), *(each.event for each in calls.launches)]
    begin, end = min(each.start_s for each in events), max(each.end_s for each in events)
    first = min(each.event.start_s for each in calls.launches)
    last = max(each.event.end_s for each in calls.launches)
    why = f"the trace has no {STEP}#, which profiler.step() would mark"
    return TracedStep("the whole trace", why, first, last, begin, end, "", calls.calls, calls.launches)
