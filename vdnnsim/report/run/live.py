"""A step of a user's loop as tracks of a Perfetto trace, beside those of its prediction."""

from collections.abc import Iterator

from vdnnsim.live_step import LiveStep
from vdnnsim.plans.operations import Stream, of_extent
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.report.run.perfetto import IN_USE, STALL_THREAD, THREADS, Event, counter_event, slice_event, track_names

_PROCESS = 1
"""The prediction is of one GPU, 0."""


def live_events(step: LiveStep, plan: TrainingPlan) -> Iterator[Event]:
    """Yield what happened, as events of a process of its own."""
    streams = (Stream.COMPUTE, Stream.MEMORY)
    names = {THREADS[stream]: f"{stream.value} stream" for stream in streams} | {STALL_THREAD: "waits"}
    yield from track_names(_PROCESS, f"step {step.number} as it happened: {step.device}, {plan.policy}", names)
    operations, storages = plan.workload.step.operations, plan.workload.step.storages
    compute, memory = ((_PROCESS, THREADS[stream]) for stream in streams)
    for stretch in step.stretches:
        first = operations[stretch.operations.start]
        ran = [operations[number].captured for number in stretch.operations]
        args = {"operations": [each.name for each in ran if each is not None], "first": stretch.operations.start}
        name = f"{first.module or 'the model or its loss'} {first.phase.value}"
        yield slice_event(compute, name, first.phase.value, (stretch.start_s, stretch.end_s), args)
    for copy in step.copies:
        storage = storages[copy.storage]
        name = of_extent(storage.name, None if len(copy.extent) == storage.nbytes else copy.extent)
        when_s, args = (copy.start_s, copy.end_s), {"bytes": len(copy.extent)}
        yield slice_event(memory, f"{copy.way.value} {name}", copy.way.value, when_s, args)
    for pause in step.pauses:
        operation = operations[min(pause.operation, len(operations) - 1)]
        args = {"before": f"{operation.module or 'the model or its loss'} {operation.phase.value}"}
        what = "waits for a copy, or computes again"
        yield slice_event((_PROCESS, STALL_THREAD), what, "stall", (pause.start_s, pause.end_s), args)
    for level in step.memory:
        yield counter_event(_PROCESS, IN_USE, level.time_s, {"total": level.nbytes})
