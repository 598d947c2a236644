"""Reserves the memory of a planned loop in segments of PyTorch's allocator, so that its blocks lie where planned.

The segments are those of `vdnnsim.plans.reserved_memory`; the allocator splits and merges blocks within each, so steps
that follow the plan reserve no more.
"""

import contextlib
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from calibration.apply.model_discovery import kept_for, requested_beside_bytes
from calibration.apply.private_pools import FirstUpdate, PrivatePools, has_states
from calibration.apply.saved_storage import SavedTensor
from calibration.apply.unplanned_offload import GpuBudget
from calibration.capture.nodes import is_in_backward
from calibration.pretend.inside.modules import memory_labelled
from calibration.pretend.inside.peak import RESERVATION
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import PlanWarning
from vdnnsim.memory.segments import LARGE_SEGMENT_BYTES, OWN_SEGMENT_BYTES
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.repetition import whole_pages
from vdnnsim.plans.reserved_memory import STATES, ReservedMemory
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_bytes

_ENTRIES: Final = 1_000_000
_NAMED_BYTES: Final = 1 << 20
"""Less may be a batch that was live when the plan was made."""
_OURS: Final = Path(__file__).parents[2]
_NOT_OF_USERS: Final = (
    *(_OURS / "calibration", _OURS / "vdnnsim"),
    *(Path(contextlib.__file__), Path(torch.__file__).parent),
)


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """The planned memory of a loop on a GPU.

    Attributes:
        reserved: to reserve ahead; None for nothing.
        beside_bytes: of PyTorch, not of the model, its optimizer or its batch.
        has_products: whether a step has products, for which cuBLAS allocates workspaces.
    """

    reserved: ReservedMemory | None = None
    beside_bytes: int = 0
    batch_bytes: int = 0
    has_products: bool = False


