"""The workspaces of cuBLAS in the plan of a captured model: one for each thread of PyTorch that multiplies matrices.

PyTorch takes them at the first product of a thread and keeps them (`vdnnsim.memory.process`): forward and the update
run on one thread, backward and what is computed again in it on another. To iterations after the first, which find them,
they are buffers that a plan begins with and holds throughout.
"""

from dataclasses import replace
from typing import Final

from vdnnsim.dnn.captured_step import ProductWork
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.process import cublas_workspace_bytes
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan

_NAMES: Final = {False: "workspace of cuBLAS for forward", True: "workspace of cuBLAS for backward"}
"""By whether it is of the thread of backward."""


def with_cublas_workspaces(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan with the workspaces that its products use; the same where nothing of it was captured for CUDA."""
    workload = plan.workload
    capability = workload.captured.compute_capability if isinstance(workload, CapturedWorkload) else None
    if capability is None:
        return plan
    nbytes, late = cublas_workspace_bytes(capability), _first_products(plan)
    ids = range(len(plan.buffers), len(plan.buffers) + len(late))
    buffers = (
        Buffer(_NAMES[each], BufferKind.WORKSPACE, nbytes, plan.layer_stages[0], given=True) for each in sorted(late)
    )
    return replace(
        plan,
        buffers=(*plan.buffers, *buffers),
        operations=(*(Allocate(each, 0, Phase.FORWARD) for each in ids), *plan.operations, *map(Release, ids)),
    )


def first_products(plan: TrainingPlan) -> dict[int, int]:
    """Return of each workspace of cuBLAS in a plan the position of the first product that uses it."""
    late = _first_products(plan)
    names = {_NAMES[each]: position for each, position in late.items()}
    return {number: names[each.name] for number, each in enumerate(plan.buffers) if each.name in names}


def cublas_bytes(workload: CapturedWorkload, granule_bytes: int) -> int:
    """Return what the workspaces of cuBLAS take at most."""
    capability = workload.captured.compute_capability
    return 0 if capability is None else len(_NAMES) * round_up(cublas_workspace_bytes(capability), granule_bytes)


def _first_products(plan: TrainingPlan) -> dict[bool, int]:
    """Return the position of the first product of each thread, by whether it is that of backward."""
    step, found = plan.workload.step, dict[bool, int]()
    for position, each in enumerate(plan.operations):
        if isinstance(each, Compute):
            captured = step.operations_of(each.layer, each.phase)[each.operation].captured
            if captured is not None and isinstance(captured.work, ProductWork):
                found.setdefault(each.phase.is_backward or each.repeat > 0, position)
    return found
