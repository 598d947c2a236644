"""The memory of a planned loop, which PyTorch is had to take in one piece: what it took bit by bit would leave gaps.

PyTorch's allocator cuts blocks from the pieces that it once took of the GPU and merges them there again. Steps that ask
for less than they have then find room in it, and it takes no more (`preallocated` of `vdnnsim.memory.settings`).
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import torch

from vdnnsim.memory.choices import MemoryChoice, settings_of
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.plans.placement import MemoryLimits, asked_by_iteration
from vdnnsim.plans.repetition import reserved_bytes, whole_pages
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import format_bytes

_ENTRIES: Final = 1_000_000


class Room:
    """What PyTorch may reserve on a GPU for a loop.

    Args:
        device: nothing is done but on a GPU.
        most_bytes: that it may reserve, all else that it holds there included; None for as much as there is.
        small_bytes: of these, for blocks that PyTorch keeps in segments of their own because they are small.
        settings: of its allocator.
    """

    def __init__(
        self, device: torch.device, most_bytes: int | None, small_bytes: int, settings: AllocatorSettings
    ) -> None:
        self._device, self._most_bytes, self._small_bytes = device, most_bytes, small_bytes
        self._settings = settings
        self._reserved_bytes = 0

    def take(self) -> None:
        """Have it taken before a step, unless it was, and is still there."""
        if self._most_bytes is None or self._device.type != "cuda":
            return
        if 0 < self._reserved_bytes <= torch.cuda.memory_reserved(self._device):
            return
        with torch.cuda.device(self._device):
            torch.cuda.empty_cache()
        stats = torch.cuda.memory_stats(self._device)
        small_bytes = max(0, self._small_bytes - stats["reserved_bytes.small_pool.current"])
        left_bytes = self._most_bytes - stats["reserved_bytes.all.current"] - small_bytes
        free_bytes = whole_pages(left_bytes, self._settings)
        try:
            torch.empty(free_bytes, dtype=torch.uint8, device=self._device)
        except torch.OutOfMemoryError:
            warnings.warn(
                f"{format_bytes(free_bytes)} of the GPU are not free, with which the plan was made; it may run out",
                stacklevel=2,
            )
        # It was asked for by none of the loop.
        torch.cuda.reset_peak_memory_stats(self._device)
        self._reserved_bytes = torch.cuda.memory_reserved(self._device)


def in_one_piece(model: MemoryChoice) -> MemoryChoice:
    """Return a memory model with memory taken ahead, where it is PyTorch's; a piece that is never cut serves nobody."""
    settings = settings_of(model)
    return replace(settings, preallocated=True) if settings and settings.max_split_size_mb is None else model


def room_of(plan: TrainingPlan, limits: MemoryLimits, beside_bytes: int, device: torch.device) -> Room:
    """Return the room of a loop.

    Args:
        plan: that it follows.
        limits: within which the plan was made.
        beside_bytes: that PyTorch holds beside what was planned.
        device: of the loop.
    """
    settings = settings_of(limits.model)
    if settings is None or not settings.preallocated:
        return Room(device, None, 0, DEFAULTS)
    requests = (each.request for asked in asked_by_iteration(plan, limits) for each in asked)
    small_bytes = reserved_bytes(requests, limits.granule_bytes, settings, small=True)
    return Room(device, limits.pool_bytes(plan) + beside_bytes, small_bytes, settings)


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
