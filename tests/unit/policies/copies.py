"""Copies of plans and traces, as tests of policies compare them."""

from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan

Copy = type[Offload] | type[Prefetch]


def issued(plan: TrainingPlan, kind: Copy) -> list[tuple[str, str]]:
    """(buffer, layer during which the copy is launched) in order of issue."""
    return [(plan.buffer_names[op.buffer], plan.layers[op.layer]) for op in plan.operations if isinstance(op, kind)]


def timed(trace: IterationTrace) -> list[tuple[str, str, str, float, float]]:
    """(Offload or Prefetch, buffer, layer, start, end) in order of execution."""
    plan = trace.plan
    return [
        (type(copy).__name__, plan.buffer_names[copy.buffer], plan.layers[copy.layer], span.start_s, span.end_s)
        for span, copy in trace.copies
    ]


def recomputed(plan: TrainingPlan) -> list[tuple[str, int]]:
    """(layer, number of the recomputation) in order."""
    return [(plan.layers[op.layer], op.repeat) for op in plan.operations if isinstance(op, Compute) and op.repeat]
