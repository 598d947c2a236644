"""Whether a plan fits, and where: its allocations walked in issue order by a memory model, without a clock.

Allocate and Release are ordered on the compute stream, so issue order is their order in time and the answer does not
depend on durations. Host memory for copies is walked alongside: an offload takes the bytes of its buffer unless it has
them, a prefetch gives them back unless it keeps the copy.
"""

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.place import place
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Request, round_up
from vdnnsim.plan.operations import Alias, Allocate, Offload, Prefetch, Release
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
    """

    model: MemoryModel
    device_bytes: int
    host_bytes: int
    granule_bytes: int
    handle_bytes: int = 0

    def pool_bytes(self, plan: TrainingPlan) -> int:
        """Device memory that is left for the buffers of a plan."""
        return max(0, self.device_bytes - plan.handles * self.handle_bytes)


@dataclass(frozen=True, slots=True)
class PlacedChange:
    """One allocation (delta above zero) or release (below) as the memory model decided it."""

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

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use at its maximum, without gaps and what a pool keeps."""
        return max(accumulate(change.delta_bytes for change in self.changes.values()), default=0)


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
    """Walk the allocations of a plan; the first request that cannot be served decides."""
    host = _walk_host(plan, limits.host_bytes)
    positions, requests = _device_requests(plan)
    answer = place(requests, limits.model, capacity_bytes=limits.pool_bytes(plan), granule_bytes=limits.granule_bytes)
    if isinstance(answer, Overflow):
        overflow = positions[answer.position]
        if isinstance(host, int) or overflow < host.operation:
            return _device_overflow(plan, overflow, answer, limits)
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
    placement = place_plan(plan, replace(limits, device_bytes=UNLIMITED_BYTES, host_bytes=UNLIMITED_BYTES))
    assert isinstance(placement, Placement)
    return placement


def needed_bytes(plan: TrainingPlan, granule_bytes: int = 1) -> int:
    """Return the peak of a plan by its lifetimes, wherever its buffers come to lie."""
    return place_unlimited(plan, MemoryLimits(MemoryModel.IDEAL, 0, 0, granule_bytes)).pool_bytes


def _device_requests(plan: TrainingPlan) -> tuple[list[int], list[Request]]:
    positions: list[int] = []
    requests: list[Request] = []
    aliases: set[int] = set()
    for position, operation in enumerate(plan.operations):
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
            case _:
                pass
    return positions, requests


def _walk_host(plan: TrainingPlan, capacity_bytes: int) -> int | DoesNotFit:
    """Return the maximum of pinned host memory in use, or the offload that found no room."""
    held: list[tuple[int, int]] = []
    in_use = peak = 0
    for position, operation in enumerate(plan.operations):
        match operation:
            case Offload(buffer=buffer, layer=layer, phase=phase, copy=copy) if (buffer, copy) not in held:
                nbytes = plan.buffers[buffer].nbytes
                free = capacity_bytes - in_use
                if nbytes > free:
                    kinds = _by_kind(plan, [each for each, _ in held], granule_bytes=1)
                    return DoesNotFit(
                        plan,
                        Pool.HOST,
                        position,
                        buffer,
                        layer,
                        phase,
                        nbytes,
                        free,
                        free,
                        capacity_bytes,
                        kinds,
                    )
                held.append((buffer, copy))
                in_use += nbytes
                peak = max(peak, in_use)
            case Prefetch(buffer=buffer, keeps_copy=False, copy=copy):
                held.remove((buffer, copy))
                in_use -= plan.buffers[buffer].nbytes
            case _:
                pass
    return peak


def _device_overflow(plan: TrainingPlan, position: int, overflow: Overflow, limits: MemoryLimits) -> DoesNotFit:
    operation = plan.operations[position]
    assert isinstance(operation, Allocate)
    return DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=position,
        buffer=operation.buffer,
        layer=operation.layer,
        phase=operation.phase,
        requested_bytes=round_up(plan.buffers[operation.buffer].nbytes, limits.granule_bytes),
        free_bytes=overflow.free_bytes,
        largest_free_bytes=overflow.largest_free_bytes,
        capacity_bytes=limits.pool_bytes(plan),
        held_bytes=_by_kind(plan, overflow.held, limits.granule_bytes),
    )


def _by_kind(
    plan: TrainingPlan, buffers: list[int] | tuple[int, ...], granule_bytes: int
) -> tuple[tuple[BufferKind, int], ...]:
    held: Counter[BufferKind] = Counter()
    for buffer in buffers:
        held[plan.buffers[buffer].kind] += round_up(plan.buffers[buffer].nbytes, granule_bytes)
    return tuple(sorted(held.items(), key=lambda item: -item[1]))
