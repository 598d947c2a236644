"""Measures memory requests and time of each operation of a captured step on its GPU.

Libraries choose kernels by their own rules, and operators allocate memory that no dispatcher sees: workspaces of
convolutions, partial sums, copies within fused attention. Rules without a GPU miss some
(`vdnnsim.cost.pytorch_workspace`), and a profile's cost model is fitted to other kernels.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

import torch
from torch.utils._pytree import tree_unflatten

from calibration.apply.reservation import memory_history
from calibration.capture.record import Call, TensorLayout
from calibration.capture.schemas import tensors_in
from vdnnsim.cost.table import AdjustKernels, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.memory.requests import Request

_ATTEMPTS: Final = 3
"""The first run may allocate memory that stays, as cuBLAS does; a pause may be too short."""
_RUNS: Final = 4
_PAUSE_CYCLES: Final = 2_000_000
"""About a millisecond; four times as long with each attempt."""
_NEEDS_CONTENT: Final = frozenset({torch.ops.aten.multinomial.default})
"""Kernels that fail on zeros, from which a process does not recover."""
_INTEGERS: Final = frozenset({torch.int32, torch.int64})
_READS_ALL: Final = frozenset(
    {
        torch.ops.aten.max_pool2d_with_indices_backward.default,
        torch.ops.aten.nll_loss_forward.default,
        torch.ops.aten.nll_loss_backward.default,
    }
)
"""Kernels whose work does not depend on their integers."""
_RECURRENT: Final = frozenset({torch.ops.aten._cudnn_rnn.default, torch.ops.aten._cudnn_rnn_backward.default})  # noqa: SLF001 - operators' names


def measured_here(
    captured: CapturedStep,
    calls: Sequence[Call],
    device: torch.device,
    *,
    is_timed: bool,
    limit_bytes: int | None = None,
) -> tuple[AdjustKernels, Mapping[int, Sequence[Request]], AbstractSet[int]]:
    """Return a choice of kernels with measured workspaces and times, measured requests, and storages on other devices.

    The fastest kernel on offer is chosen, as PyTorch does. Requests are by number of an operation, in order; those not
    freed are its results. Without a GPU nothing is measured; times are measured if `is_timed`. What does not run alone
    within `limit_bytes` of reserved memory is not measured.
    """
    found, elsewhere = dict[int, Sequence[Request]](), set[int]()
    seconds: dict[int, float] = {}
    if device.type == "cuda":
        with (
            memory_history(device),
            torch.random.fork_rng([device]),
            torch.cuda.device(device),
            torch.no_grad(),
            _within(limit_bytes, device),
        ):
            begin, run = _changes(device), DryRun(device, is_timed=is_timed)
            operations = enumerate(zip(captured.operations, calls, strict=True))
            ran = [(at, run.measured(call)) for at, (each, call) in operations if each.phase is not Phase.UPDATE]
            entries = _entries(device, _changes(device) - begin)
        spans = {each.changes for _, each in ran}
        requests = {span: _requests(entries[span.start - begin : span.stop - begin]) for span in spans}
        found = {number: requests[each.changes] for number, each in ran if requests[each.changes]}
        seconds = {number: each.seconds for number, each in ran if each.seconds is not None}
        elsewhere |= run.elsewhere.keys()
        # A workspace of cuBLAS may be in the segment of a large block, and keep it.
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
        torch.cuda.empty_cache()

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, offered: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        fastest, numbers = offered[0], workload.step.numbers_of(layer.index, phase)
        kernels = zip(fastest.parts or (fastest,), numbers, strict=True)
        return (KernelCost.joined([_as_found(one, number) for one, number in kernels]),)

    def _as_found(kernel: KernelCost, operation: int) -> KernelCost:
        own_bytes = captured.operations[operation].temporary_bytes
        kernel = _with_workspace(kernel, found.get(operation, ()), own_bytes)
        if operation not in seconds:
            return kernel
        return replace(kernel, seconds=seconds[operation], origin=Origin.MEASURED)

    return adjust, found, elsewhere


@contextmanager
def _within(limit_bytes: int | None, device: torch.device) -> Iterator[None]:
    """Have PyTorch free its cache before it reserves more than a limit, and raise OutOfMemoryError beyond it."""
    if limit_bytes is None:
        yield
        return
    before = torch.cuda.get_per_process_memory_fraction(device)
    of_device = limit_bytes / torch.cuda.get_device_properties(device).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(before, of_device), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)


def _with_workspace(kernel: KernelCost, requests: Sequence[Request], own_bytes: int) -> KernelCost:
    """Return a kernel whose workspace is the peak of its requests beside results and memory of its own."""
    if not requests:
        return kernel
    sizes = {each.key: each.nbytes for each in requests if each.nbytes is not None}
    *before, left = accumulate(-sizes[each.key] if each.nbytes is None else each.nbytes for each in requests)
    peak = max(*before, left) - left if before else 0
    return replace(kernel, workspace_bytes=max(peak - own_bytes, 0), workspaces=())


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurement of an operation that ran alone.

    Attributes:
        changes: its changes of memory; empty if it cannot run alone.
        seconds: of its kernels; None if it was not timed.
    """

    changes: range = range(0)
    made: tuple[torch.device, ...] = ()
    seconds: float | None = None


