"""Traces for https://ui.perfetto.dev in the Chrome trace-event format: streams as tracks, memory as counters.

Each GPU is a process with threads for its streams and stalls; links between GPUs are one more process, with a counter
of the load of each. Times are microseconds, rounded to nanoseconds before subtraction, so that slices never overlap.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from vdnnsim.analysis.memory import memory_curve
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.cost.table import ONLY
from vdnnsim.plans.descriptions import describe, of_extent
from vdnnsim.plans.live_step import LiveStep
from vdnnsim.plans.operations import AllReduce, Communicate, Offload, Prefetch, Stream
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.report.palette import kind_of

_THREADS: Final = {
    Stream.COMPUTE: 1,
    Stream.MEMORY: 2,
    Stream.COMMUNICATION: 4,
    Stream.SEND: 5,
    Stream.RECEIVE: 6,
    Stream.FROM_HOST: 7,
    Stream.TO_HOST: 8,
}
_STALL_THREAD: Final = 3
_IN_USE: Final = "memory in use (bytes)"
Event = dict[str, Any]
_LIVE: Final = 1
"""Process of a measured step beside its prediction, which is process 0."""


def perfetto_text(result: ScenarioResult, rows: Sequence[PolicyResult], beside: Iterable[Event] = ()) -> str:
    """Return the iteration of one policy on all GPUs as JSON text, one event per line, with other events beside."""
    row = rows[0]
    about = {
        "scenario": result.name,
        "network": result.workload.graph.name,
        "batch_size": result.workload.batch_size,
        "policy": row.policy,
        "algorithms": row.algorithms,
        "fits": row.fits,
        "gpu_memory_bytes": result.server.gpu.memory_bytes,
        **({} if row.server_trace is None else {"gpus": result.gpus}),
    }
    found = [each for row in rows for each in (*_names(result, row), *_spans(row), *_stalls(row), *_memory(row))]
    if row.server_trace is not None:
        found.extend(_links(row.server_trace))
    found.extend(beside)
    events = ",\n".join(map(_json, found))
    return f'{{"displayTimeUnit":"ms","otherData":{_json(about)},"traceEvents":[\n{events}\n]}}\n'


def operation_text(plan: TrainingPlan, position: int) -> str:
    """Return an operation in one line, with its algorithm where there are several."""
    text = describe(plan.operations[position], plan.buffer_names, plan.layers)
    return text.replace(f" ({ONLY})", "")


def _names(result: ScenarioResult, row: PolicyResult) -> Iterator[Event]:
    threads = {number: f"{stream.value} stream" for stream, number in _THREADS.items()} | {_STALL_THREAD: "stalls"}
    for stream in _THREADS:
        if stream not in (Stream.COMPUTE, Stream.MEMORY) and not row.trace.spans_on(stream):
            del threads[_THREADS[stream]]
    yield from _track_names(row.gpu, f"GPU {row.gpu}: {result.server.gpu.name}, {row.policy}", threads)


def _track_names(process: int, title: str, threads: Mapping[int, str]) -> Iterator[Event]:

    def name(what: str, thread: int, args: dict[str, str | int]) -> Event:
        return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": args}

    yield name("process_name", 0, {"name": title})
    for number, text in sorted(threads.items()):
        yield name("thread_name", number, {"name": text})
        yield name("thread_sort_index", number, {"sort_index": number})


def _spans(row: PolicyResult) -> Iterator[Event]:
    plan = row.trace.plan
    for span in row.trace.spans:
        operation = plan.operations[span.operation]
        args: Event = {"issued_us": _nanoseconds(span.issue_s) / 1000}
        if isinstance(operation, Offload | Prefetch):
            args["bytes"] = plan.copied_bytes(operation)
        elif isinstance(operation, AllReduce):
            args["bytes"] = sum(plan.buffers[buffer].nbytes for buffer in operation.buffers)
        elif isinstance(operation, Communicate) and operation.collective is not None:
            args["bytes"] = operation.collective.nbytes
        track, name = (row.gpu, _THREADS[span.stream]), operation_text(plan, span.operation)
        yield _slice(track, name, kind_of(operation), (span.start_s, span.end_s), args)


def _stalls(row: PolicyResult) -> Iterator[Event]:
    for stall in row.trace.stalls:
        both = {"blocked": stall.blocked, "waited_for": stall.waited_for}
        args = {name: operation_text(row.trace.plan, at) for name, at in both.items() if at is not None}
        yield _slice((row.gpu, _STALL_THREAD), stall.cause.value, "stall", (stall.start_s, stall.end_s), args)


def _memory(row: PolicyResult) -> Iterator[Event]:
    """Yield the counters of memory by kind, which viewers stack, and in total."""
    curve = memory_curve(row.trace)
    kinds = [(kind.words, values) for kind, values in curve.kinds.items() if any(values)]
    for position, (time_s, total) in enumerate(zip(curve.times_s, curve.totals, strict=True)):
        by_kind = {kind: values[position] for kind, values in kinds}
        yield _counter(row.gpu, "memory by kind (bytes)", time_s, by_kind)
        yield _counter(row.gpu, _IN_USE, time_s, {"total": total})


def _links(server_trace: ServerTrace) -> Iterator[Event]:
    process = len(server_trace.gpus)
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": "links"}}
    for load in server_trace.loads:
        name = f"{load.hop.link} {load.hop.way.value} (bytes/s)"
        yield _counter(process, name, load.time_s, {"carried": float(load.bytes_per_s)})


def live_events(step: LiveStep, plan: TrainingPlan) -> Iterator[Event]:
    """Yield a measured step as events of a process of its own."""
    streams = (Stream.COMPUTE, Stream.MEMORY)
    names = {_THREADS[stream]: f"{stream.value} stream" for stream in streams} | {_STALL_THREAD: "waits"}
    yield from _track_names(_LIVE, f"step {step.number} as it happened: {step.device}, {plan.policy}", names)
    iteration = plan.workload.step
    operations, storages = iteration.operations, iteration.storages
    compute, memory = ((_LIVE, _THREADS[stream]) for stream in streams)
    for stretch in step.stretches:
        first = operations[stretch.operations.start]
        ran = [operations[number].name for number in stretch.operations]
        args = {"operations": ran, "first": stretch.operations.start}
        name = f"{iteration.path_of(first) or 'the model or its loss'} {first.phase.value}"
        yield _slice(compute, name, first.phase.value, (stretch.start_s, stretch.end_s), args)
    for copy in step.copies:
        storage = storages[copy.storage]
        name = of_extent(storage.name, None if len(copy.extent) == storage.nbytes else copy.extent)
        when_s, args = (copy.start_s, copy.end_s), {"bytes": len(copy.extent)}
        yield _slice(memory, f"{copy.way.value} {name}", copy.way.value, when_s, args)
    for pause in step.pauses:
        operation = operations[min(pause.operation, len(operations) - 1)]
        args = {"before": f"{iteration.path_of(operation) or 'the model or its loss'} {operation.phase.value}"}
        what = "waits for a copy, or recomputes"
        yield _slice((_LIVE, _STALL_THREAD), what, "stall", (pause.start_s, pause.end_s), args)
    for level in step.memory:
        yield _counter(_LIVE, _IN_USE, level.time_s, {"total": level.nbytes})


def _counter(process: int, name: str, time_s: float, values: Mapping[str, float]) -> Event:
    return {"ph": "C", "pid": process, "ts": _nanoseconds(time_s) / 1000, "name": name, "args": values}


def _slice(track: tuple[int, int], name: str, category: str, when_s: tuple[float, float], args: Event) -> Event:
    process, thread = track
    start, end = map(_nanoseconds, when_s)
    head = {"ph": "X", "pid": process, "tid": thread, "ts": start / 1000, "dur": (end - start) / 1000}
    return {**head, "name": name, "cat": category, "args": args}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
