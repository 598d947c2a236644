"""Whether two traces of one plan tell of the same events in the same order.

A stream runs its operations in the order of the plan, and nothing starts before what the plan makes it wait for has
ended. The second is followed as knowledge, like in the check of a plan: up to which span each stream, and the host,
knows the other stream to be done.
"""

from vdnnsim.plan.operations import (
    Compute,
    HostSynchronize,
    Offload,
    Prefetch,
    RecordEvent,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.trace import IterationTrace

_NOTHING = -1
_Known = dict[Stream, int]
"""For each stream the position of the last span on it that is known to be done."""


def order_fault(measured: IterationTrace, simulated: IterationTrace, resolution_s: float) -> str | None:
    """Return in one line where a measured trace departs from the order of a simulated one; None where it does not.

    Args:
        measured: of a device.
        simulated: of the same plan.
        resolution_s: by how much two moments of the device's clock may be wrong against each other.
    """
    plan = measured.plan
    for stream in Stream:
        ran, expected = ([span.operation for span in trace.spans_on(stream)] for trace in (measured, simulated))
        for place, (one, other) in enumerate(zip(ran, expected, strict=False)):
            if one != other:
                return f"{_name(plan, one)} ran as number {place + 1} of its stream, expected {_name(plan, other)}"
        if len(ran) != len(expected):
            return f"{len(ran)} spans on the {stream.value} stream, expected {len(expected)}"
    return _broken_wait(measured, resolution_s)


def _broken_wait(trace: IterationTrace, resolution_s: float) -> str | None:
    plan = trace.plan
    spans = {span.operation: span for span in trace.spans}
    last = dict.fromkeys(Stream, _NOTHING)
    host = dict.fromkeys(Stream, _NOTHING)
    known = {stream: dict.fromkeys(Stream, _NOTHING) for stream in Stream}
    events: dict[int, _Known] = {}
    for position, operation in enumerate(plan.operations):
        match operation:
            case Compute() | Offload() | Prefetch():
                stream = Stream.COMPUTE if isinstance(operation, Compute) else Stream.MEMORY
                _merge(known[stream], host)
                for before in known[stream].values():
                    if before != _NOTHING and spans[before].end_s > spans[position].start_s + resolution_s:
                        return f"{_name(plan, position)} started before {_name(plan, before)} had ended"
                last[stream] = position
            case RecordEvent(event=event, stream=stream):
                events[event] = {**known[stream], stream: last[stream]}
            case WaitEvent(event=event, stream=stream):
                _merge(known[stream], events[event])
            case HostSynchronize(streams=streams):
                for stream in streams:
                    _merge(host, {**known[stream], stream: last[stream]})
            case _:
                pass
    return None


def _merge(known: _Known, more: _Known) -> None:
    for stream, position in more.items():
        known[stream] = max(known[stream], position)


def _name(plan: TrainingPlan, position: int) -> str:
    return describe(plan.operations[position], plan.buffer_names, plan.layers)
