"""The memory of a planned loop, which PyTorch is had to take in one piece: what it took bit by bit would leave gaps.

PyTorch's allocator cuts blocks from the pieces that it once took of the GPU and merges them there again. Steps that ask
for less than they have then find room in it, and it takes no more (`preallocated` of `vdnnsim.memory.settings`).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import nn

from calibration.apply.model_discovery import beside_bytes, kept_for
from calibration.apply.saved_storage import Packed
from calibration.apply.unplanned_offload import Budget
from calibration.capture.nodes import is_in_backward
from calibration.pretend.inside.peak import RESERVATION
from vdnnsim.dnn.step import BufferKind
from vdnnsim.memory.choices import MemoryChoice, settings_of
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.plans.placement import MemoryLimits, asked_by_iteration
from vdnnsim.plans.repetition import reserved_bytes, whole_pages
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_bytes

_ENTRIES: Final = 1_000_000
_NAMED_BYTES: Final = 1 << 20
"""Less may be a batch that was still there when the plan was made."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a loop is planned to take of a GPU.

    Attributes:
        piece_bytes: that PyTorch reserves ahead, all else that it holds there included; None where it does not.
        small_bytes: of these, for blocks that PyTorch keeps in segments of their own because they are small.
        beside_bytes: of these, for what is none of the model's, its optimizer's or its batch's.
        batch_bytes: of what a step is given beside weights and states.
        settings: of PyTorch's allocator.
    """

    piece_bytes: int | None = None
    small_bytes: int = 0
    beside_bytes: int = 0
    batch_bytes: int = 0
    settings: AllocatorSettings = DEFAULTS


class Room:
    """What PyTorch may reserve on a GPU for a loop.

    Args:
        device: nothing is done but on a GPU.
        limit_bytes: that the user lets PyTorch reserve; None for as much as there is.
        planned: for the loop.

    Attributes:
        beyond_bytes: by how much more was reserved up to a step, at most; before the first one as well.
        is_full_of_gaps: whether that was for steps as they were planned, and nothing else was there.
    """

    def __init__(self, device: torch.device, limit_bytes: int | None, planned: Planned) -> None:
        self._device, self._planned = device, planned
        self._limit_bytes = limit_bytes if device.type == "cuda" else None
        self._reserved_bytes = 0
        self._budget: Budget | None = None
        self._was_left = self._has_warned = False
        self.beyond_bytes = 0
        self.is_full_of_gaps = False

    def take(self, model: nn.Module) -> None:
        """Have it taken before a step of the model, unless it was and is still there; say once if more is."""
        if self._limit_bytes is None:
            return
        stats = torch.cuda.memory_stats(self._device)
        reserved_bytes = stats["reserved_bytes.all.current"]
        self._note(stats["reserved_bytes.all.peak"], model)
        self._budget = Budget(self._device, self._limit_bytes, stats["allocated_bytes.all.current"])
        if self._planned.piece_bytes is None or 0 < self._reserved_bytes <= reserved_bytes:
            self._reserved_bytes = self._reserved_bytes or reserved_bytes
            return
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats(self._device)
        small_bytes = max(0, self._planned.small_bytes - stats["reserved_bytes.small_pool.current"])
        left_bytes = self._planned.piece_bytes - stats["reserved_bytes.all.current"] - small_bytes
        free_bytes = whole_pages(left_bytes, self._planned.settings)
        # Whoever keeps the peaks that are reset sees those of the loop up to here, and not this one, of none of it.
        torch.cuda.reset_peak_memory_stats(self._device)
        with _told(RESERVATION):
            try:
                torch.empty(free_bytes, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                warnings.warn(
                    f"{format_bytes(free_bytes)} of the GPU are not free, with which the plan was made; it may run out",
                    stacklevel=2,
                )
            torch.cuda.reset_peak_memory_stats(self._device)
        self._reserved_bytes = torch.cuda.memory_reserved(self._device)

    def packed(self, tensor: torch.Tensor, model: nn.Module | None) -> Packed:
        """Return what autograd keeps in the place of a tensor that a step saves after it left its plan.

        So is what backward saves while it computes a part of forward again, which it takes at once.
        """
        if is_in_backward():
            return Packed(tensor, None, None)
        self._was_left = True
        if self._budget is None:
            return Packed(tensor, None, None)
        return self._budget.packed(tensor, model)

    def end(self) -> int:
        """Return by how many bytes more was reserved than the limit, up to now."""
        if self._limit_bytes is not None and self._reserved_bytes:
            most_bytes = torch.cuda.max_memory_reserved(self._device)
            self.beyond_bytes = max(self.beyond_bytes, most_bytes - self._limit_bytes)
        return self.beyond_bytes

    def _note(self, reserved_bytes: int, model: nn.Module) -> None:
        """Say once that more is reserved than the limit, and for what."""
        assert self._limit_bytes is not None, "there is one"
        beyond_bytes = max(0, reserved_bytes - self._limit_bytes)
        self.beyond_bytes = max(self.beyond_bytes, beyond_bytes)
        # What was reserved before the first step is given back for it.
        if not (beyond_bytes and self._reserved_bytes) or self._has_warned:
            return
        self._has_warned = True
        planned_bytes = self._planned.beside_bytes + self._planned.batch_bytes
        held_bytes = max(0, beside_bytes([*kept_for(model)]) - planned_bytes)
        self.is_full_of_gaps = not self._was_left and held_bytes < beyond_bytes
        warnings.warn(told_beyond(self._limit_bytes, beyond_bytes, held_bytes, was_left=self._was_left), stacklevel=2)


def told_beyond(limit_bytes: int, beyond_bytes: int, held_bytes: int, *, was_left: bool) -> str:
    """Return what is said where PyTorch has reserved more than a plan was made for.

    Args:
        limit_bytes: that it may reserve.
        beyond_bytes: that it has reserved more.
        held_bytes: that tensors take of which the plan knows nothing.
        was_left: whether a step has left the plan.
    """
    causes = []
    if held_bytes >= _NAMED_BYTES:
        causes.append(f"{format_bytes(held_bytes)} are of tensors that the plan was not made for")
    if was_left:
        causes.append("a step left the plan")
    elif held_bytes < beyond_bytes:
        causes.append("some of what a step asks for found no room in what was reserved ahead")
    reserved = format_bytes(limit_bytes + beyond_bytes)
    more = f"{format_bytes(beyond_bytes)} more than the {format_bytes(limit_bytes)} that it may"
    return f"PyTorch has reserved {reserved}, {more}: {', and '.join(causes)}"


def in_one_piece(model: MemoryChoice) -> MemoryChoice:
    """Return a memory model with memory taken ahead, where it is PyTorch's; a piece that is never cut serves nobody."""
    settings = settings_of(model)
    return replace(settings, preallocated=True) if settings and settings.max_split_size_mb is None else model


