"""Whether a plan fits, and where: its allocations walked in issue order by a memory model, without a clock.

Allocate and Release are ordered on the compute stream, so issue order is their order in time and the answer does not
depend on durations. Host memory for copies is walked alongside: an offload takes the bytes that it moves unless it has
them, a prefetch gives them back unless it keeps the copy. A buffer takes the granules in which a byte of it is held.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.place import MODELS_WITH_EXTENTS, extent_granule_bytes, place
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Request, round_up
from vdnnsim.plan.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    Offload,
    Operation,
    Prefetch,
    Release,
    ReleaseExtent,
    describe,
)
from vdnnsim.plan.pieces import Pieces
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.units import format_bytes


class Pool(Enum):
    """The two memories that a plan can overflow."""

    DEVICE = "GPU memory"
    HOST = "pinned host memory"


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The memories of a machine and how its pool places buffers.

    Attributes:
        device_bytes: device memory that buffers may take, less `handle_bytes` for each handle that a plan opens.
        total_bytes: all memory of the GPU; what buffers may take unless given.
    """

    model: MemoryChoice
    device_bytes: int
    host_bytes: int
    granule_bytes: int
    handle_bytes: int = 0
    total_bytes: int | None = None

    def pool_bytes(self, plan: TrainingPlan) -> int:
        """Device memory that is left for the buffers of a plan."""
        return max(0, self.device_bytes - plan.handles * self.handle_bytes)


