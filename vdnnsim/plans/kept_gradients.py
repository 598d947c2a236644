"""Weight gradients that keep their memory from iteration to iteration, where a plan was made that drops them.

What a kernel of backward computes then is memory of its own, which is added to or copied into what is kept and given up
at once; that takes no time here.
"""

from collections.abc import Collection
from dataclasses import replace

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan


def with_kept_gradients(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan that keeps all weight gradients: `zero_grad(set_to_none=False)`."""
    kept = {number for number, each in enumerate(plan.buffers) if each.kind is BufferKind.WEIGHT_GRADIENT}
    return with_kept(plan, kept)


def with_kept(plan: TrainingPlan, gradients: Collection[int]) -> TrainingPlan:
    """Return a plan that holds gradients throughout; those that it begins with stay as they are."""
    head = {each.buffer for each in plan.operations[: leading_operations(plan)] if isinstance(each, Allocate)}
    wanted = set(gradients) - head
    taken = [each for each in plan.operations if isinstance(each, Allocate) and each.buffer in wanted]
    computed = {each.buffer: number for number, each in enumerate(taken, start=len(plan.buffers))}
    last_write = {
        buffer: position
        for position, each in enumerate(plan.operations)
        if isinstance(each, Compute)
        for buffer in each.writes
        if buffer in computed
    }
    written = dict[int, list[int]]()
    for buffer, position in last_write.items():
        written.setdefault(position, []).append(computed[buffer])
    operations: list[Operation] = [Allocate(each.buffer, each.layer, Phase.FORWARD) for each in taken]
    for position, each in enumerate(plan.operations):
        if isinstance(each, Allocate) and each.buffer in computed:
            operations.append(Allocate(computed[each.buffer], each.layer, each.phase))
        elif not (isinstance(each, Release) and each.buffer in computed):
            operations.append(each)
        operations += map(Release, written.get(position, ()))
    buffers = [replace(each, given=True) if number in computed else each for number, each in enumerate(plan.buffers)]
    for each in taken:
        old = plan.buffers[each.buffer]
        buffers.append(Buffer(f"{old.name}, computed", BufferKind.WEIGHT_GRADIENT, old.nbytes, old.stage))
    return replace(plan, buffers=tuple(buffers), operations=(*operations, *(Release(each.buffer) for each in taken)))
