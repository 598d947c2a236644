"""The requests of a snapshot replayed under a memory model: how much it would have reserved, and whether that fits.

A replay begins with an empty memory, requests the blocks in use at the start of the history, from the lowest address
on, and continues with the history. Refused requests are left out, and the cache is not emptied. A block that waited for
other streams waits as long; models without streams keep it until then.

The blocks at the start are those at the end with every event undone, from the last on. The sizes of blocks that were
freed meanwhile follow from PyTorch's rules: a remainder that is too small to be split off belongs to them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.errors import RecordingError
from vdnnsim.memory.caching import CachingAllocator, pytorch_allocator
from vdnnsim.memory.choices import MemoryChoice, settings_of
from vdnnsim.memory.models import place
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Request, round_up
from vdnnsim.memory.segments import SMALL_SEGMENT_BYTES, least_rest_bytes
from vdnnsim.memory.settings import GRANULE_BYTES, AllocatorSettings
from vdnnsim.recordings.snapshot import Action, Event, Recording
from vdnnsim.units import MIB

_SHORT_BY_BYTES: Final = 8 * MIB
"""Precision to which the lacking memory is searched for."""


@dataclass(frozen=True, slots=True)
class StartSegment:
    """A segment at the start, with its blocks in use."""

    nbytes: int
    stream: int
    small: bool
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Memory at the start of a history.

    Attributes:
        requested: requested bytes and stream of each block in use by address, from the lowest on.
    """

    segments: Mapping[int, StartSegment]
    requested: Mapping[int, tuple[int, int]]


def start_of(recording: Recording, settings: AllocatorSettings, name: str) -> Start:
    """Return the memory of one GPU at the start of its history.

    Raises:
        RecordingError: an event contradicts the memory after it, or a block lies in no segment.
    """
    segments = {each.address: StartSegment(each.nbytes, each.stream, each.small) for each in recording.segments}
    requested: dict[int, tuple[int, int]] = {}
    sizes: dict[int, int] = {}
    for segment in recording.segments:
        for block in segment.blocks:
            requested[block.address] = block.requested_bytes, segment.stream
            sizes[block.address] = block.nbytes
    for at, event in reversed(list(enumerate(recording.events))):
        if not _undo(event, segments, requested, sizes):
            raise RecordingError(
                f"{name}: device_traces[{recording.gpu}][{at}]: {event.action.value} of {event.nbytes} bytes at "
                f"{event.address} contradicts the memory after it, expected a history up to the snapshot"
            )
    ordered = dict(sorted(requested.items()))
    if recording.expandable:
        return Start(segments, ordered)
    addresses = list(ordered)
    with_blocks, found = {}, 0
    for at, held in segments.items():
        starts = addresses[bisect_left(addresses, at) : bisect_left(addresses, at + held.nbytes)]
        blocks = _blocks(starts, at + held.nbytes, held.small, ordered, sizes, settings)
        with_blocks[at] = replace(held, blocks=tuple(blocks))
        found += len(starts)
    if found != len(ordered):
        raise RecordingError(
            f"{name}: device_traces[{recording.gpu}]: begins with {len(ordered):,} blocks in use, of which {found:,} "
            "lie in a segment, expected each in one"
        )
    return Start(with_blocks, ordered)


def _undo(
    event: Event, segments: dict[int, StartSegment], requested: dict[int, tuple[int, int]], sizes: dict[int, int]
) -> bool:
    """Undo one event; return whether it can have happened."""
    address = event.address
    match event.action:
        case Action.ALLOCATE:
            sizes.pop(address, None)
            return requested.pop(address, None) is not None
        case Action.FREE_COMPLETED:
            free = address not in requested
            requested[address] = event.nbytes, event.stream
            return free
        case Action.FREE_REQUESTED:
            return address in requested
        case Action.SEGMENT_TAKEN:
            return segments.pop(address, None) is not None
        case Action.SEGMENT_GIVEN_BACK:
            free = address not in segments
            segments[address] = StartSegment(event.nbytes, event.stream, event.nbytes == SMALL_SEGMENT_BYTES)
            return free
        case _:
            # Expandable segments are replayed from their blocks alone.
            return True


