"""A trace for https://ui.perfetto.dev, in the Chrome trace-event format: streams as tracks, memory as counters.

Each GPU is a process; its threads are the compute stream, the memory stream, the stalls and, of several GPUs, the
communication stream. The links that several GPUs share are one more process, whose counters are what each carries.
Times are microseconds with nanosecond digits. Both ends of a slice are rounded before they are subtracted, so
neighbours never overlap.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from vdnnsim.analysis.memory import memory_curve
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.cost.table import ONLY
from vdnnsim.plans.operations import AllReduce, Offload, Prefetch, Stream, describe
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.report.looks import kind_of
from vdnnsim.trace import ServerTrace

THREADS: Final = {Stream.COMPUTE: 1, Stream.MEMORY: 2, Stream.COMMUNICATION: 4}
STALL_THREAD: Final = 3
IN_USE: Final = "memory in use (bytes)"
Event = dict[str, Any]


def perfetto_text(result: ScenarioResult, rows: Sequence[PolicyResult], beside: Iterable[Event] = ()) -> str:
    """Return the iteration of one policy on all GPUs as JSON text, one event per line, with what else stands beside."""
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
    """Return what an operation does in one line, with its algorithm where there are several."""
    text = describe(plan.operations[position], plan.buffer_names, plan.layers)
    return text.replace(f" ({ONLY})", "")


def _names(result: ScenarioResult, row: PolicyResult) -> Iterator[Event]:
    threads = {number: f"{stream.value} stream" for stream, number in THREADS.items()} | {STALL_THREAD: "stalls"}
    if not row.trace.spans_on(Stream.COMMUNICATION):
        del threads[THREADS[Stream.COMMUNICATION]]
    yield from track_names(row.gpu, f"GPU {row.gpu}: {result.server.gpu.name}, {row.policy}", threads)


def track_names(process: int, title: str, threads: Mapping[int, str]) -> Iterator[Event]:
    """Yield what a process is called, and its threads by number."""

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
        track, name = (row.gpu, THREADS[span.stream]), operation_text(plan, span.operation)
        yield slice_event(track, name, kind_of(operation), (span.start_s, span.end_s), args)


def _stalls(row: PolicyResult) -> Iterator[Event]:
    for stall in row.trace.stalls:
        who = {"blocked": stall.blocked, "waited_for": stall.waited_for}
        args = {name: operation_text(row.trace.plan, at) for name, at in who.items() if at is not None}
        yield slice_event((row.gpu, STALL_THREAD), stall.cause.value, "stall", (stall.start_s, stall.end_s), args)


def _memory(row: PolicyResult) -> Iterator[Event]:
    """Yield two counters: what is in use by kind, which viewers stack, and the total."""
    curve = memory_curve(row.trace)
    kinds = [(kind.value, values) for kind, values in curve.kinds.items() if any(values)]
    for position, (time_s, total) in enumerate(zip(curve.times_s, curve.totals, strict=True)):
        by_kind = {kind: values[position] for kind, values in kinds}
        yield counter_event(row.gpu, "memory by kind (bytes)", time_s, by_kind)
        yield counter_event(row.gpu, IN_USE, time_s, {"total": total})


def _links(server_trace: ServerTrace) -> Iterator[Event]:
    """Yield a counter for each direction of each link that carries anything."""
    process = len(server_trace.gpus)
    yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": "links"}}
    for load in server_trace.loads:
        name = f"{load.hop.link} {load.hop.way.value} (bytes/s)"
        yield counter_event(process, name, load.time_s, {"carried": float(load.bytes_per_s)})


def counter_event(process: int, name: str, time_s: float, values: Mapping[str, float]) -> Event:
    """Return what the values of a counter are from a moment on."""
    return {"ph": "C", "pid": process, "ts": _nanoseconds(time_s) / 1000, "name": name, "args": values}


def slice_event(track: tuple[int, int], name: str, category: str, when_s: tuple[float, float], args: Event) -> Event:
    """Return something that took time on a track, a process and a thread of it."""
    process, thread = track
    start, end = map(_nanoseconds, when_s)
    head = {"ph": "X", "pid": process, "tid": thread, "ts": start / 1000, "dur": (end - start) / 1000}
    return {**head, "name": name, "cat": category, "args": args}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
