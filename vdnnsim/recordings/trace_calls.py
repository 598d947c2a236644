"""Which operator launched what ran on the GPU: calls within calls on each thread of the host, and their launches.

A kernel names the call of CUDA that launched it by correlation; the operators in which that call stands launched the
kernel. Where calls of CUDA were not recorded, the operator that the kernel names by external id did.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from vdnnsim.errors import RecordingError
from vdnnsim.recordings.kineto import ON_GPU, Doing, Event, Trace

NO_LAUNCH: Final = "launched before the recording began"
NO_OPERATOR: Final = "launched outside of operators"
_DEEPEST: Final = 1000
"""Calls within one another, as many as Python allows."""
_WAITS: Final = re.compile(r"Synchronize|^cu(da)?Memcpy")


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Something that the host did, in what it did it, and what the GPU did for it without a call between.

    Attributes:
        around: the calls around it, the outermost first.
    """

    event: Event
    around: "tuple[Call, ...]"

    @property
    def chain(self) -> "tuple[Call, ...]":
        """The calls around it and itself."""
        return (*self.around, self)


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """What ran on the GPU.

    Attributes:
        operator: the innermost operator that launched it; None where none did, and `reason` says why.
        launched_s: when the host launched it; when it ran, where that was not recorded.
        thread: of the host that launched it; empty where that was not recorded.
    """

    event: Event
    operator: Call | None
    launched_s: float
    reason: str = ""
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the host in a trace by their start, but for those of CUDA, and what they launched, in this order.

    Attributes:
        waits: calls of CUDA in which the host waits for the GPU.
    """

    calls: tuple[Call, ...]
    launches: tuple[Launch, ...]
    waits: tuple[Event, ...] = ()


def calls_of(trace: Trace) -> Calls:
    """Return what the host called, and what it launched by it.

    Raises:
        RecordingError: calls are nested deeper than Python's are.
    """
    open_calls: defaultdict[str, list[Call]] = defaultdict(list)
    calls: list[Call] = []
    by_correlation: dict[int, Call] = {}
    by_external: dict[int, Call] = {}
    for event in trace.events:
        if event.doing in ON_GPU:
            continue
        stack = open_calls[event.thread]
        while stack and stack[-1].event.end_s <= event.start_s and event.start_s > stack[-1].event.start_s:
            stack.pop()
        if len(stack) > _DEEPEST:
            raise RecordingError(f"{trace.name}: has more than {_DEEPEST} calls around {event.name}, expected fewer")
        call = Call(event, tuple(stack))
        if event.doing is Doing.CALL:
            if event.correlation is not None:
                by_correlation[event.correlation] = call
            continue
        stack.append(call)
        calls.append(call)
        if event.doing is Doing.OPERATOR and event.external is not None:
            by_external[event.external] = call
    launches = [_launch(event, by_correlation, by_external) for event in trace.events if event.doing in ON_GPU]
    launches.sort(key=lambda each: each.launched_s)
    waits = (each for each in trace.events if each.doing is Doing.CALL and _WAITS.search(each.name))
    return Calls(tuple(calls), tuple(launches), tuple(waits))


def _launch(event: Event, by_correlation: dict[int, Call], by_external: dict[int, Call]) -> Launch:
    call = by_correlation.get(event.correlation) if event.correlation is not None else None
    if call is not None:
        operators = [each for each in call.around if each.event.doing is Doing.OPERATOR]
        operator = operators[-1] if operators else None
        return Launch(event, operator, call.event.start_s, "" if operator else NO_OPERATOR, call.event.thread)
    operator = by_external.get(event.external) if event.external else None
    if operator is not None:
        return Launch(event, operator, operator.event.start_s, thread=operator.event.thread)
    return Launch(event, None, event.start_s, NO_LAUNCH)
