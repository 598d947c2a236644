"""What the operations of a step take while they run, beside what they read and make: each runs once on the GPU to tell.

Libraries choose their kernels by rules of their own, and operators take memory that no dispatcher sees: workspaces of
convolutions, sums of a reduction, copies within a fused attention. Rules that say so without a GPU miss some
(`vdnnsim.cost.chosen_workspace`); where there is one, it is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

import torch
from torch.utils._pytree import tree_unflatten

from calibration.apply.room import remembering
from calibration.capture.tape import Call, Lying
from vdnnsim.cost.table import AdjustKernels, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import Request

_ATTEMPTS: Final = 3
"""The first run of a kind of kernels may take memory that stays, as cuBLAS does."""
_NEEDS_CONTENT: Final = frozenset({torch.ops.aten.multinomial.default})
"""Kernels that refuse zeros where they run, from which a process does not recover."""
_RECURRENT: Final = frozenset({torch.ops.aten._cudnn_rnn.default, torch.ops.aten._cudnn_rnn_backward.default})  # noqa: SLF001 - operators' names


def chosen_here(
    captured: CapturedStep, calls: Sequence[Call], device: torch.device
) -> tuple[AdjustKernels, Mapping[int, Sequence[Request]]]:
    """Return what lets each operation of a step run as PyTorch runs it, which takes the fastest kernel on offer.

    On a GPU it takes the workspaces that are found there; and by identity of an operation what it asked for there, in
    order, of which results are what it did not give back.

    Args:
        captured: the step.
        calls: how each of its operations was dispatched.
        device: where it will run.
    """
    found: dict[int, Sequence[Request]] = {}
    if device.type == "cuda":
        with remembering(device), torch.random.fork_rng([device]), torch.cuda.device(device), torch.no_grad():
            begin, asked = _changes(device), dict[Call, range]()
            operations = zip(captured.operations, calls, strict=True)
            ran = [(id(each), call) for each, call in operations if each.phase is not Phase.UPDATE]
            for _, call in ran:
                if call not in asked:
                    asked[call] = _ran(call, device)
            entries = _entries(device, _changes(device) - begin)
        requests = {call: _requests(entries[span.start - begin : span.stop - begin]) for call, span in asked.items()}
        found = {identity: requests[call] for identity, call in ran if requests[call]}
        torch.cuda.empty_cache()

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, offered: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        fastest, operations = offered[0], workload.step.operations_of(layer.index, phase)
        kernels = zip(fastest.parts or (fastest,), operations, strict=True)
        return (KernelCost.joined([_with_workspace(one, found.get(id(each.captured), ())) for one, each in kernels]),)

    return adjust, found


def _with_workspace(kernel: KernelCost, requests: Sequence[Request]) -> KernelCost:
    """Return a kernel with what it takes at most beside its results."""
    if not requests:
        return kernel
    sizes = {each.key: each.nbytes for each in requests if each.nbytes is not None}
    *before, left = accumulate(-sizes[each.key] if each.nbytes is None else each.nbytes for each in requests)
    return replace(kernel, workspace_bytes=max(*before, left) - left if before else 0, workspaces=())


def _ran(call: Call, device: torch.device) -> range:
    """Run an operation; return which changes of memory were its own, none where it does not run alone."""
    if call.func in _NEEDS_CONTENT:
        return range(0)
    try:
        args, kwargs = tree_unflatten([_zeros(each, device) for each in call.leaves], call.arguments)
        if call.func in _RECURRENT:
            args = _with_one_buffer(args)
        for _ in range(_ATTEMPTS):
            before, first = torch.cuda.memory_allocated(device), _changes(device)
            results = call.func(*args, **kwargs)
            last = _changes(device)
            del results
            if torch.cuda.memory_allocated(device) == before:
                return range(first, last)
    except (RuntimeError, ValueError, TypeError):
        pass
    return range(0)


def _changes(device: torch.device) -> int:
    """Return how often memory was taken or given back."""
    stats = torch.cuda.memory_stats(device)
    count: int = stats["allocation.all.allocated"] + stats["allocation.all.freed"]
    return count


def _entries(device: torch.device, count: int) -> Sequence[Mapping[str, Any]]:
    """Return the last so many changes of memory that PyTorch remembers."""
    traces = torch.cuda.memory._snapshot(device)["device_traces"]  # noqa: SLF001 - its only form
    entries = [each for each in traces[device.index or 0] if each["action"] in ("alloc", "free_requested")]
    return entries[len(entries) - count :]


def _requests(entries: Sequence[Mapping[str, Any]]) -> Sequence[Request]:
    """Return what an operation asked for, by address as PyTorch remembers it."""
    requests, held = list[Request](), dict[int, int]()
    for each in entries:
        if each["action"] == "alloc":
            held[each["addr"]] = len(requests)
            requests.append(Request(len(requests), each["size"]))
        elif each["addr"] in held:
            requests.append(Request(held.pop(each["addr"]), None))
    return requests


def _with_one_buffer(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a recurrent layer with the one buffer of its weights: fake ones have none."""
    batch, weights, count, buffer, *others = args
    if buffer is None or buffer.numel() == 0:
        buffer = weights[0].new_zeros(sum(each.numel() for each in weights))
    return (batch, weights, count, buffer, *others)


def _zeros(leaf: object, device: torch.device) -> object:
    match leaf:
        case Lying(dtype=dtype, shape=shape, stride=stride):
            return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        case torch.device():
            return device
        case _:
            return leaf
