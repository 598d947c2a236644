"""Printed tables of the time of a recorded step by operator and module."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.recordings.recorded_step import RecordedStep
from vdnnsim.recordings.trace_operations import CONVOLUTION, CONVOLUTION_BACKWARD, Operation
from vdnnsim.report.document import Document, plain_table, titled_table
from vdnnsim.units import format_bytes, format_seconds

COLUMNS: Final = ("operator", "calls", "kernels", "forward_s", "backward_s", "update_s", "share_of_kernels")
_SHOWN: Final = ("operator", "calls", "kernels", "forward", "backward", "update", "share")
_MODULES: Final = ("module", "forward", "backward", "share")
_PHASES: Final = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)
_MOST_ROWS: Final = 16
_MODULE_DEPTH: Final = 3
_CONVOLUTIONS: Final = frozenset({CONVOLUTION, CONVOLUTION_BACKWARD})
Row = tuple[str, int, int, float, float, float, float]


def recorded_rows(recorded: RecordedStep) -> list[Row]:
    """Return rows of operators, the longest first: calls, kernels, seconds by phase, share of all kernels."""
    by_name: defaultdict[str, list[Operation]] = defaultdict(list)
    for each in recorded.operations:
        by_name[each.name].append(each)
    rows = [_row(name, operations, recorded.kernel_s) for name, operations in by_name.items()]
    return sorted(rows, key=lambda row: -row[-1])


def recorded_table(recorded: RecordedStep, has_all: str) -> Document:
    rows = recorded_rows(recorded)
    shown = [_shown(row) for row in rows[:_MOST_ROWS]]
    if rest := rows[_MOST_ROWS:]:
        sums = [sum(row[at] for row in rest) for at in range(1, len(COLUMNS))]  # type: ignore[misc]
        shown.append(_shown((f"{len(rest)} others", *sums)))  # type: ignore[arg-type]
    table = titled_table(_caption(recorded), plain_table(_SHOWN, shown, has_all), (), list(_notes(recorded)))
    modules = _module_rows(recorded)
    if not modules:
        return table
    by_module = titled_table("by module", plain_table(_MODULES, modules, has_all), (), ())
    return Document((*table.blocks, *by_module.blocks))


def _row(name: str, operations: Iterable[Operation], kernel_s: float) -> Row:
    of_phase = dict.fromkeys(_PHASES, 0.0)
    calls = kernels = 0
    for each in operations:
        calls, kernels = calls + 1, kernels + len(each.launches)
        of_phase[each.phase] += each.seconds
    forward, backward, update = (of_phase[each] for each in _PHASES)
    return name, calls, kernels, forward, backward, update, (forward + backward + update) / kernel_s


def _shown(row: Row) -> tuple[str, ...]:
    name, calls, kernels, *seconds, share = row
    return name, f"{calls:,}", f"{kernels:,}", *map(_seconds, seconds), f"{share:.1%}"


def _caption(recorded: RecordedStep) -> str:
    step, gpu = recorded.step, recorded.trace.gpu
    on = f" on {gpu.name}" if gpu else ""
    return (
        f"{step.name} of {PurePath(recorded.trace.name).name}{on}: {format_seconds(step.seconds)}, kernels ran for "
        f"{format_seconds(recorded.busy_s)} of it ({recorded.busy_s / step.seconds:.0%})"
    )


def _notes(recorded: RecordedStep) -> Iterator[str]:
    step = recorded.step
    yield f"step: {step.why}"
    attributed = recorded.attributed_s / recorded.kernel_s
    yield f"attributed to operators: {attributed:.1%} of {format_seconds(recorded.kernel_s)} of kernels"
    for reason, (count, seconds) in recorded.unattributed.items():
        yield f"not attributed: {seconds / recorded.kernel_s:.1%}, {count:,} kernel{'s' * (count != 1)} {reason}"
    for cause, seconds in sorted(recorded.idle.items(), key=lambda each: -each[1]):
        yield f"the GPU {cause}: {format_seconds(seconds)} ({seconds / step.seconds:.1%} of the step)"
    if recorded.copies:
        moved = format_bytes(sum(each.nbytes for each in recorded.copies))
        took = format_seconds(sum(each.seconds for each in recorded.copies))
        yield f"copies between host and GPU: {len(recorded.copies)}, {moved} in {took}"
    yield f"host: {format_seconds(recorded.issue_s)} for each of {len(recorded.operations):,} operations"
    backward = [each for each in recorded.operations if each.phase is Phase.BACKWARD]
    if backward_s := sum(each.seconds for each in backward):
        matched = sum(each.seconds for each in backward if each.forward is not None)
        yield f"backward matched to its forward: {matched / backward_s:.1%} of its time"
    convolutions = [at for at, each in enumerate(recorded.operations) if each.name in _CONVOLUTIONS]
    if convolutions:
        known = sum(recorded.works[at].work is not None for at in convolutions)
        yield f"convolutions with sizes and phase: {known} of {len(convolutions)}"
    if not recorded.has_shapes:
        yield "no sizes of tensors were recorded: record_shapes=True makes a workload and a profile possible"
    else:
        yield f"batch: {recorded.batch_size}"
    if recorded.trace.stacks:
        yield "the profiler recorded stacks or modules, which makes the host slower than it is"


def _module_rows(recorded: RecordedStep) -> list[tuple[str, ...]]:
    """Return rows of the longest modules, to a depth of three."""
    found: defaultdict[str, dict[Phase, float]] = defaultdict(lambda: dict.fromkeys(_PHASES, 0.0))
    for each in recorded.operations:
        if each.module:
            found["/".join(each.module.split("/")[:_MODULE_DEPTH])][each.phase] += each.seconds
    ordered = sorted(found.items(), key=lambda each: -sum(each[1].values()))[:_MOST_ROWS]
    phases = (Phase.FORWARD, Phase.BACKWARD)
    return [
        (module, *(_seconds(seconds[each]) for each in phases), f"{sum(seconds.values()) / recorded.kernel_s:.1%}")
        for module, seconds in ordered
    ]


def _seconds(seconds: float) -> str:
    return format_seconds(seconds) if seconds else ""