class DryRun:
    """Runs each distinct operation once, in the order of the step.

    Attributes:
        elsewhere: devices of storages on other devices, as attention's dropout state on the host.
    """

    def __init__(self, device: torch.device, *, is_timed: bool) -> None:
        self.elsewhere: dict[int, torch.device] = {}
        self._device = device
        self._is_timed = is_timed
        self._ran: dict[tuple[Call, tuple[torch.device, ...]], Measured] = {}

    def measured(self, call: Call) -> Measured:
        own = self._device
        places = tuple(own if each is None else self.elsewhere.get(each, own) for each in call.read)
        if (call, places) not in self._ran:
            self._ran[call, places] = _ran(call, places, self._device, is_timed=self._is_timed)
        measured = self._ran[call, places]
        if len(measured.made) == len(call.made):
            found = zip(call.made, measured.made, strict=True)
            self.elsewhere |= {each: place for each, place in found if each is not None and place != self._device}
        return measured


def _ran(call: Call, places: Sequence[torch.device], device: torch.device, *, is_timed: bool) -> Measured:
    """Run an operation on zeros in places."""
    made: tuple[torch.device, ...] = ()
    if call.func in _NEEDS_CONTENT:
        return Measured()
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
                is_timed = is_timed and _is_indifferent(call)
                seconds = kernel_seconds(lambda: call.func(*args, **kwargs), device) if is_timed else None
                return Measured(range(first, last), made, seconds)
    except (RuntimeError, ValueError, TypeError):
        pass
    return Measured(made=made)


def _is_indifferent(call: Call) -> bool:
    """Whether its time is the same for zeros: integers may be indices."""
    chooses = any(isinstance(each, TensorLayout) and each.shape and each.dtype in _INTEGERS for each in call.leaves)
    return not chooses or call.func in _READS_ALL


def _changes(device: torch.device) -> int:
    stats = torch.cuda.memory_stats(device)
    count: int = stats["allocation.all.allocated"] + stats["allocation.all.freed"]
    return count


def _entries(device: torch.device, count: int) -> Sequence[Mapping[str, Any]]:
    """Return the last entries of PyTorch's memory history."""
    traces = torch.cuda.memory._snapshot(device)["device_traces"]  # noqa: SLF001 - its only form
    entries = [each for each in traces[device.index or 0] if each["action"] in ("alloc", "free_requested")]
    return entries[len(entries) - count :]


def _requests(entries: Sequence[Mapping[str, Any]]) -> Sequence[Request]:
    requests, held = list[Request](), dict[int, int]()
    for each in entries:
        if each["action"] == "alloc":
            held[each["addr"]] = len(requests)
            requests.append(Request(len(requests), each["size"]))
        elif each["addr"] in held:
            requests.append(Request(held.pop(each["addr"]), None))
    return requests


def _with_one_buffer(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a recurrent layer with a buffer of its weights, which fake tensors lack."""
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


def kernel_seconds(run: Callable[[], object], device: torch.device) -> float | None:
    """Return the mean kernel time of a few runs of an operation, which has run before.

    A pause of the stream until all runs are queued excludes host time.

    Returns:
        None if the host waits for the GPU within the operation.
    """
    for attempt in range(_ATTEMPTS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        # As in PyTorch's own tests; there is no public way.
        torch._C._cuda_sleep(_PAUSE_CYCLES * 4**attempt)  # noqa: SLF001
        begin.record()
        for _ in range(_RUNS):
            run()
        end.record()
        is_ahead = not begin.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        if is_ahead:
            milliseconds: float = begin.elapsed_time(end)
            return milliseconds / 1000 / _RUNS
    return None
