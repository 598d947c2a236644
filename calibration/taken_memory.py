"""What an executed plan really took of the device: counted as the simulator counts, or why it was too much."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from calibration.compiled_plan import CompiledPlan
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.operations import Allocate, AllocateExtent, Compute
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, Placement, Pool, place_unlimited
from vdnnsim.plans.training_plan import BufferKind


def placement_of(compiled: CompiledPlan, limits: MemoryLimits) -> Placement:
    """Count a plan as `ideal` does, but with the workspaces that kernels took instead of those that it foresaw."""
    sizes = zip(compiled.plan.buffers, compiled.taken_bytes, strict=True)
    taken = replace(compiled.plan, buffers=tuple(replace(buffer, nbytes=nbytes) for buffer, nbytes in sizes))
    return place_unlimited(taken, replace(limits, model=MemoryModel.IDEAL))


def overflow_at(
    compiled: CompiledPlan, position: int, held: Mapping[int, int], limits: MemoryLimits, memory_bytes: int
) -> DoesNotFit:
    """Say for which operation the device had no room, and what held the rest.

    Args:
        compiled: what was executed.
        position: of the operation.
        held: bytes of the buffers that held memory.
        limits: what the plan was allowed to use.
        memory_bytes: what the device has.
    """
    plan = compiled.plan
    operation = plan.operations[position]
    assert isinstance(operation, Allocate | AllocateExtent | Compute), f"operation {position} takes no memory"
    if isinstance(operation, Allocate):
        buffer = operation.buffer
        nbytes = compiled.taken_bytes[buffer]
    elif isinstance(operation, AllocateExtent):
        buffer, nbytes = operation.buffer, len(operation.extent)
    else:
        call = compiled.calls[position]
        buffer = operation.writes[0] if call.workspace is None else call.workspace
        nbytes = call.workspace_bytes
    held_bytes: Counter[BufferKind] = Counter()
    for each, taken in held.items():
        held_bytes[plan.buffers[each].kind] += round_up(taken, limits.granule_bytes)
    capacity = min(limits.device_bytes, memory_bytes)
    free = max(0, capacity - held_bytes.total())
    return DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=position,
        buffer=buffer,
        layer=operation.layer,
        phase=operation.phase,
        requested_bytes=round_up(nbytes, limits.granule_bytes),
        free_bytes=free,
        largest_free_bytes=free,
        capacity_bytes=capacity,
        held_bytes=tuple(held_bytes.most_common()),
    )