class Reservation:
    """The memory that PyTorch may reserve on a GPU for a loop.

    Args:
        device: without effect if it is no GPU.
        limit_bytes: of reserved memory, by the user; None for all.

    Attributes:
        pools: private ones.
        beyond_bytes: largest excess over the limit so far.
        is_full_of_gaps: whether steps that followed the plan exceeded it, by fragmentation.
    """

    def __init__(self, device: torch.device, limit_bytes: int | None, planned: PlannedMemory) -> None:
        self._device, self._planned = device, planned
        self._limit_bytes = limit_bytes if device.type == "cuda" else None
        self._reserved_bytes = self._expected_bytes = self._workspace_bytes = 0
        self._budget: GpuBudget | None = None
        self._was_left = self._has_warned = False
        self.pools = PrivatePools(device)
        self._first_update: FirstUpdate | None = None
        self.beyond_bytes = 0
        self.is_full_of_gaps = False

    @property
    def is_limited(self) -> bool:
        """Whether a step that leaves its plan may need memory that is not there."""
        return self._limit_bytes is not None

    def take(self, model: nn.Module) -> None:
        """Reserve the memory before a step of the model, unless it is reserved; warn once of an excess."""
        if self._limit_bytes is None:
            return
        # A failed update leaves that of the states in use.
        self.pools.use(0)
        stats = torch.cuda.memory_stats(self._device)
        reserved_bytes = stats["reserved_bytes.all.current"]
        self._note(stats["reserved_bytes.all.peak"], model)
        self._budget = GpuBudget(self._device, self._limit_bytes, stats["allocated_bytes.all.current"])
        if self._first_update is not None and has_states(model):
            self._first_update.end()
            self._first_update = None
        if self._planned.reserved is None or 0 < self._reserved_bytes <= reserved_bytes:
            self._reserved_bytes = self._reserved_bytes or reserved_bytes
            return
        with torch.cuda.device(self._device):
            small_bytes = self._allocate_workspaces()
            to_come_bytes = self._reserve(self._planned.reserved, model, small_bytes)
        self._reserved_bytes = torch.cuda.memory_reserved(self._device)
        self._expected_bytes = self._reserved_bytes + to_come_bytes

    def _allocate_workspaces(self) -> int:
        """Allocate workspaces of cuBLAS anew, in segments of their own; return bytes reserved for other small blocks.

        A loop without a plan may have left one in the segment of its largest block.
        """
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
        torch.cuda.empty_cache()
        before_bytes = torch.cuda.memory_allocated(self._device)
        small_bytes: int = torch.cuda.memory_stats(self._device)["reserved_bytes.small_pool.current"]
        if self._planned.has_products:
            # Those of cuBLASLt are beside the plan.
            before_bytes += _allocate_cublas_workspaces(self._device)
            torch.cuda.empty_cache()
        self._workspace_bytes = torch.cuda.memory_allocated(self._device) - before_bytes
        return small_bytes

    def _reserve(self, reserved: ReservedMemory, model: nn.Module, small_bytes: int) -> int:
        """Allocate and free the segments of all pools; return bytes of those that steps will add.

        `small_bytes` are reserved for small blocks already.
        """
        to_come_bytes = max(0, reserved.small_bytes - small_bytes)
        if reserved.states_bytes and not has_states(model):
            to_come_bytes += reserved.states_bytes
            self._first_update = self._first_update or FirstUpdate(model, self.pools, STATES)
        left_bytes = reserved.capacity_bytes + self._planned.beside_bytes - to_come_bytes
        left_bytes -= torch.cuda.memory_reserved(self._device)
        held_bytes = self._held_bytes(model)
        if held_bytes >= _NAMED_BYTES:
            # They exceed the limit by their segments. By a smaller reservation the largest block would exceed it, too.
            left_bytes += math.ceil(held_bytes / LARGE_SEGMENT_BYTES) * LARGE_SEGMENT_BYTES
        others = [(pool, nbytes) for pool, sizes in reserved.segments.items() for nbytes in sizes]
        own_bytes = whole_pages(left_bytes - sum(nbytes for _, nbytes in others), reserved.settings)
        if own_bytes < OWN_SEGMENT_BYTES:
            own_bytes = 0
        # The reservation is no peak of the loop.
        torch.cuda.reset_peak_memory_stats(self._device)
        with memory_labelled(RESERVATION):
            segments = []
            try:
                for pool, nbytes in ((0, own_bytes), *others):
                    with self.pools.using(pool):
                        segments.append(torch.empty(nbytes, dtype=torch.uint8, device=self._device))
            except torch.OutOfMemoryError:
                warn(f"{format_bytes(left_bytes)} of the GPU are not free, as planned; memory may run out")
            segments.clear()
            torch.cuda.reset_peak_memory_stats(self._device)
        return to_come_bytes

    def save(self, tensor: torch.Tensor, model: nn.Module | None) -> SavedTensor:
        """Return the replacement of a tensor saved after a departure, or within backward by a checkpoint."""
        if is_in_backward():
            return SavedTensor(tensor)
        self._was_left = True
        return SavedTensor(tensor) if self._budget is None else self._budget.save(tensor, model)

    def end(self) -> int:
        """Return the largest excess over the limit so far, in bytes."""
        if self._limit_bytes is not None and self._reserved_bytes:
            most_bytes = torch.cuda.max_memory_reserved(self._device)
            self.beyond_bytes = max(self.beyond_bytes, most_bytes - self._limit_bytes)
        return self.beyond_bytes

    def _note(self, reserved_bytes: int, model: nn.Module) -> None:
        """Warn once of an excess over the limit, with its causes."""
        assert self._limit_bytes is not None, "there is one"
        beyond_bytes = max(0, reserved_bytes - self._limit_bytes)
        self.beyond_bytes = max(self.beyond_bytes, beyond_bytes)
        # Before the first step, reserved memory is freed.
        if not (beyond_bytes and self._reserved_bytes) or self._has_warned:
            return
        self._has_warned = True
        held_bytes = self._held_bytes(model)
        has_gaps = held_bytes < beyond_bytes and reserved_bytes > self._expected_bytes
        self.is_full_of_gaps = has_gaps and not self._was_left
        warn(excess_message(self._limit_bytes, beyond_bytes, held_bytes, was_left=self._was_left, has_gaps=has_gaps))

    def _held_bytes(self, model: nn.Module) -> int:
        """Return bytes of tensors that the plan was not made for."""
        planned_bytes = self._planned.beside_bytes + self._planned.batch_bytes + self._workspace_bytes
        return max(0, requested_beside_bytes(self._device, kept_for(model)) - planned_bytes)