def _blocks(
    starts: Sequence[int],
    end: int,
    small: bool,  # noqa: FBT001  # of the segment
    requested: Mapping[int, tuple[int, int]],
    sizes: Mapping[int, int],
    settings: AllocatorSettings,
) -> Iterator[Block]:
    for start, limit in zip(starts, [*starts[1:], end], strict=False):
        nbytes = sizes.get(start)
        if nbytes is None:
            nbytes = settings.rounded(round_up(requested[start][0], GRANULE_BYTES))
            least = least_rest_bytes(settings, nbytes, GRANULE_BYTES, small=small)
            if least is None or limit - start - nbytes < least:
                nbytes = limit - start
        yield Block(start, nbytes)


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of allocated and of reserved memory."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Free memory of the allocator, and all memory, of which settings may allow a fraction."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The requests of a recording under a memory model.

    Attributes:
        short_bytes: lacking memory, to 8 MiB; 0 if it fits or there is no limit.
    """

    model: MemoryChoice
    peaks: Peaks
    short_bytes: int = 0


def recorded_peaks(recording: Recording, start: Start, settings: AllocatorSettings) -> Peaks:
    """Return the recorded peaks of PyTorch.

    Reserved memory is recorded; allocated memory is the sum of rounded requests, without remainders in their blocks.
    """
    reserved = most_reserved = first_reserved_bytes(recording)
    sizes: dict[int, int] = {}
    in_use = most_in_use = 0
    for event in _all_events(recording, start):
        reserved += event.nbytes * _PAGES.get(event.action, 0)
        most_reserved = max(most_reserved, reserved)
        if event.action is Action.ALLOCATE:
            sizes[event.address] = settings.rounded(round_up(event.nbytes, GRANULE_BYTES))
            in_use += sizes[event.address]
            most_in_use = max(most_in_use, in_use)
        elif event.action is Action.FREE_COMPLETED:
            in_use -= sizes.pop(event.address)
    return Peaks(most_in_use, most_reserved)


_PAGES: Final = {
    Action.SEGMENT_TAKEN: 1,
    Action.PAGES_MAPPED: 1,
    Action.SEGMENT_GIVEN_BACK: -1,
    Action.PAGES_UNMAPPED: -1,
}


def first_reserved_bytes(recording: Recording) -> int:
    taken = sum(event.nbytes * _PAGES.get(event.action, 0) for event in recording.events)
    return sum(each.nbytes for each in recording.segments) - taken


def replay(recording: Recording, start: Start, model: MemoryChoice, memory: Memory | None = None) -> Replay:
    """Replay a recording under a memory model, in unlimited memory if none is given."""
    settings = settings_of(model)

    def peaks(memory: Memory) -> Peaks | None:
        if settings is not None:
            allocator = pytorch_allocator(memory.free_bytes, GRANULE_BYTES, settings, memory.total_bytes)
            return _peaks_of_pytorch(recording, start, allocator)
        return _peaks_of_model(recording, start, model, memory.free_bytes)

    roomy = peaks(Memory(UNLIMITED_BYTES, UNLIMITED_BYTES))
    assert roomy is not None
    if memory is None or peaks(memory) is not None:
        return Replay(model, roomy)

    def fits(more_bytes: int) -> bool:
        return peaks(Memory(memory.free_bytes + more_bytes, memory.total_bytes + more_bytes)) is not None

    low, high = 0, max(_SHORT_BY_BYTES, roomy.reserved_bytes - memory.free_bytes)
    # Where settings allow a fraction of all memory, more is needed than what is reserved.
    while not fits(high):
        low, high = high, 2 * high
    while high - low > _SHORT_BY_BYTES:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return Replay(model, roomy, high)


def _peaks_of_pytorch(recording: Recording, start: Start, allocator: CachingAllocator) -> Peaks | None:
    """Return peaks under PyTorch's allocator; None if a request does not fit."""
    held: dict[int, Block] = {}
    waits_for: dict[int, int] = {}
    most_bytes = 0
    events = recording.events
    for place_, event in enumerate(_all_events(recording, start)):
        at = place_ - len(start.requested)
        match event.action:
            case Action.ALLOCATE:
                block = allocator.take(round_up(event.nbytes, GRANULE_BYTES), event.stream)
                if block is None:
                    return None
                held[event.address] = block
                most_bytes = max(most_bytes, allocator.allocated_bytes)
            case Action.FREE_REQUESTED if event.address in held and not _completed_at_once(events, at):
                # A stream of its own for each waiting block, for theirs is not recorded.
                stream = waits_for[event.address] = -1 - at
                block = held.pop(event.address)
                allocator.record_use(block, stream)
                allocator.free(block)
            case Action.FREE_COMPLETED if event.address in waits_for:
                stream = waits_for.pop(event.address)
                allocator.reach(stream, allocator.waiting_blocks(stream))
            case Action.FREE_COMPLETED:
                allocator.free(held.pop(event.address))
            case _:
                pass
    return Peaks(most_bytes, allocator.pool_bytes)


def _completed_at_once(events: tuple[Event, ...], at: int) -> bool:
    following = events[at + 1 : at + 2]
    return any(each.action is Action.FREE_COMPLETED and each.address == events[at].address for each in following)


def _peaks_of_model(recording: Recording, start: Start, model: MemoryChoice, capacity_bytes: int) -> Peaks | None:
    requests: list[Request] = []
    keys: dict[int, int] = {}
    for number, event in enumerate(_all_events(recording, start)):
        if event.action is Action.ALLOCATE:
            keys[event.address] = number
            requests.append(Request(number, event.nbytes))
        elif event.action is Action.FREE_COMPLETED:
            requests.append(Request(keys.pop(event.address), None))
    placed = place(requests, model, capacity_bytes=capacity_bytes, granule_bytes=GRANULE_BYTES)
    if isinstance(placed, Overflow):
        return None
    in_use = most_bytes = 0
    for delta in placed.deltas:
        in_use += delta
        most_bytes = max(most_bytes, in_use)
    return Peaks(most_bytes, placed.pool_bytes)


def _all_events(recording: Recording, start: Start) -> Iterator[Event]:
    """Yield requests for the blocks at the start, then the history."""
    for address, (nbytes, stream) in start.requested.items():
        yield Event(Action.ALLOCATE, address, nbytes, stream)
    yield from recording.events
