"""What the operations of a step take while they run, beside what they read and make: each runs once on the GPU to tell.

Libraries choose their kernels by rules of their own, and operators take memory that no dispatcher sees: the workspace of
a convolution, sums of a reduction, copies within a fused attention. Rules that say so without a GPU miss some
(`vdnnsim.cost.chosen_workspace`); where there is one, it is asked.
"""

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from torch.utils._pytree import tree_unflatten

from calibration.capture.schemas import tensors_in
from calibration.capture.tape import Call, Lying
from vdnnsim.cost.table import AdjustKernels, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload

_ATTEMPTS: Final = 3
"""The first run of a kind of kernels may take memory that stays, as cuBLAS does."""
_NEEDS_CONTENT: Final = frozenset({torch.ops.aten.multinomial.default})
"""Kernels that refuse zeros where they run, from which a process does not recover."""


def chosen_here(captured: CapturedStep, calls: Sequence[Call], device: torch.device) -> AdjustKernels:
    """Return what lets each operation of a step run as PyTorch runs it, which takes the fastest kernel on offer.

    On a GPU it takes the workspaces that are found there.

    Args:
        captured: the step.
        calls: how each of its operations was dispatched.
        device: where it will run.
    """
    found: dict[int, int] = {}
    if device.type == "cuda":
        asked: dict[Call, int | None] = {}
        with torch.random.fork_rng([device]), torch.cuda.device(device), torch.no_grad():
            for operation, call in zip(captured.operations, calls, strict=True):
                if operation.phase is Phase.UPDATE:
                    continue
                if call not in asked:
                    asked[call] = _workspace_bytes(call, device)
                if (nbytes := asked[call]) is not None:
                    found[id(operation)] = nbytes
        torch.cuda.empty_cache()

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, offered: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        fastest = offered[0]
        parts = [
            replace(kernel, workspace_bytes=found[id(each.captured)], workspaces=())
            if id(each.captured) in found
            else kernel
            for kernel, each in zip(
                fastest.parts or (fastest,), workload.step.operations_of(layer.index, phase), strict=True
            )
        ]
        return (KernelCost.joined(parts),)

    return adjust


def _workspace_bytes(call: Call, device: torch.device) -> int | None:
    """Return the most that an operation takes beside its results; None where it does not run alone."""
    if call.func in _NEEDS_CONTENT:
        return None
    try:
        leaves = [_zeros(each, device) for each in call.leaves]
        args, kwargs = tree_unflatten(leaves, call.arguments)
        for _ in range(_ATTEMPTS):
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            results = call.func(*args, **kwargs)
            held = torch.cuda.memory_allocated(device)
            most = torch.cuda.max_memory_allocated(device)
            del results
            if torch.cuda.memory_allocated(device) == before:
                return most - held
    except (RuntimeError, ValueError, TypeError):
        pass
    return None


def _zeros(leaf: object, device: torch.device) -> object:
    match leaf:
        case Lying(dtype=dtype, shape=shape, stride=stride):
            return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        case torch.device():
            return device
        case _:
            return leaf
