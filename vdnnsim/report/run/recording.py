"""Traces of a run for `report.html`: columns of integers as compressed JSON.

Times are differences in nanoseconds, and names are indices of one list, so that numbers are small: 100,000 operations
take about a megabyte.
"""

import base64
import json
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.hardware.server import Gpu
from vdnnsim.plans.operations import Offload, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.report.palette import KIND_COLORS, STALL_COLORS, STREAM_COLORS, kind_of
from vdnnsim.report.run.perfetto import operation_text

MOST_OPERATIONS: Final = 200_000
"""Of all policies together; traces beyond it are left out, but for the first."""
_STREAMS: Final = tuple(Stream)
_LOOKS: Final = tuple(STREAM_COLORS)
_KINDS: Final = tuple(KIND_COLORS)
_CAUSES: Final = tuple(STALL_COLORS)


def recorded(rows: Sequence[PolicyResult]) -> tuple[PolicyResult, ...]:
    """Return the first results, as many as a page has room for."""
    kept: list[PolicyResult] = []
    room = MOST_OPERATIONS
    for row in rows:
        room -= len(row.trace.plan.operations)
        if kept and room < 0:
            break
        kept.append(row)
    return tuple(kept)


def recording(result: ScenarioResult, rows: Sequence[PolicyResult]) -> str:
    """Return the traces of results as base64 of deflated JSON."""
    names: dict[str, int] = {}
    content = {
        "name": f"{result.name} on {result.server.gpu.name}",
        "capacity": result.server.gpu.memory_bytes,
        "hostCapacity": result.server.host.memory_bytes // result.gpus,
        "streams": [each.value for each in _STREAMS],
        "looks": list(STREAM_COLORS.items()),
        "kinds": [(kind.words, color) for kind, color in KIND_COLORS.items()],
        "causes": [(cause.value, color) for cause, color in STALL_COLORS.items()],
        "runs": [_run(row, names, result.server.gpu) for row in rows],
        "names": list(names),
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def numbers(row: PolicyResult, gpu: Gpu) -> dict[str, tuple[float, str]]:
    """Return the numbers by which two runs are compared, with their units."""
    metrics, stalled_s = row.metrics, dict(row.metrics.stall_by_cause)
    return {
        "time per iteration": (metrics.iteration_s, "s"),
        "stalled": (metrics.stall_s, "s"),
        "allocated": (metrics.allocated_bytes, "B"),
        "reserved": (row.trace.pool_bytes, "B"),
        "process": (row.held_bytes(gpu), "B"),
        "mean allocated": (metrics.mean_allocated_bytes, "B"),
        "pinned host memory": (metrics.host_memory_bytes, "B"),
        "offloaded": (metrics.offloaded_bytes, "B"),
        **{cause.value: (stalled_s.get(cause, 0.0), "s") for cause in _CAUSES},
    }


def _run(row: PolicyResult, names: dict[str, int], gpu: Gpu) -> dict[str, Any]:
    trace = row.trace
    plan = trace.plan
    spans = sorted(trace.spans, key=lambda each: (each.start_s, each.operation))
    at = {span.operation: number for number, span in enumerate(spans)}
    operations = [plan.operations[span.operation] for span in spans]

    def name(text: str) -> int:
        return names.setdefault(text, len(names))

    def position(operation: int | None) -> int:
        return -1 if operation is None else at.get(operation, -1)

    return {
        "policy": row.policy,
        "fits": row.fits,
        "end": _ns(trace.iteration_s),
        "numbers": numbers(row, gpu),
        "spans": {
            "start": _steps([_ns(each.start_s) for each in spans]),
            "length": [_ns(each.end_s) - _ns(each.start_s) for each in spans],
            "stream": [_STREAMS.index(each.stream) for each in spans],
            "look": [_LOOKS.index(kind_of(each)) for each in operations],
            "name": [name(operation_text(plan, span.operation)) for span in spans],
            "bytes": [plan.copied_bytes(each) if isinstance(each, Offload | Prefetch) else 0 for each in operations],
        },
        "stalls": {
            "start": _steps([_ns(each.start_s) for each in trace.stalls]),
            "length": [_ns(each.end_s) - _ns(each.start_s) for each in trace.stalls],
            "cause": [_CAUSES.index(each.cause) for each in trace.stalls],
            "blocked": [position(each.blocked) for each in trace.stalls],
            "waited": [position(each.waited_for) for each in trace.stalls],
        },
        "memory": _memory(trace),
        "buffers": {
            "name": [name(each.name) for each in plan.buffers],
            "kind": [_KINDS.index(plan.kind_shown(each)) for each in range(len(plan.buffers))],
        },
    }


def _memory(trace: IterationTrace) -> dict[str, Any]:
    placed = any(each.offset is not None for each in trace.memory)
    return {
        "time": _steps([_ns(each.time_s) for each in trace.memory]),
        "buffer": [each.buffer for each in trace.memory],
        "delta": [each.delta_bytes for each in trace.memory],
        "offset": [-1 if each.offset is None else each.offset for each in trace.memory] if placed else [],
    }


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _steps(times: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise((0, *times))]
