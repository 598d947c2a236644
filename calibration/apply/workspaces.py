"""What the operations of a step take while they run, beside what they read and make: each runs once on the GPU to tell.

Libraries choose their kernels by rules of their own, and operators take memory that no dispatcher sees: workspaces of
convolutions, sums of a reduction, copies within a fused attention. Rules that say so without a GPU miss some
(`vdnnsim.cost.chosen_workspace`); where there is one, it is asked.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

import torch
from torch.utils._pytree import tree_unflatten

from calibration.apply.room import remembering
from calibration.capture.schemas import tensors_in
from calibration.capture.tape import Call, TensorLayout
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
) -> tuple[AdjustKernels, Mapping[int, Sequence[Request]], AbstractSet[int]]:
    """Return what lets each operation of a step run as PyTorch runs it, which takes the fastest kernel on offer.

    On a GPU it takes the workspaces that are found there; and by identity of an operation what it asked for there, in
    order, of which results are what it did not give back; and the storages that are on another device.

    Args:
        captured: the step.
        calls: how each of its operations was dispatched.
        device: where it will run.
    """
    found, elsewhere = dict[int, Sequence[Request]](), set[int]()
    if device.type == "cuda":
        with remembering(device), torch.random.fork_rng([device]), torch.cuda.device(device), torch.no_grad():
            begin, run = _changes(device), DryRun(device)
            operations = zip(captured.operations, calls, strict=True)
            ran = [(id(each), run.changes_of(call)) for each, call in operations if each.phase is not Phase.UPDATE]
            entries = _entries(device, _changes(device) - begin)
        requests = {span: _requests(entries[span.start - begin : span.stop - begin]) for _, span in ran}
        found = {identity: requests[span] for identity, span in ran if requests[span]}
        elsewhere |= run.elsewhere.keys()
        torch.cuda.empty_cache()

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, offered: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        fastest, operations = offered[0], workload.step.operations_of(layer.index, phase)
        kernels = zip(fastest.parts or (fastest,), operations, strict=True)
        return (KernelCost.joined([_with_workspace(one, found.get(id(each.captured), ())) for one, each in kernels]),)

    return adjust, found, elsewhere


def _with_workspace(kernel: KernelCost, requests: Sequence[Request]) -> KernelCost:
    """Return a kernel with what it takes at most beside its results."""
    if not requests:
        return kernel
    sizes = {each.key: each.nbytes for each in requests if each.nbytes is not None}
    *before, left = accumulate(-sizes[each.key] if each.nbytes is None else each.nbytes for each in requests)
    return replace(kernel, workspace_bytes=max(*before, left) - left if before else 0, workspaces=())


class DryRun:
    """Runs operations in the order of the step, each of a kind once.

    A fake tensor is of no device in particular; where a storage lies is seen of what made it. Attention leaves the
    state of its dropout on the host, where its backward reads it.

    Attributes:
        elsewhere: by storage that is on another device than most, which.
    """

    def __init__(self, device: torch.device) -> None:
        self.elsewhere: dict[int, torch.device] = {}
        self._device = device
        self._ran: dict[tuple[Call, tuple[torch.device, ...]], tuple[range, tuple[torch.device, ...]]] = {}

    def changes_of(self, call: Call) -> range:
        """Return which changes of memory are an operation's own, none where it does not run alone."""
        places = tuple(self._place_of(each) for each in call.read)
        if (call, places) not in self._ran:
            self._ran[call, places] = _ran(call, places, self._device)
        changes, made = self._ran[call, places]
        if len(made) == len(call.made):
            found = zip(call.made, made, strict=True)
            self.elsewhere |= {each: place for each, place in found if each is not None and place != self._device}
        return changes

    def _place_of(self, storage: int | None) -> torch.device:
        return self._device if storage is None else self.elsewhere.get(storage, self._device)


def _ran(call: Call, places: Sequence[torch.device], device: torch.device) -> tuple[range, tuple[torch.device, ...]]:
    """Run an operation on tensors in places; return its changes of memory, and where its results are."""
    made: tuple[torch.device, ...] = ()
    if call.func in _NEEDS_CONTENT:
        return range(0), made
    left = iter(places)
    try:
        leaves = [_zeros(each, next(left) if isinstance(each, TensorLayout) else device) for each in call.leaves]
        args, kwargs = tree_unflatten(leaves, call.arguments)
        if call.func in _RECURRENT:
            args = _with_one_buffer(args)
        for _ in range(_ATTEMPTS):
            before, first = torch.cuda.memory_allocated(device), _changes(device)
            results = call.func(*args, **kwargs)
            last = _changes(device)
            made = tuple(each.device for each in tensors_in(results))
            del results
            if torch.cuda.memory_allocated(device) == before:
                return range(first, last), made
    except (RuntimeError, ValueError, TypeError):
        pass
    return range(0), made


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
        case TensorLayout(dtype=dtype, shape=shape, stride=stride):
            return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
        case torch.device():
            return device
        case _:
            return leaf
