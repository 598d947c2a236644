"""Whether two traces of one plan tell of the same events in the same order.

A stream runs its operations in the order of the plan, and nothing starts before what the plan makes it wait for has
ended.
"""

from vdnnsim.plans.operations import (
    Compute,
    HostSynchronize,
    Offload,
    Prefetch,
    RecordEvent,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plans.order import NOTHING, StreamOrder
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.trace import IterationTrace


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
    order = StreamOrder()
    for position, operation in enumerate(plan.operations):
        match operation:
            case Compute() | Offload() | Prefetch():
                stream = Stream.COMPUTE if isinstance(operation, Compute) else Stream.MEMORY
                for before in order.reach(stream).values():
                    if before != NOTHING and spans[before].end_s > spans[position].start_s + resolution_s:
                        return f"{_name(plan, position)} started before {_name(plan, before)} had ended"
                order.run(stream, position)
            case RecordEvent(event=event, stream=stream):
                order.record(event, stream)
            case WaitEvent(event=event, stream=stream):
                order.wait(event, stream)
            case HostSynchronize(streams=streams):
                order.synchronize(streams)
            case _:
                pass
    return None


def _name(plan: TrainingPlan, position: int) -> str:
    return describe(plan.operations[position], plan.buffer_names, plan.layers)
