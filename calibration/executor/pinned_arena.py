"""Pinned host memory for offloads: one region, pinned once, of which each copy uses a slice.

Pinning within an iteration would make a device wait for all its streams. A plan states the lifetime of every copy on
the host, so all slices are placed before it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import UNLIMITED_BYTES, Placed, Request
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan

_SLICE_BYTES = 512
"""Slices begin at multiples of this, so that no copy begins within a page of another one's cache lines."""


@dataclass(frozen=True, slots=True)
class ArenaLayout:
    """Where the copies of a plan lie.

    Attributes:
        offsets: by position of the Offload or Prefetch in the plan.
        given: by buffer that is given on the host.
    """

    offsets: Mapping[int, int]
    given: Mapping[int, int]
    nbytes: int


def lay_copies(plan: TrainingPlan) -> ArenaLayout:
    """Place the copies of a plan: an offload takes a slice unless its copy has one, a prefetch may free it.

    A slice holds a whole buffer, from the first extent that is offloaded until the last is prefetched; a buffer given
    on the host has its slice from the beginning.
    """
    pieces = Pieces(plan)
    requests: list[Request] = []
    # For each copy, the request that took its slice and the first byte of it that is copied.
    taken_by: dict[int, tuple[int, int]] = {}
    held: dict[tuple[int, int], int] = {}
    on_host: dict[tuple[int, int], set[int]] = {}
    given = [number for number, each in enumerate(plan.buffers) if each.given_on_host]
    for request, buffer in enumerate(given):
        requests.append(Request(request, plan.buffers[buffer].nbytes))
        held[buffer, 0], on_host[buffer, 0] = request, set(pieces.covered(buffer))
    for position, operation in enumerate(plan.operations):
        if not isinstance(operation, Offload | Prefetch):
            continue
        buffer, extent = operation.buffer, operation.extent
        which, moved = (buffer, operation.copy), pieces.covered(buffer, extent)
        if which not in held:
            held[which] = len(requests)
            requests.append(Request(len(requests), plan.buffers[buffer].nbytes))
        taken_by[position] = held[which], 0 if extent is None else extent.start
        if isinstance(operation, Offload):
            on_host.setdefault(which, set()).update(moved)
        elif not operation.keeps_copy:
            on_host[which].difference_update(moved)
            if not on_host[which]:
                requests.append(Request(held.pop(which), None))
    placed = place(requests, MemoryModel.PLANNED, capacity_bytes=UNLIMITED_BYTES, granule_bytes=_SLICE_BYTES)
    assert isinstance(placed, Placed)
    # Frees have no offset.
    begins = {request: offset for request, offset in enumerate(placed.offsets) if offset is not None}
    offsets = {position: begins[request] + first for position, (request, first) in taken_by.items()}
    return ArenaLayout(offsets, {buffer: begins[at] for at, buffer in enumerate(given)}, placed.pool_bytes)


class HostMemory(Protocol):
    """What pins; see `calibration.devices.interface.Device`."""

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized host memory, flat bytes."""

    def unpin(self, tensor: torch.Tensor) -> None:
        """Unpin what `pin` returned."""


class PinnedArena:
    """The region that all copies share; it grows when a plan needs more, between iterations."""

    def __init__(self, device: HostMemory) -> None:
        self._device = device
        self._region: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self._region is None else self._region.nbytes

    def reserve(self, nbytes: int) -> None:
        """Grow the region to at least so many bytes; its content is lost."""
        if nbytes > self.nbytes:
            # The old region is unpinned first: the host may have no room for both.
            self.give_back()
            self._region = self._device.pin(nbytes)

    def give_back(self) -> None:
        """Unpin the region; its content is lost."""
        if self._region is not None:
            former, self._region = self._region, None
            self._device.unpin(former)

    def slice(self, offset: int, nbytes: int) -> torch.Tensor:
        assert self._region is not None, "no region was reserved"
        return self._region[offset : offset + nbytes]
