"""A plan that is carried out again and again, as training does: what stays allocated, and what memory all of it takes.

A pool that places online and keeps what it once took needs more for several iterations than for the first one, which
found it empty; and weights that stay where they are lie between what comes and goes.
"""

from vdnnsim.memory.place import place
from vdnnsim.memory.requests import Overflow, Placed
from vdnnsim.plan.operations import Alias, Allocate, Release
from vdnnsim.plan.pieces import Pieces
from vdnnsim.plan.placement import MemoryLimits, device_requests
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan

_OUTLIVES_AN_ITERATION = frozenset(
    {BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE, BufferKind.WEIGHT_GRADIENT, BufferKind.WORKSPACE}
)


def leading_operations(plan: TrainingPlan) -> int:
    """Return how many operations at the head of a plan only take memory."""
    operations = enumerate(plan.operations)
    return next((i for i, each in operations if not isinstance(each, Allocate | Alias)), len(plan.operations))


def end_of_work(plan: TrainingPlan) -> int:
    """Return the position behind the last operation that is not a Release."""
    end = len(plan.operations)
    while end and isinstance(plan.operations[end - 1], Release):
        end -= 1
    return end


def resident_buffers(plan: TrainingPlan) -> frozenset[int]:
    """Return the buffers that stay allocated between iterations: W, optimizer states, dW that is added to.

    And workspaces that a library keeps.

    Those alone that an iteration begins with and that the plan holds from its head to its tail.
    """
    head, tail = plan.operations[: leading_operations(plan)], plan.operations[end_of_work(plan) :]
    taken = {each.buffer for each in head if isinstance(each, Allocate)}
    held = taken & {each.buffer for each in tail if isinstance(each, Release)}
    inside = plan.operations[len(head) : len(plan.operations) - len(tail)]
    moved = {each.buffer for each in inside if isinstance(each, Allocate | Release)}
    buffers = plan.buffers
    return frozenset(
        each for each in held - moved if buffers[each].given and buffers[each].kind in _OUTLIVES_AN_ITERATION
    )


def place_repeatedly(plan: TrainingPlan, limits: MemoryLimits, times: int) -> Placed | Overflow:
    """Ask a memory model, empty at first, for the device memory of so many iterations in a row."""
    residents = resident_buffers(plan)
    positions, once = device_requests(plan, limits, Pieces(plan))
    first = [
        request
        for position, request in zip(positions, once, strict=True)
        if request.key not in residents or isinstance(plan.operations[position], Allocate)
    ]
    again = [request for request in once if request.key not in residents]
    return place(
        first + again * (times - 1),
        limits.model,
        capacity_bytes=limits.pool_bytes(plan),
        granule_bytes=limits.granule_bytes,
        total_bytes=limits.total_bytes,
    )