def room_of(
    plan: TrainingPlan, limits: MemoryLimits, limit_bytes: int | None, beside_bytes: int, device: torch.device
) -> Room:
    """Return the room of a loop.

    Args:
        plan: that it follows.
        limits: within which the plan was made.
        limit_bytes: that the user lets PyTorch reserve; None for as much as there is.
        beside_bytes: that PyTorch holds beside what was planned.
        device: of the loop.
    """
    given = (each for each in plan.workload.step.storages if each.given and each.kind is BufferKind.FEATURE_MAP)
    planned = Planned(beside_bytes=beside_bytes, batch_bytes=sum(each.nbytes for each in given))
    settings = settings_of(limits.model)
    if settings is not None and settings.preallocated:
        requests = (each.request for asked in asked_by_iteration(plan, limits) for each in asked)
        planned = replace(
            planned,
            piece_bytes=limits.pool_bytes(plan) + beside_bytes,
            small_bytes=reserved_bytes(requests, limits.granule_bytes, settings, small=True),
            settings=settings,
        )
    return Room(device, limit_bytes, planned)


@contextmanager
def _told(text: str) -> Iterator[None]:
    """Have PyTorch's history of memory name what is asked for within."""
    before = torch.cuda.memory._get_memory_metadata()  # noqa: SLF001 - its only form
    torch.cuda.memory._set_memory_metadata(text)  # noqa: SLF001
    try:
        yield
    finally:
        torch.cuda.memory._set_memory_metadata(before)  # noqa: SLF001


@contextmanager
def remembering(device: torch.device) -> Iterator[None]:
    """Have PyTorch's allocator remember what is asked of it."""
    # A user may have it remember as well.
    is_recorded = torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 - PyTorch has no public one
    if not is_recorded:
        torch.cuda.memory._record_memory_history(context=None, max_entries=_ENTRIES, device=device)  # noqa: SLF001
    try:
        yield
    finally:
        if not is_recorded:
            torch.cuda.memory._record_memory_history(enabled=None, device=device)  # noqa: SLF001
