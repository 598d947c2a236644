"""Calls of the host in a trace, their launches on the GPU, and the representative step of a trace.

A kernel has the correlation id of the call of CUDA that launched it, and is of the operators around that call. Without
recorded calls of CUDA it is of the operator with its external id.

`profiler.step()` marks steps on the host. The GPU lags behind, so a step takes the time from the end of the last kernel
of the step before to that of its own; these times add up to that of the training. The first step includes the start of
the profiler, and the last lacks overlap with the next.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.errors import RecordingError
from vdnnsim.recordings.kineto import ON_GPU, Activity, Event, Trace

NO_LAUNCH: Final = "launched before the recording began"
NO_OPERATOR: Final = "launched outside of operators"
_DEEPEST: Final = 1000
"""Nested calls, as many as Python allows."""
_WAITS: Final = re.compile(r"Synchronize|^cu(da)?Memcpy")
STEP: Final = "ProfilerStep"
_ENOUGH: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of the host; `around` has the calls around it, the outermost first."""

    event: Event
    around: "tuple[Call, ...]"

    @property
    def chain(self) -> "tuple[Call, ...]":
        """The calls around it and itself."""
        return (*self.around, self)


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A kernel, copy or fill on the GPU.

    Attributes:
        operator: the innermost one that launched it; None with a `reason`.
        launched_s: time of the launch, or else of its start.
        thread: of the host that launched it, if recorded.
    """

    event: Event
    operator: Call | None
    launched_s: float
    reason: str = ""
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the host in a trace by their start, without those of CUDA, and their launches.

    Attributes:
        waits: calls of CUDA in which the host waits for the GPU.
    """

    calls: tuple[Call, ...]
    launches: tuple[Launch, ...]
    waits: tuple[Event, ...] = ()


def calls_of(trace: Trace) -> Calls:
    """Return the calls of the host and their launches.

    Raises:
        RecordingError: calls are nested deeper than Python allows.
    """
    open_calls: defaultdict[str, list[Call]] = defaultdict(list)
    calls: list[Call] = []
    by_correlation: dict[int, Call] = {}
    by_external: dict[int, Call] = {}
    for event in trace.events:
        if event.activity in ON_GPU:
            continue
        stack = open_calls[event.thread]
        while stack and stack[-1].event.end_s <= event.start_s and event.start_s > stack[-1].event.start_s:
            stack.pop()
        if len(stack) > _DEEPEST:
            raise RecordingError(f"{trace.name}: has more than {_DEEPEST} calls around {event.name}, expected fewer")
        call = Call(event, tuple(stack))
        if event.activity is Activity.CALL:
            if event.correlation is not None:
                by_correlation[event.correlation] = call
            continue
        stack.append(call)
        calls.append(call)
        if event.activity is Activity.OPERATOR and event.external is not None:
            by_external[event.external] = call
    launches = [_launch(event, by_correlation, by_external) for event in trace.events if event.activity in ON_GPU]
    launches.sort(key=lambda each: each.launched_s)
    waits = (each for each in trace.events if each.activity is Activity.CALL and _WAITS.search(each.name))
    return Calls(tuple(calls), tuple(launches), tuple(waits))


def _launch(event: Event, by_correlation: dict[int, Call], by_external: dict[int, Call]) -> Launch:
    call = by_correlation.get(event.correlation) if event.correlation is not None else None
    if call is not None:
        operators = [each for each in call.around if each.event.activity is Activity.OPERATOR]
        operator = operators[-1] if operators else None
        return Launch(event, operator, call.event.start_s, "" if operator else NO_OPERATOR, call.event.thread)
    operator = by_external.get(event.external) if event.external else None
    if operator is not None:
        return Launch(event, operator, operator.event.start_s, thread=operator.event.thread)
    return Launch(event, None, event.start_s, NO_LAUNCH)


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One iteration.

    Attributes:
        name: of the profiler, `ProfilerStep#8`.
        why: it was chosen.
        begin_s, end_s: on the GPU, from the end of the step before to that of its last kernel.
        thread: of its mark on the host; empty without marks.
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
        return self.end_s - self.begin_s


def chosen_step(trace: Trace, calls: Calls) -> TracedStep:
    """Return the representative step, or raise RecordingError where there is no kernel."""
    if not any(each.event.activity is Activity.KERNEL for each in calls.launches):
        raise RecordingError(
            f"{trace.name}: found no kernel of a GPU, expected a trace with activities=[ProfilerActivity.CPU, "
            "ProfilerActivity.CUDA]"
        )
    marks = [
        each for each in calls.calls if each.event.name.startswith(STEP) and each.event.activity is Activity.ANNOTATION
    ]
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