class PlacedChange(NamedTuple):
    """One allocation (delta above zero) or release (below) as the memory model decided it.

    A plan has thousands, and a tuple is made in a third of the time.
    """

    operation: int
    buffer: int
    delta_bytes: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan that fits.

    Attributes:
        changes: the allocations and releases by position of their operation in the plan.
        pool_bytes: device memory that the model needed, gaps included.
        host_bytes: pinned host memory in use at its maximum.
    """

    changes: dict[int, PlacedChange]
    pool_bytes: int
    host_bytes: int


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """A plan that asks for more memory than there is: a result, not an error.

    Attributes:
        operation: position in the plan of the request that failed.
        layer, phase: on whose behalf it was made.
        free_bytes, largest_free_bytes: what was free, and the largest piece of it where pieces matter.
        held_bytes: what held the rest, by kind, largest first.
    """

    plan: TrainingPlan
    pool: Pool
    operation: int
    buffer: int
    layer: int
    phase: Phase
    requested_bytes: int
    free_bytes: int
    largest_free_bytes: int
    capacity_bytes: int
    held_bytes: tuple[tuple[BufferKind, int], ...]

    def explain(self) -> str:
        """Return one line: who asked for how much, what was free, and what held the rest."""
        held = ", ".join(f"{kind.value} {format_bytes(nbytes)}" for kind, nbytes in self.held_bytes) or "nothing"
        pieces = ""
        if self.largest_free_bytes < min(self.free_bytes, self.requested_bytes):
            pieces = f" in pieces of at most {format_bytes(self.largest_free_bytes)}"
        return (
            f"{self.phase.value} of {self.plan.layers[self.layer]} asked for {format_bytes(self.requested_bytes)} "
            f"({self.plan.buffers[self.buffer].name}) of {self.pool.value}; {format_bytes(self.free_bytes)} of "
            f"{format_bytes(self.capacity_bytes)} were free{pieces}; held: {held}"
        )


def place_plan(plan: TrainingPlan, limits: MemoryLimits) -> Placement | DoesNotFit:
    """Walk the allocations of a plan; the first request that cannot be served decides.

    Raises:
        PolicyError: the plan gives back extents of buffers, which the memory model cannot.
    """
    pieces = Pieces(plan)
    positions, requests = device_requests(plan, limits, pieces)
    host = _walk_host(plan, limits.host_bytes, pieces)
    answer = place(
        requests,
        limits.model,
        capacity_bytes=limits.pool_bytes(plan),
        granule_bytes=limits.granule_bytes,
        total_bytes=limits.total_bytes,
    )
    if isinstance(answer, Overflow):
        overflow = positions[answer.position]
        if isinstance(host, int) or overflow < host.operation:
            return _device_overflow(plan, overflow, requests[: answer.position + 1], answer, limits)
    if not isinstance(host, int):
        return host
    assert not isinstance(answer, Overflow)
    changes = {
        operation: PlacedChange(operation, request.key, delta, offset)
        for operation, request, delta, offset in zip(positions, requests, answer.deltas, answer.offsets, strict=True)
    }
    return Placement(changes, answer.pool_bytes, host)


def place_unlimited(plan: TrainingPlan, limits: MemoryLimits) -> Placement:
    """Place a plan on a GPU and a host without a capacity."""
    roomy = replace(limits, device_bytes=UNLIMITED_BYTES, host_bytes=UNLIMITED_BYTES, total_bytes=None)
    placement = place_plan(plan, roomy)
    assert isinstance(placement, Placement)
    return placement


def needed_bytes(plan: TrainingPlan, granule_bytes: int = 1) -> int:
    """Return the peak of a plan by its lifetimes, wherever its buffers come to lie."""
    return place_unlimited(plan, MemoryLimits(MemoryModel.IDEAL, 0, 0, granule_bytes)).pool_bytes


_OF_MEMORY: Final = frozenset({Allocate, Alias, Release, AllocateExtent, ReleaseExtent})
"""The operations that change memory; to ask for the type is quicker than to match each of the others."""

_COPIES: Final = frozenset({Offload, Prefetch})


def device_requests(plan: TrainingPlan, limits: MemoryLimits, pieces: Pieces) -> tuple[list[int], list[Request]]:
    """Return the operations of a plan that ask for device memory or give it back, and what each of them asks.

    Raises:
        PolicyError: the plan gives back extents of buffers, which the memory model cannot.
    """
    positions: list[int] = []
    requests: list[Request] = []
    aliases: set[int] = set()
    # Of the buffers of which extents were given back, the pieces that are still held.
    held: dict[int, set[int]] = {}
    for position, operation in enumerate(plan.operations):
        if type(operation) not in _OF_MEMORY:
            continue
        match operation:
            case Allocate(buffer=buffer):
                requests.append(Request(buffer, plan.buffers[buffer].nbytes))
                positions.append(position)
            case Alias(buffer=buffer):
                aliases.add(buffer)
            case Release(buffer=buffer) if buffer in aliases:
                aliases.remove(buffer)
            case Release(buffer=buffer):
                requests.append(Request(buffer, None))
                positions.append(position)
                held.pop(buffer, None)
            case _:
                assert isinstance(operation, AllocateExtent | ReleaseExtent)
                buffer, extent = operation.buffer, operation.extent
                if limits.model not in MODELS_WITH_EXTENTS:
                    raise _without_extents(plan, operation, limits.model)
                left = held.setdefault(buffer, set(pieces.covered(buffer)))
                changed = pieces.covered(buffer, extent)
                (left.update if isinstance(operation, AllocateExtent) else left.difference_update)(changed)
                granule_bytes = extent_granule_bytes(limits.model, limits.granule_bytes)
                nbytes = _held_bytes(pieces.ranges(buffer), left, granule_bytes)
                requests.append(Request(buffer, nbytes, resizes=True))
                positions.append(position)
    return positions, requests


def _held_bytes(ranges: Sequence[range], held: Collection[int], granule_bytes: int) -> int:
    """Return the granules in which pieces of a buffer are held, in bytes; one that several share counts once."""
    nbytes = reached = 0
    for number in sorted(held):
        first = max(reached, ranges[number].start // granule_bytes * granule_bytes)
        reached = round_up(ranges[number].stop, granule_bytes)
        nbytes += max(0, reached - first)
    return nbytes


def _without_extents(plan: TrainingPlan, operation: Operation, model: MemoryChoice) -> PolicyError:
    text = describe(operation, plan.buffer_names, plan.layers)
    able = " or ".join(repr(each.value) for each in MODELS_WITH_EXTENTS)
    return PolicyError(
        f"{plan.policy}: memory_model: found {model.value!r}, which gives buffers back as a whole and no part of one "
        f"({text}), expected {able}"
    )


def _walk_host(plan: TrainingPlan, capacity_bytes: int, pieces: Pieces) -> int | DoesNotFit:
    """Return the maximum of pinned host memory in use, or the offload that found no room."""
    # By buffer, copy and piece.
    held: dict[tuple[int, int, int], int] = {}
    in_use = peak = 0
    for position, operation in enumerate(plan.operations):
        if type(operation) not in _COPIES:
            continue
        match operation:
            case Offload(buffer=buffer, extent=extent, copy=copy):
                ranges = pieces.ranges(buffer)
                coming = {(buffer, copy, each): len(ranges[each]) for each in pieces.covered(buffer, extent)}
                nbytes = sum(coming[each] for each in coming if each not in held)
                free = capacity_bytes - in_use
                if nbytes > free:
                    return DoesNotFit(
                        plan,
                        Pool.HOST,
                        position,
                        buffer,
                        operation.layer,
                        operation.phase,
                        nbytes,
                        free,
                        free,
                        capacity_bytes,
                        _by_kind(plan, ((each, size) for (each, _, _), size in held.items())),
                    )
                held |= coming
                in_use += nbytes
                peak = max(peak, in_use)
            case Prefetch(buffer=buffer, keeps_copy=False, extent=extent, copy=copy):
                in_use -= sum(held.pop((buffer, copy, each)) for each in pieces.covered(buffer, extent))
            case _:
                pass
    return peak


def _device_overflow(
    plan: TrainingPlan, position: int, requests: Sequence[Request], overflow: Overflow, limits: MemoryLimits
) -> DoesNotFit:
    operation = plan.operations[position]
    assert isinstance(operation, Allocate | AllocateExtent)
    granule_bytes = limits.granule_bytes
    # The last that a key asked for is what it holds.
    sizes = {request.key: round_up(request.nbytes or 0, granule_bytes) for request in requests[:-1]}
    requested_bytes = round_up(requests[-1].nbytes or 0, granule_bytes)
    return DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=position,
        buffer=operation.buffer,
        layer=operation.layer,
        phase=operation.phase,
        requested_bytes=requested_bytes - (sizes[operation.buffer] if requests[-1].resizes else 0),
        free_bytes=overflow.free_bytes,
        largest_free_bytes=overflow.largest_free_bytes,
        capacity_bytes=limits.pool_bytes(plan),
        held_bytes=_by_kind(plan, ((each, sizes[each]) for each in overflow.held)),
    )


def _by_kind(plan: TrainingPlan, held: Iterable[tuple[int, int]]) -> tuple[tuple[BufferKind, int], ...]:
    """Add up bytes by the kind of their buffers."""
    by_kind: Counter[BufferKind] = Counter()
    for buffer, nbytes in held:
        by_kind[plan.buffers[buffer].kind] += nbytes
    return tuple(sorted(by_kind.items(), key=lambda item: -item[1]))
