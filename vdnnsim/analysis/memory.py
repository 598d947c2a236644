"""Device memory over time, from the allocations of a trace."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.hardware.server import Gpu
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import Buffer, BufferKind

Selection = Callable[[Buffer], bool]
"""A predicate of buffers to count."""


def features_only(buffer: Buffer) -> bool:
    """Select the buffers of feature-extraction layers: their maps, gradients, workspaces, W and dW."""
    return buffer.stage is Stage.FEATURES


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Step function of bytes in use: kinds[k][i] bytes of kind k from times_s[i] on."""

    times_s: tuple[float, ...]
    kinds: dict[BufferKind, tuple[int, ...]]

    @property
    def totals(self) -> tuple[int, ...]:
        """Bytes of all kinds from each time on."""
        return tuple(sum(values) for values in zip(*self.kinds.values(), strict=True))

    def envelope(self, end_s: float, columns: int) -> "MemoryCurve":
        """Return a curve of equal columns with the maximum of each, including what was in use at its start."""
        totals, starts_s = self.totals, [column * end_s / columns for column in range(columns + 1)]
        kept = []
        for start_s, stop_s in pairwise(starts_s):
            first = max(bisect_right(self.times_s, start_s) - 1, 0)
            behind = max(bisect_left(self.times_s, stop_s), first + 1)
            kept.append(max(range(first, behind), key=totals.__getitem__))
        kinds = {kind: tuple(values[position] for position in kept) for kind, values in self.kinds.items()}
        return MemoryCurve(tuple(starts_s[:-1]), kinds)


def memory_curve(trace: IterationTrace) -> MemoryCurve:
    """Return memory over time by buffer kind; changes at the same time are merged."""
    in_use: Counter[BufferKind] = Counter()
    times: list[float] = []
    rows: list[dict[BufferKind, int]] = []
    for change in trace.memory:
        in_use[trace.plan.kind_shown(change.buffer)] += change.delta_bytes
        if times and times[-1] == change.time_s:
            rows[-1] = dict(in_use)
        else:
            times.append(change.time_s)
            rows.append(dict(in_use))
    return MemoryCurve(tuple(times), {kind: tuple(row.get(kind, 0) for row in rows) for kind in BufferKind})


def maximum_bytes(trace: IterationTrace, select: Selection | None = None) -> int:
    """Return the peak of the selected buffers, by default of all."""
    buffers = trace.plan.buffers
    deltas = (each.delta_bytes for each in trace.memory if select is None or select(buffers[each.buffer]))
    return max(accumulate(deltas, initial=0))


def process_bytes(trace: IterationTrace, gpu: Gpu) -> int:
    """Return the process memory, as nvidia-smi shows it: pool, context and further handles."""
    return trace.pool_bytes + gpu.framework_bytes(trace.plan.handles)


def mean_bytes(trace: IterationTrace) -> float:
    """Return the mean of bytes in use over the iteration."""
    total = in_use = since_s = 0.0
    for change in trace.memory:
        total += in_use * (change.time_s - since_s)
        since_s = change.time_s
        in_use += change.delta_bytes
    return (total + in_use * (trace.iteration_s - since_s)) / trace.iteration_s


def live_at_peak(trace: IterationTrace) -> dict[int, int]:
    """Return the bytes of each buffer that is live at the first peak."""
    totals = list(accumulate(change.delta_bytes for change in trace.memory))
    live: Counter[int] = Counter()
    for change in trace.memory[: totals.index(max(totals)) + 1] if totals else ():
        live[change.buffer] += change.delta_bytes
    return {buffer: nbytes for buffer, nbytes in live.items() if nbytes}


def peak_by_kind(trace: IterationTrace) -> tuple[tuple[BufferKind, int], ...]:
    """Return the bytes in use at the first peak by kind, largest first."""
    in_use: Counter[BufferKind] = Counter()
    for buffer, nbytes in live_at_peak(trace).items():
        in_use[trace.plan.kind_shown(buffer)] += nbytes
    return tuple(in_use.most_common())


def peak_kernel(trace: IterationTrace) -> tuple[float, Compute]:
    """Return the time of the first peak and the kernel that runs then."""
    curve = memory_curve(trace)
    totals = curve.totals
    peak_s = curve.times_s[totals.index(max(totals))]
    return peak_s, next(kernel for span, kernel in trace.kernels if span.end_s > peak_s)


def peak_operation(trace: IterationTrace) -> tuple[float, str]:
    """Return the time of the first peak and the kernel that runs then: `forward of conv1_2`."""
    peak_s, kernel = peak_kernel(trace)
    return peak_s, f"{kernel.phase.value} of {trace.plan.layers[kernel.layer]}"


def step_mean_bytes(trace: IterationTrace, select: Selection | None = None) -> float:
    """Return the mean of the selected bytes over layer steps, as in the vDNN paper (V-A).

    Each feature-extraction layer is one step in forward and one in backward, with the peak while its kernels run.
    """
    plan = trace.plan
    changes = {change.operation: change for change in trace.memory}
    steps: dict[tuple[int, bool], int] = {}
    in_use = 0
    for position, operation in enumerate(plan.operations):
        change = changes.get(position)
        if change is not None and (select is None or select(plan.buffers[change.buffer])):
            in_use += change.delta_bytes
        if not isinstance(operation, Compute) or operation.phase is Phase.UPDATE:
            continue
        if plan.layer_stages[operation.layer] is Stage.FEATURES:
            step = operation.layer, operation.phase.is_backward
            steps[step] = max(steps.get(step, 0), in_use)
    return sum(steps.values()) / len(steps)


def offloaded_curve(trace: IterationTrace) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return times and, from each on, the bytes in host memory alone: from the end of an offload to its prefetch."""
    size = trace.plan.copied_bytes
    changes = sorted(
        (span.end_s, size(copy)) if isinstance(copy, Offload) else (span.start_s, -size(copy))
        for span, copy in trace.copies
    )
    return tuple(time_s for time_s, _ in changes), tuple(accumulate(nbytes for _, nbytes in changes))
