"""Placement of a plan: its allocations in issue order, by a memory model, without a clock.

Memory is allocated and freed in issue order, as by a caching allocator, so the result does not depend on durations.
Host memory for copies is counted as well (`vdnnsim.plans.host_memory`). Under PyTorch's allocator the third iteration
of a captured step counts, which inherits the pool of the first two.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.choices import MemoryModel, settings_of
from vdnnsim.memory.models import place
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Placed, most_in_use_bytes, round_up
from vdnnsim.memory.segments import OWN_SEGMENT_BYTES
from vdnnsim.memory.settings import DEFAULTS
from vdnnsim.plans.device_requests import Asked, device_requests, searches
from vdnnsim.plans.host_memory import HostOverflow, Pool, walk_host
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Allocate, AllocateExtent, Offload
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.repetition import buffer_of, repeated
from vdnnsim.plans.reserved_memory import Reserved, ReservedMemory, Reserving
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.units import format_bytes

ITERATIONS: Final = 3
"""After so many PyTorch's pool rarely grows; on pretended GPUs most scripts' did not after the second."""


ENOUGH: Final = (9 / 8, 5 / 4, 3 / 2, 2)
"""Memory over what is live at once, as a factor, that is reserved where it is enough."""
FEW_SEGMENTS: Final = 2
"""Of a block of their own, by which what is enough exceeds what is live, at the least."""
AMPLE: Final = 3 / 4
"""Of the memory, that so much must be within."""


class PlacedChange(NamedTuple):
    """One allocation (delta above zero) or release (below), a tuple for the speed of its constructor."""

    operation: int
    buffer: int
    delta_bytes: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Placement:
    """A plan that fits.

    Attributes:
        changes: the allocations and releases by position of their operation in the plan.
        pool_bytes: peak of device memory, gaps included.
        host_bytes: peak of pinned host memory.
        peaks_in_search: whether only a search for convolution algorithms reaches that peak.
        reserved: memory to reserve ahead, where the memory model does that.
    """

    changes: dict[int, PlacedChange]
    pool_bytes: int
    host_bytes: int
    peaks_in_search: bool = False
    reserved: ReservedMemory | None = None


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """The first request of a plan that fails: a result, not an error.

    Attributes:
        layer, phase: on whose behalf it is made.
        held_bytes: by kind, largest first.
        short_bytes, lacking_bytes, tries: as of `Overflow`.
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
    short_bytes: int = 0
    lacking_bytes: int = 0
    tries: int = 0

    def explain(self) -> str:
        """Return the request, free memory and held bytes in one line."""
        held = ", ".join(f"{kind.words} {format_bytes(nbytes)}" for kind, nbytes in self.held_bytes) or "nothing"
        pieces, most = "", format_bytes(self.largest_free_bytes)
        if self.largest_free_bytes < min(self.free_bytes, self.requested_bytes):
            lacking = f"that lack {format_bytes(self.requested_bytes - self.largest_free_bytes)}"
            pieces = f" in pieces {lacking if most == format_bytes(self.requested_bytes) else f'of at most {most}'}"
        free = f"{format_bytes(self.free_bytes)} of {format_bytes(self.capacity_bytes)} were free{pieces}"
        if self.free_bytes < 0:
            capacity = format_bytes(self.capacity_bytes)
            free = f"{format_bytes(-self.free_bytes)} more than its {capacity} were held already"
        return (
            f"{self.phase.value} of {self.plan.layers[self.layer]} asked for {format_bytes(self.requested_bytes)} "
            f"({self.plan.buffers[self.buffer].name}) of {self.pool.value}; {free}; held: {held}"
        )


def place_plan(plan: TrainingPlan, limits: MemoryLimits) -> Placement | DoesNotFit:
    """Place a plan, up to the first request that fails.

    Raises:
        PolicyError: the plan releases extents of buffers, which the memory model cannot.
    """
    pieces = Pieces(plan)
    limits = limits.of(plan)
    host = walk_host(plan, limits.host, pieces)
    iterations, answer, reserved = _served(plan, limits, pieces)
    asked = [*chain.from_iterable(iterations)]
    if isinstance(answer, Overflow) and (isinstance(host, int) or asked[answer.position].operation < host.operation):
        return _device_overflow(plan, asked[: answer.position + 1], answer, limits)
    if not isinstance(host, int):
        return _host_overflow(plan, host)
    assert not isinstance(answer, Overflow)
    buffers, deltas, offsets = len(plan.buffers), answer.deltas, answer.offsets
    # What stays between iterations is allocated in one of the first, all else anew in the last.
    last = {operation: at for at, (operation, request) in enumerate(asked) if request.key < buffers}
    changes = {
        operation: PlacedChange(operation, asked[at].request.key, deltas[at], offsets[at])
        for operation, at in last.items()
    }
    return Placement(changes, answer.pool_bytes, host, answer.peaks_in_search, reserved)


def asked_by_iteration(plan: TrainingPlan, limits: MemoryLimits) -> list[list[Asked]]:
    """Return the requests of `place_plan` in each iteration, from an empty pool to an empty pool."""
    return _served(plan, limits.of(plan), Pieces(plan))[0]


def place_repeatedly(plan: TrainingPlan, limits: MemoryLimits, times: int) -> Placed | Overflow:
    """Place several iterations in a row in an empty pool."""
    asked = device_requests(plan, limits.model, limits.granule_bytes, Pieces(plan))
    return _serve(plan, limits, list(chain.from_iterable(repeated(plan, asked, times))))


