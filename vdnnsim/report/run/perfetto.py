"""A trace for https://ui.perfetto.dev, in the Chrome trace-event format: streams as tracks, memory as counters.

Each GPU is a process; its threads are the compute stream, the memory stream, the stalls and, of several GPUs, the
communication stream. The links that several GPUs share are one more process, whose counters are what each carries.
Times are microseconds with nanosecond digits. Both ends of a slice are rounded before they are subtracted, so
neighbours never overlap.
"""

import json
from collections.abc import Iterator, Sequence

from vdnnsim.analysis.memory import memory_curve
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plan.operations import (
    AllReduce,
    Compute,
    Offload,
    Operation,
    Prefetch,
    Stream,
    describe,
    exchanged,
    of_extent,
)
from vdnnsim.trace import IterationTrace, ServerTrace

_THREADS = {Stream.COMPUTE: 1, Stream.MEMORY: 2, Stream.COMMUNICATION: 4}
_STALL_THREAD = 3


def perfetto_text(result: ScenarioResult, rows: Sequence[PolicyResult]) -> str:
    """Return the iteration of one policy on all GPUs as JSON text, one event per line."""
    row = rows[0]
    about = {
        "scenario": result.name,
        "network": result.workload.graph.name,
        "batch_size": result.workload.batch_size,
        "policy": row.policy,
        "algorithms": row.algorithms,
        "fits": row.fits,
        "gpu_memory_bytes": result.server.gpu.memory_bytes,
    }
    if row.server_trace is not None:
        about["gpus"] = result.gpus
    lines = [line for each in rows for line in (*_names(result, each), *_spans(each), *_stalls(each), *_memory(each))]
    if row.server_trace is not None:
        lines.extend(_links(row.server_trace))
    events = ",\n".join(lines)
    return f'{{"displayTimeUnit":"ms","otherData":{_json(about)},"traceEvents":[\n{events}\n]}}\n'


def _names(result: ScenarioResult, row: PolicyResult) -> Iterator[str]:
    def name(what: str, thread: int, text: str) -> str:
        return f'{{"ph":"M","pid":{row.gpu},"tid":{thread},"name":"{what}","args":{{"name":{_json(text)}}}}}'

    yield name("process_name", 0, f"GPU {row.gpu}: {result.server.gpu.name}, {row.policy}")
    threads = {number: f"{stream.value} stream" for stream, number in _THREADS.items()} | {_STALL_THREAD: "stalls"}
    if not row.trace.spans_on(Stream.COMMUNICATION):
        del threads[_THREADS[Stream.COMMUNICATION]]
    for number, text in sorted(threads.items()):
        yield name("thread_name", number, text)
        yield f'{{"ph":"M","pid":{row.gpu},"tid":{number},"name":"thread_sort_index","args":{{"sort_index":{number}}}}}'


def _spans(row: PolicyResult) -> Iterator[str]:
    plan = row.trace.plan
    for span in row.trace.spans:
        name, category, arguments = _about(plan.operations[span.operation], row.trace)
        yield _slice(
            row.gpu,
            _THREADS[span.stream],
            name,
            category,
            span.start_s,
            span.end_s,
            f'{arguments},"issued_us":{_microseconds(_nanoseconds(span.issue_s))}',
        )


def _about(operation: Operation, trace: IterationTrace) -> tuple[str, str, str]:
    """Return name, category and arguments of a slice."""
    plan = trace.plan
    if isinstance(operation, Compute):
        phase = operation.phase.value
        return f"{plan.layers[operation.layer]} {phase}", phase, f'"algorithm":{_json(operation.algorithm)}'
    if isinstance(operation, AllReduce):
        nbytes = sum(plan.buffers[buffer].nbytes for buffer in operation.buffers)
        arguments = f'"bytes":{nbytes},"by":{_json(operation.aggregation.value)}'
        return exchanged(operation, plan.layers), "exchange of gradients", arguments
    assert isinstance(operation, Offload | Prefetch)
    category = "offload"
    if isinstance(operation, Prefetch):
        category = "fetch on demand" if operation.on_demand else "prefetch"
    arguments = f'"bytes":{plan.copied_bytes(operation)},"during":{_json(plan.layers[operation.layer])}'
    return f"{category} {of_extent(plan.buffers[operation.buffer].name, operation.extent)}", category, arguments


def _stalls(row: PolicyResult) -> Iterator[str]:
    plan = row.trace.plan
    names, layers = plan.buffer_names, plan.layers
    for stall in row.trace.stalls:
        blocked = describe(plan.operations[stall.blocked], names, layers)
        arguments = f'"blocked":{_json(blocked)}'
        if stall.waited_for is not None:
            waited_for = describe(plan.operations[stall.waited_for], names, layers)
            arguments += f',"waited_for":{_json(waited_for)}'
        yield _slice(row.gpu, _STALL_THREAD, stall.cause.value, "stall", stall.start_s, stall.end_s, arguments)


def _memory(row: PolicyResult) -> Iterator[str]:
    """Yield two counters: what is in use by kind, which viewers stack, and the total."""
    curve = memory_curve(row.trace)
    kinds = [(_json(kind.value), values) for kind, values in curve.kinds.items() if any(values)]
    for position, (time_s, total) in enumerate(zip(curve.times_s, curve.totals, strict=True)):
        head = f'{{"ph":"C","pid":{row.gpu},"ts":{_microseconds(_nanoseconds(time_s))},"name":'
        by_kind = ",".join(f"{kind}:{values[position]}" for kind, values in kinds)
        yield f'{head}"memory by kind (bytes)","args":{{{by_kind}}}}}'
        yield f'{head}"memory in use (bytes)","args":{{"total":{total}}}}}'


def _links(server_trace: ServerTrace) -> Iterator[str]:
    """Yield a counter for each direction of each link that carries anything."""
    process = len(server_trace.gpus)
    yield f'{{"ph":"M","pid":{process},"tid":0,"name":"process_name","args":{{"name":"links"}}}}'
    for load in server_trace.loads:
        moment = _microseconds(_nanoseconds(load.time_s))
        name = _json(f"{load.hop.link} {load.hop.way.value} (bytes/s)")
        rate = _json(float(load.bytes_per_s))
        yield f'{{"ph":"C","pid":{process},"ts":{moment},"name":{name},"args":{{"carried":{rate}}}}}'


def _slice(process: int, thread: int, name: str, category: str, start_s: float, end_s: float, arguments: str) -> str:
    start, end = _nanoseconds(start_s), _nanoseconds(end_s)
    return (
        f'{{"ph":"X","pid":{process},"tid":{thread},"ts":{_microseconds(start)},"dur":{_microseconds(end - start)},'
        f'"name":{_json(name)},"cat":"{category}","args":{{{arguments}}}}}'
    )


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
