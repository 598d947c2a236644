"""What the operations of a step take while they run, beside what they read and make: each runs once on the GPU to tell.

Libraries choose their kernels by rules of their own, and operators take memory that no dispatcher sees: workspaces of
convolutions, sums of a reduction, copies within a fused attention. Rules that say so without a GPU miss some
(`vdnnsim.cost.chosen_workspace`); where there is one, it is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_unflatten

from calibration.capture.tape import Call, Lying
from vdnnsim.cost.table import AdjustKernels, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload

_ATTEMPTS: Final = 3
"""The first run of a kind of kernels may take memory that stays, as cuBLAS does."""
_NEEDS_CONTENT: Final = frozenset({torch.ops.aten.multinomial.default})
"""Kernels that refuse zeros where they run, from which a process does not recover."""
_RECURRENT: Final = frozenset({torch.ops.aten._cudnn_rnn.default, torch.ops.aten._cudnn_rnn_backward.default})  # noqa: SLF001 - operators' names


def chosen_here(captured: CapturedStep, calls: Sequence[Call], device: torch.device) -> AdjustKernels:
    """Return what lets each operation of a step run as PyTorch runs it, which takes the fastest kernel on offer.

    On a GPU it takes the workspaces that are found there.

    Args:
        captured: the step.
        calls: how each of its operations was dispatched.
        device: where it will run.
    """
    found: dict[int, tuple[int, ...]] = {}
    if device.type == "cuda":
        asked: dict[Call, tuple[int, ...]] = {}
        with torch.random.fork_rng([device]), torch.cuda.device(device), torch.no_grad():
            for operation, call in zip(captured.operations, calls, strict=True):
                if operation.phase is Phase.UPDATE:
                    continue
                if call not in asked:
                    asked[call] = _workspaces(call, device)
                if asked[call]:
                    found[id(operation)] = asked[call]
        torch.cuda.empty_cache()

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, offered: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        fastest, operations = offered[0], workload.step.operations_of(layer.index, phase)
        kernels = zip(fastest.parts or (fastest,), operations, strict=True)
        return (KernelCost.joined([_with_workspaces(one, found.get(id(each.captured), ())) for one, each in kernels]),)

    return adjust


def _with_workspaces(kernel: KernelCost, found: tuple[int, ...]) -> KernelCost:
    return replace(kernel, workspace_bytes=max(found), workspaces=found) if found else kernel


def _workspaces(call: Call, device: torch.device) -> tuple[int, ...]:
    """Return what an operation takes beside its results, one after the other; nothing where it does not run alone."""
    if call.func in _NEEDS_CONTENT:
        return ()
    try:
        args, kwargs = tree_unflatten([_zeros(each, device) for each in call.leaves], call.arguments)
    except (RuntimeError, ValueError, TypeError):
        return ()
    if call.func in _RECURRENT:
        args = _with_one_buffer(args)
    found = [_workspace_bytes(call.func, each, kwargs, device) for each in _in_turn(call.func, args)]
    return tuple(each for each in found if each is not None) if None not in found else ()


def _in_turn(func: OpOverload, args: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
    """Return the calls that an operation does one after the other: one for each gradient of a convolution.

    Source: aten/src/ATen/native/cudnn/ConvShared.cpp.
    """
    if func is not torch.ops.aten.convolution_backward.default:
        return [args]
    *others, wanted = args
    data, weight, bias = wanted
    return [(*others, mask) for mask in ([data, False, False], [False, weight, bias]) if any(mask)]


def _with_one_buffer(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a recurrent layer with the one buffer of its weights: fake ones have none."""
    batch, weights, count, buffer, *others = args
    if buffer is None or buffer.numel() == 0:
        buffer = weights[0].new_zeros(sum(each.numel() for each in weights))
    return (batch, weights, count, buffer, *others)


def _workspace_bytes(
    func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], device: torch.device
) -> int | None:
    """Return the most that an operation takes beside its results; None where it does not run alone."""
    try:
        for _ in range(_ATTEMPTS):
            torch.cuda.reset_peak_memory_stats(device)
            before, _ = _requested_bytes(device)
            results = func(*args, **kwargs)
            held, most = _requested_bytes(device)
            del results
            if _requested_bytes(device)[0] == before:
                return most - held
    except (RuntimeError, ValueError, TypeError):
        pass
    return None


def _requested_bytes(device: torch.device) -> tuple[int, int]:
    """Return what is asked for now and was at most; blocks are larger, as the pool happens to have them."""
    stats = torch.cuda.memory_stats(device)
    return stats["requested_bytes.all.current"], stats["requested_bytes.all.peak"]


def _zeros(leaf: object, device: torch.device) -> object:
    match leaf:
        case Lying(dtype=dtype, shape=shape, stride=stride):
            return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        case torch.device():
            return device
        case _:
            return leaf
