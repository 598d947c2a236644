"""Units of a plan: what a live loop allocates from one pool of PyTorch's allocator."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import Enum

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Step
from vdnnsim.memory.packing import Lifetime
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGEST_SMALL_BYTES
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.operations import Allocate, Compute, Prefetch
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import TrainingPlan


class Use(Enum):
    """For what a loop can put a pool in use: an operation, its recomputation, the prefetch of a storage."""

    RUN = "run"
    REPEAT = "recompute"
    PREFETCH = "prefetch"


Unit = tuple[Use, int]
"""What is allocated in one pool: an operation by its number, the first of several between which a loop cannot change
the pool; or the prefetch of a storage."""


def units_of(plan: TrainingPlan, boundaries: AbstractSet[int] | None) -> dict[int, Unit]:
    """Return the units of allocations by their position; those of given buffers and of the update have none.

    `boundaries` are operations before which a loop can change the pool; None for all of forward, and for the first of
    backward that belong to one of forward.
    """
    step, units, waiting = plan.workload.step, dict[int, Unit](), dict[int, int]()
    window = _windows(step, boundaries)
    for position, operation in enumerate(plan.operations):
        match operation:
            case Allocate(buffer=buffer):
                waiting[buffer] = position
            case Prefetch(buffer=buffer):
                if (storage := plan.buffers[buffer].storage) is not None and buffer in waiting:
                    units[waiting.pop(buffer)] = Use.PREFETCH, storage
            case Compute():
                number = step.numbers_of(operation.layer, operation.phase)[operation.operation]
                unit = (Use.REPEAT, number) if operation.repeat else window.get(number)
                units |= {at: unit for at in waiting.values() if unit is not None}
                waiting.clear()
            case _:
                pass
    begin = leading_operations(plan)
    return {at: unit for at, unit in units.items() if at >= begin}


def large_blocks(asked: Sequence[Asked], granule_bytes: int) -> list[tuple[int, Lifetime]]:
    """Return the blocks of an iteration that are not small, and the operation at which each is allocated."""
    found, living = list[tuple[int, Lifetime]](), dict[int, int]()
    for at, (operation, request) in enumerate(asked):
        if request.nbytes is None:
            if (block := living.pop(request.key, None)) is not None:
                found[block] = found[block][0], found[block][1]._replace(last=at)
        elif (nbytes := round_up(request.nbytes, granule_bytes)) > LARGEST_SMALL_BYTES and not request.stream:
            living[request.key] = len(found)
            found.append((operation, Lifetime(nbytes, at, len(asked))))
    return found


def _windows(step: Step, boundaries: AbstractSet[int] | None) -> dict[int, Unit]:
    """Return by operation of forward and backward the first of those between which the pool stays the same.

    The last ones of each phase use PyTorch's own pool, for nothing ends them.
    """
    begins, last, node = dict[int, Unit](), dict[Phase, int | None](), None
    for number, operation in enumerate(step.operations):
        phase = Phase.BACKWARD if operation.phase.is_backward else operation.phase
        is_begin = phase is Phase.FORWARD or operation.forward != node
        node = operation.forward
        if number in boundaries if boundaries is not None else is_begin:
            last[phase] = number
        first = last.get(phase)
        if phase is not Phase.UPDATE and first is not None:
            begins[number] = Use.RUN, first
    return {number: unit for number, unit in begins.items() if unit[1] not in last.values()}
