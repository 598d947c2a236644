"""Workspaces of a plan replaced by those that the same algorithms have on another GPU.

A sum of rows, for one, has a workspace that grows with the multiprocessors. When memory is allocated and freed does not
follow from its size, so that the plans of two cards differ in sizes alone.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from vdnnsim.cost.table import KernelChoice, KernelCost
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.step import Role
from vdnnsim.plans.operations import Communicate, Compute
from vdnnsim.plans.training_plan import Buffer, TrainingPlan


def algorithms_of(kernels: KernelChoice) -> Hashable:
    """Return the algorithm of each kernel, and which workspaces it allocates."""
    return tuple((each.algorithm, tuple(map(bool, _sizes(each)))) for each in _each(kernels))


def workspaces_of(kernels: KernelChoice) -> tuple[tuple[int, ...], ...]:
    """Return the bytes of the workspaces of each kernel, in its order."""
    return tuple(_sizes(each) for each in _each(kernels))


def with_workspaces(plan: TrainingPlan, kernels: KernelChoice) -> TrainingPlan | None:
    """Return a plan whose kernels have the same algorithms and allocate the same workspaces, with their sizes there.

    None where kernels share a workspace, or where one has several in a row.
    """
    sizes, step = dict[int, int](), plan.workload.step
    for each in plan.operations:
        if not isinstance(each, Compute | Communicate):
            continue
        own = [one.memory for one in each.operands if one.role is Role.WORKSPACE]
        made = [one for one in own if plan.buffers[one].storage is None]
        if not made:
            continue
        workspaces = _sizes(kernels[each.layer, each.phase].of(each.operation))
        if len(made) > 1 or len(workspaces) > 1 or made[0] in sizes:
            return None
        operation = step.operations_of(each.layer, each.phase)[each.operation]
        sizes[made[0]] = operation.temporary_bytes + workspaces[0]
    return replace(plan, buffers=tuple(_sized(each, sizes.get(at)) for at, each in enumerate(plan.buffers)))


def captured_as(plan: TrainingPlan, workload: CapturedWorkload) -> TrainingPlan:
    """Return the plan of a captured step for another card for which the same was captured."""
    planned = plan.workload
    if not isinstance(planned, CapturedWorkload) or planned.captured is workload.captured:
        return plan
    return replace(plan, workload=replace(planned, captured=workload.captured))


def _sized(buffer: Buffer, nbytes: int | None) -> Buffer:
    return buffer if nbytes in (None, buffer.nbytes) else replace(buffer, nbytes=nbytes)


def _each(kernels: KernelChoice) -> Iterator[KernelCost]:
    for kernel in kernels.values():
        yield from kernel.parts or (kernel,)


def _sizes(kernel: KernelCost) -> tuple[int, ...]:
    return kernel.workspaces or (kernel.workspace_bytes,)
