"""Differences of time and memory between a measured step of a loop and the prediction of its plan.

The time of a stretch is divided among its operations in proportion to their predicted times.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Link
from vdnnsim.plans.descriptions import of_extent
from vdnnsim.plans.live_step import LiveStep, Way
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan

Copied = tuple[Way, int, range]
"""Direction, storage and bytes of a copy."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A measured and a planned quantity: seconds, or bytes in use."""

    what: str
    measured: float
    planned: float

    @property
    def excess(self) -> float:
        """Measured less planned."""
        return self.measured - self.planned


def planned_s(trace: IterationTrace) -> float:
    """Return the planned seconds of forward and backward, without the update."""
    kernels = ((span, trace.plan.operations[span.operation]) for span in trace.spans)
    return max(
        (span.end_s for span, each in kernels if isinstance(each, Compute) and each.phase is not Phase.UPDATE),
        default=0.0,
    )


def operation_seconds(trace: IterationTrace) -> dict[int, float]:
    """Return the planned seconds of each operation of the step, recomputation left out."""
    numbers = _numbers(trace.plan)
    found = {}
    for span in trace.spans:
        operation = trace.plan.operations[span.operation]
        if isinstance(operation, Compute) and not operation.repeat:
            found[numbers[span.operation]] = span.end_s - span.start_s
    return found


def measured_operations(step: LiveStep, planned: Mapping[int, float]) -> dict[int, float]:
    """Return the measured seconds of each operation that was planned to take time."""
    found = {}
    for stretch in step.stretches:
        whole_s = sum(planned.get(each, 0.0) for each in stretch.operations)
        for each in stretch.operations:
            if planned.get(each, 0.0):
                found[each] = (stretch.end_s - stretch.start_s) * planned[each] / whole_s
    return found


def slower(step: LiveStep, trace: IterationTrace) -> list[Difference]:
    """Return differences of time, the largest first: operations by module and phase, copies, and all waits as one."""
    plan, planned = trace.plan, operation_seconds(trace)
    iteration = plan.workload.step
    measured, expected = defaultdict[str, float](float), defaultdict[str, float](float)
    for number, seconds in measured_operations(step, planned).items():
        operation = iteration.operations[number]
        what = f"{operation.phase.value} of {iteration.path_of(operation) or 'the model or its loss'}"
        measured[what] += seconds
        expected[what] += planned[number]
    copies = _copies(trace)
    for copy in step.copies:
        storage = iteration.storages[copy.storage]
        name = of_extent(storage.name, None if len(copy.extent) == storage.nbytes else copy.extent)
        what = f"{copy.way.value} of {name}"
        measured[what] += copy.end_s - copy.start_s
        expected[what] += copies.get((copy.way, copy.storage, copy.extent), 0.0)
    waits = "waiting for copies and recomputing"
    measured[waits] = sum(each.end_s - each.start_s for each in step.pauses)
    expected[waits] = sum(each.end_s - each.start_s for each in trace.stalls if each.waited_for is not None) + sum(
        span.end_s - span.start_s
        for span in trace.spans
        if isinstance(kernel := plan.operations[span.operation], Compute) and kernel.repeat
    )
    found = [Difference(what, seconds, expected[what]) for what, seconds in measured.items()]
    return sorted(found, key=lambda each: -abs(each.excess))


def larger(step: LiveStep, trace: IterationTrace, beside_bytes: int = 0) -> list[Difference]:
    """Return the modules before whose operations more was allocated than planned and beside, the largest first."""
    planned, iteration = _levels(trace), trace.plan.workload.step
    found: dict[str, Difference] = {}
    # The last level before an operation is after all releases.
    for level in {each.operation: each for each in step.memory if each.operation in planned}.values():
        operation = iteration.operations[level.operation]
        what = f"before {operation.phase.value} of {iteration.path_of(operation) or 'the model or its loss'}"
        here = Difference(what, level.nbytes, planned[level.operation] + beside_bytes)
        if here.excess > 0 and (what not in found or found[what].excess < here.excess):
            found[what] = here
    return sorted(found.values(), key=lambda each: -each.excess)


def measured_link(step: LiveStep, link: Link) -> Link:
    """Return a link with the rates of the copies of a step, where there were any."""

    def rate(way: Way, predicted: float) -> float:
        copies = [each for each in step.copies if each.way is way]
        nbytes, seconds = sum(len(each.extent) for each in copies), sum(each.end_s - each.start_s for each in copies)
        # Each copy has the latency of the link, unless they were faster than that.
        flowing_s = seconds - len(copies) * link.latency_s
        return nbytes / (flowing_s if flowing_s > 0 else seconds) if seconds else predicted

    to_device, to_host = rate(Way.BACK, link.h2d_bytes_per_s), rate(Way.OUT, link.d2h_bytes_per_s)
    copies = None if step.copies else link.copies
    return replace(link, h2d_bytes_per_s=to_device, d2h_bytes_per_s=to_host, copies=copies)


def _numbers(plan: TrainingPlan) -> dict[int, int]:
    step = plan.workload.step
    return {
        position: step.numbers_of(each.layer, each.phase)[each.operation]
        for position, each in enumerate(plan.operations)
        if isinstance(each, Compute)
    }


def _copies(trace: IterationTrace) -> dict[Copied, float]:
    """Return the planned seconds of each copy; a loop copies a storage once, however often the plan does."""
    plan = trace.plan
    found: dict[Copied, float] = {}
    for span in trace.spans:
        copy = plan.operations[span.operation]
        if not isinstance(copy, Offload | Prefetch):
            continue
        storage = plan.buffers[copy.buffer].storage
        assert storage is not None, "copied buffers are of the step"
        way = Way.OUT if isinstance(copy, Offload) else Way.BACK
        extent = copy.extent or range(plan.buffers[copy.buffer].nbytes)
        found.setdefault((way, storage, extent), span.end_s - span.start_s)
    return found


def _levels(trace: IterationTrace) -> dict[int, int]:
    """Return the planned bytes in use before each operation of the step, without its results."""
    plan, numbers = trace.plan, _numbers(trace.plan)
    changes = defaultdict[int, list[tuple[int, int]]](list)
    for each in trace.memory:
        changes[each.operation].append((each.buffer, each.delta_bytes))
    level, found, taken = 0, dict[int, int](), dict[int, int]()
    for position, operation in enumerate(plan.operations):
        for buffer, delta in changes[position]:
            level += delta
            taken[buffer] = delta
        if isinstance(operation, Compute):
            if not operation.repeat:
                found[numbers[position]] = level - sum(taken.get(each, 0) for each in operation.writes)
            taken.clear()
    return found
