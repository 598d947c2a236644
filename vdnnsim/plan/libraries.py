"""The workspaces of cuBLAS in the plan of a captured model: one for each thread of PyTorch that multiplies matrices.

PyTorch takes them at the first product of a thread and keeps them (`vdnnsim.memory.process`): forward and the update run
on one thread, backward and what is computed again in it on another. Of iterations after the first, which find them, they
are buffers that a plan begins with and holds throughout.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from vdnnsim.dnn.captured_step import ProductWork
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.process import cublas_workspace_bytes
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.operations import Allocate, Compute, Release
from vdnnsim.plan.training_plan import Buffer, BufferKind, TrainingPlan

_THREADS: Final = {False: "forward", True: "backward"}
"""By whether it is that of backward."""


def with_cublas_workspaces(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan with the workspaces that its products use; the same where nothing of it was captured for CUDA."""
    capability = _compute_capability(plan)
    threads = [] if capability is None else [name for late, name in _THREADS.items() if late in set(_products(plan))]
    if not threads:
        return plan
    assert capability is not None, "there are no threads without it"
    nbytes, stage = cublas_workspace_bytes(capability), plan.layer_stages[0]
    ids = range(len(plan.buffers), len(plan.buffers) + len(threads))
    buffers = (
        Buffer(f"workspace of cuBLAS for {each}", BufferKind.WORKSPACE, nbytes, stage, given=True) for each in threads
    )
    return replace(
        plan,
        buffers=(*plan.buffers, *buffers),
        operations=(*(Allocate(each, 0, Phase.FORWARD) for each in ids), *plan.operations, *map(Release, ids)),
    )


def cublas_bytes(workload: CapturedWorkload, granule_bytes: int) -> int:
    """Return what the workspaces of cuBLAS take at most."""
    capability = workload.captured.compute_capability
    return 0 if capability is None else len(_THREADS) * round_up(cublas_workspace_bytes(capability), granule_bytes)


def _compute_capability(plan: TrainingPlan) -> tuple[int, int] | None:
    workload = plan.workload
    return workload.captured.compute_capability if isinstance(workload, CapturedWorkload) else None


def _products(plan: TrainingPlan) -> Iterator[bool]:
    """Yield for each product of a plan whether it runs on the thread of backward."""
    step = plan.workload.step
    for each in plan.operations:
        if isinstance(each, Compute):
            captured = step.operations_of(each.layer, each.phase)[each.operation].captured
            if captured is not None and isinstance(captured.work, ProductWork):
                yield each.phase.is_backward or each.repeat > 0
