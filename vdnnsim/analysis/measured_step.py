"""A measured step of a loop beside the prediction of its plan: differences of time and of memory.

Times of stretches of operations are divided among these as their predicted times are.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Link
from vdnnsim.plans.live_step import LiveStep, Way
from vdnnsim.plans.operations import Compute, Offload, Prefetch, of_extent
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan

Copied = tuple[Way, int, range]
"""Which way a copy goes, of which storage, and which bytes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that a step and its plan both tell of: seconds, or bytes in use."""

    what: str
    measured: float
    planned: float

    @property
    def excess(self) -> float:
        """By how much it was more than planned."""
        return self.measured - self.planned


def planned_s(trace: IterationTrace) -> float:
    """Return how long forward and backward were to take, the update of the weights left out."""
    kernels = ((span, trace.plan.operations[span.operation]) for span in trace.spans)
    return max(
        (span.end_s for span, each in kernels if isinstance(each, Compute) and each.phase is not Phase.UPDATE),
        default=0.0,
    )


def operation_seconds(trace: IterationTrace) -> dict[int, float]:
    """Return by operation of the program what it was to take, the first time that it runs."""
    numbers = _numbers(trace.plan)
    found = {}
    for span in trace.spans:
        operation = trace.plan.operations[span.operation]
        if isinstance(operation, Compute) and not operation.repeat:
            found[numbers[span.operation]] = span.end_s - span.start_s
    return found


def measured_operations(step: LiveStep, planned: Mapping[int, float]) -> dict[int, float]:
    """Return by operation of the program what it took; nothing of those that were to take no time."""
    found = {}
    for stretch in step.stretches:
        whole_s = sum(planned.get(each, 0.0) for each in stretch.operations)
        for each in stretch.operations:
            if planned.get(each, 0.0):
                found[each] = (stretch.end_s - stretch.start_s) * planned[each] / whole_s
    return found


def slower(step: LiveStep, trace: IterationTrace) -> list[Difference]:
    """Return what took another time than planned, what is off by most first.

    Operations are taken together by module and phase, and all that the loop waited for, or recomputed, is one.
    """
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
    """Return before which modules' operations more was allocated than planned beside other bytes, the most first."""
    planned, iteration = _levels(trace), trace.plan.workload.step
    found: dict[str, Difference] = {}
    # What a plan gives back before an operation is gone right before it.
    for level in {each.operation: each for each in step.memory if each.operation in planned}.values():
        operation = iteration.operations[level.operation]
        what = f"before {operation.phase.value} of {iteration.path_of(operation) or 'the model or its loss'}"
        here = Difference(what, level.nbytes, planned[level.operation] + beside_bytes)
        if here.excess > 0 and (what not in found or found[what].excess < here.excess):
            found[what] = here
    return sorted(found.values(), key=lambda each: -each.excess)


def measured_link(step: LiveStep, link: Link) -> Link:
    """Return a link with the rates that the copies of a step had, where there were any."""

    def rate(way: Way, predicted: float) -> float:
        copies = [each for each in step.copies if each.way is way]
        nbytes, seconds = sum(len(each.extent) for each in copies), sum(each.end_s - each.start_s for each in copies)
        # The latency of a link is of each copy; where they were faster than it, it is of none.
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
    """Return what each copy was to take; a loop makes one of a storage, however many a plan has."""
    plan = trace.plan
    found: dict[Copied, float] = {}
    for span in trace.spans:
        copy = plan.operations[span.operation]
        if not isinstance(copy, Offload | Prefetch):
            continue
        storage = plan.buffers[copy.buffer].storage
        assert storage is not None, "what is moved is of the step"
        way = Way.OUT if isinstance(copy, Offload) else Way.BACK
        extent = copy.extent or range(plan.buffers[copy.buffer].nbytes)
        found.setdefault((way, storage, extent), span.end_s - span.start_s)
    return found


def _levels(trace: IterationTrace) -> dict[int, int]:
    """Return by operation of the program what was to be in use when it begins, its own results left out."""
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