def place_unlimited(plan: TrainingPlan, limits: MemoryLimits) -> Placement:
    roomy = replace(
        limits,
        device_bytes=UNLIMITED_BYTES,
        host_bytes=UNLIMITED_BYTES,
        total_bytes=None,
        pinned_bytes=None,
        handle_bytes=0,
        process_bytes=0,
    )
    placement = place_plan(plan, roomy)
    assert isinstance(placement, Placement)
    return placement


def needed_bytes(plan: TrainingPlan, granule_bytes: int = 1) -> int:
    """Return the peak of the live bytes of a plan, without fragmentation."""
    return place_unlimited(plan, MemoryLimits(MemoryModel.IDEAL, 0, 0, granule_bytes)).pool_bytes


def _served(
    plan: TrainingPlan, limits: MemoryLimits, pieces: Pieces
) -> tuple[list[list[Asked]], Placed | Overflow, ReservedMemory | None]:
    """Return the requests of each iteration, how they are served, and what is reserved before."""
    settings = settings_of(limits.model)
    if settings is not None and settings.preallocated and limits.device_bytes < UNLIMITED_BYTES:
        found = _reserved(replace(plan, policy="", passes=(), certificate=None, memory_model=None), limits)
        return found.iterations, found.answer, found.memory
    iterations = _iterations(plan, limits, pieces)
    return iterations, _serve(plan, limits, [*chain.from_iterable(iterations)]), None


@lru_cache(maxsize=4)
def _reserved(plan: TrainingPlan, limits: MemoryLimits) -> Reserved:
    """Return a reservation; a plan is placed when it is found, tried and replayed, and layouts take long."""
    settings = settings_of(limits.model)
    assert settings is not None, "as memory is reserved"
    # Under other settings blocks are not cut as live ones were.
    live = limits.live if settings == replace(DEFAULTS, preallocated=True) else None
    roomy = replace(limits, device_bytes=limits.device_bytes + (live.other_bytes if live else 0))
    iterations, pool_bytes = _iterations(plan, limits, Pieces(plan)), limits.pool_bytes(plan)
    reserving = Reserving(
        plan,
        iterations,
        pool_bytes,
        limits.granule_bytes,
        settings,
        lambda asked: _serve(plan, roomy, asked),
        limits.boundaries,
        live,
    )
    # Where there is ample memory, no more is reserved than is needed.
    needed_bytes = most_in_use_bytes((each.request for each in chain.from_iterable(iterations)), limits.granule_bytes)
    # Blocks of a small model lie in segments of their own, each of which is larger than what lies in it.
    of_small_bytes = needed_bytes + FEW_SEGMENTS * OWN_SEGMENT_BYTES
    for enough_bytes in (*(int(part * needed_bytes) for part in ENOUGH), of_small_bytes):
        if enough_bytes > AMPLE * pool_bytes:
            break
        if (found := replace(reserving, capacity_bytes=enough_bytes).in_one()) is not None:
            return found
    return reserving.reserved()


def _iterations(plan: TrainingPlan, limits: MemoryLimits, pieces: Pieces) -> list[list[Asked]]:
    asked = device_requests(plan, limits.model, limits.granule_bytes, pieces)
    settings, workload = settings_of(limits.model), plan.workload
    if settings is None or not isinstance(workload, CapturedWorkload):
        return [asked]
    searched = searches(plan, workload) if settings.cudnn_benchmark else ()
    return repeated(plan, asked, ITERATIONS, searched)


def _serve(plan: TrainingPlan, limits: MemoryLimits, asked: Sequence[Asked]) -> Placed | Overflow:
    return place(
        [each.request for each in asked],
        limits.model,
        capacity_bytes=limits.pool_bytes(plan),
        granule_bytes=limits.granule_bytes,
        total_bytes=limits.total_bytes,
    )


def _host_overflow(plan: TrainingPlan, overflow: HostOverflow) -> DoesNotFit:
    operation, given = plan.operations[overflow.operation], plan.buffers[overflow.buffer].given_on_host
    assert given or isinstance(operation, Offload)
    layer, phase = (operation.layer, operation.phase) if isinstance(operation, Offload) else (0, Phase.FORWARD)
    return DoesNotFit(
        plan=plan,
        pool=overflow.pool,
        operation=overflow.operation,
        buffer=overflow.buffer,
        layer=layer,
        phase=phase,
        requested_bytes=overflow.requested_bytes,
        free_bytes=overflow.free_bytes,
        largest_free_bytes=overflow.free_bytes,
        capacity_bytes=overflow.capacity_bytes,
        held_bytes=_by_kind(plan, overflow.held),
    )


def _device_overflow(
    plan: TrainingPlan, asked: Sequence[Asked], overflow: Overflow, limits: MemoryLimits
) -> DoesNotFit:
    position, requests = asked[-1].operation, [each.request for each in asked]
    operation = plan.operations[position]
    assert isinstance(operation, Allocate | AllocateExtent)
    sizes = {request.key: round_up(request.nbytes or 0, limits.granule_bytes) for request in requests[:-1]}
    requested_bytes = round_up(requests[-1].nbytes or 0, limits.granule_bytes)
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
        held_bytes=_by_kind(plan, ((buffer_of(plan, each), sizes[each]) for each in overflow.held)),
        short_bytes=overflow.short_bytes,
        lacking_bytes=overflow.lacking_bytes,
        tries=overflow.tries,
    )


def _by_kind(plan: TrainingPlan, held: Iterable[tuple[int, int]]) -> tuple[tuple[BufferKind, int], ...]:
    by_kind: Counter[BufferKind] = Counter()
    for buffer, nbytes in held:
        by_kind[plan.kind_shown(buffer)] += nbytes
    return tuple(sorted(by_kind.items(), key=lambda item: -item[1]))