def warn(text: str) -> None:
    """Warn of a plan at the line of the user's code that led here."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `warnings` goes by
    level = 2
    while frame is not None and any(Path(frame.f_code.co_filename).is_relative_to(each) for each in _NOT_OF_USERS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, PlanWarning, stacklevel=2 if frame is None else level)


def excess_message(limit_bytes: int, beyond_bytes: int, held_bytes: int, *, was_left: bool, has_gaps: bool) -> str:
    """Return the warning of an excess over the limit; `held_bytes` are of tensors unknown to the plan.

    `has_gaps`: more than these and what was reserved ahead.
    """
    causes = []
    if held_bytes >= _NAMED_BYTES or not (was_left or has_gaps):
        causes.append(f"{format_bytes(held_bytes)} are of tensors that the plan was not made for")
    if was_left:
        causes.append("a step left the plan")
    elif has_gaps:
        causes.append("some requests of a step found no room in the reserved segment")
    reserved = format_bytes(limit_bytes + beyond_bytes)
    more = f"{format_bytes(beyond_bytes)} more than the {format_bytes(limit_bytes)} that it may"
    return f"PyTorch has reserved {reserved}, {more}: {', and '.join(causes)}"


def reservation_for(
    plan: TrainingPlan, placement: Placement, limit_bytes: int | None, beside_bytes: int, device: torch.device
) -> Reservation:
    """Return the reservation of a loop with a plan that was placed.

    `limit_bytes` is as of `Reservation`; PyTorch holds `beside_bytes` beside the plan.
    """
    given = (each for each in plan.workload.step.storages if each.given and each.kind is BufferKind.FEATURE_MAP)
    planned = PlannedMemory(
        reserved=placement.reserved,
        beside_bytes=beside_bytes,
        batch_bytes=sum(each.nbytes for each in given),
        has_products=any(isinstance(each.work, ProductWork) for each in plan.workload.step.operations),
    )
    return Reservation(device, limit_bytes, planned)


def _allocate_cublas_workspaces(device: torch.device) -> int:
    """Make cuBLAS allocate the workspaces of this thread and backward's, which later would split the segment.

    Return the bytes of those that cuBLASLt has beside them, as in PyTorch 2.11.
    """
    # A step of another plan may be open, whose saved tensors these are not.
    aside = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
    with torch.inference_mode(mode=False), torch.enable_grad(), aside:
        factor = torch.zeros(8, 8, device=device, requires_grad=True)
        torch.mm(factor, factor).sum().backward()  # type: ignore[no-untyped-call]
        before = torch.cuda.memory_allocated(device)

        def add_bias(_: object = None) -> None:
            with torch.no_grad():
                torch.addmm(factor[0], factor, factor)

        add_bias()
        in_backward = factor.sum()
        in_backward.register_hook(add_bias)  # type: ignore[no-untyped-call]
        in_backward.backward()  # type: ignore[no-untyped-call]
        del in_backward
        return torch.cuda.memory_allocated(device) - before


def cublaslt_bytes(device: torch.device) -> int:
    """Return the bytes of workspaces of cuBLASLt, which no plan knows; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
    return _allocate_cublas_workspaces(device)


@contextmanager
def memory_history(device: torch.device) -> Iterator[None]:
    # The user may record it.
    is_recorded = torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 - PyTorch has no public one
    if not is_recorded:
        torch.cuda.memory._record_memory_history(context=None, max_entries=_ENTRIES, device=device)  # noqa: SLF001
    try:
        yield
    finally:
        if not is_recorded:
            torch.cuda.memory._record_memory_history(enabled=None, device=device)  # noqa: SLF001
