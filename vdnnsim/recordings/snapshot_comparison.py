"""The events of a snapshot compared with the model of PyTorch's allocator, address by address.

The model begins with the recorded segments and blocks. Addresses of segments, and when segments were freed, are taken
from the snapshot, which does not have the free memory of the GPU.

Among equal blocks PyTorch takes the one at the lowest address, from 2.14 on that of the oldest segment (pytorch pull
request 183591). A snapshot lacks its version, so both are tried.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vdnnsim.errors import InputError
from vdnnsim.memory.caching import CachingAllocator, pytorch_allocator
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import UNLIMITED_BYTES, round_up
from vdnnsim.memory.segments import StreamPool, WholeSegments
from vdnnsim.memory.settings import DEFAULTS, GRANULE_BYTES, AllocatorSettings, parse_settings
from vdnnsim.recordings.snapshot import Action, Event, Recording
from vdnnsim.recordings.snapshot_replay import (
    Memory,
    Peaks,
    Replay,
    Start,
    StartSegment,
    first_reserved_bytes,
    recorded_peaks,
    replay,
    start_of,
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the model agrees with PyTorch.

    Attributes:
        agreed: requests at the recorded address, before the first difference.
        segments: that PyTorch took; of expandable ones, how often they grew.
        segments_agreed: those that the model took at the same time in the same size.
        most_allocated_bytes: peak of blocks in use before the first difference.
    """

    requests: int
    agreed: int
    segments: int
    segments_agreed: int
    most_allocated_bytes: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """A snapshot of one GPU with the replays of its requests.

    Attributes:
        settings: of its allocator, as far as they are modelled.
        unread: why they could not be read; empty if they could.
        agreement: of the model with PyTorch; None where it is unknown.
        replays: by memory model, each from an empty memory on.
        memory: capacity; None without a limit.
    """

    recording: Recording
    settings: AllocatorSettings
    unread: str
    start: Start
    recorded: Peaks
    agreement: Agreement | None
    replays: tuple[Replay, ...]
    memory: Memory | None


def find(recording: Recording, models: Sequence[MemoryChoice], memory: Memory | None, name: str) -> Finding:
    """Replay a recording under memory models, and compare the model of PyTorch's allocator with it."""
    settings, unread = DEFAULTS, ""
    try:
        settings = parse_settings(recording.settings)
    except InputError as failure:
        unread = str(failure)
    start = start_of(recording, settings, name)
    agreement = compare(recording, start, settings)
    recorded = recorded_peaks(recording, start, settings)
    if agreement is not None and agreement.whole:
        recorded = Peaks(agreement.most_allocated_bytes, recorded.reserved_bytes)
    replays = tuple(replay(recording, start, model, memory) for model in models)
    return Finding(recording, settings, unread, start, recorded, agreement, replays, memory)


def compare(recording: Recording, start: Start, settings: AllocatorSettings) -> Agreement | None:
    """Replay a recording in the model up to the first difference.

    With expandable segments this takes a history from an empty memory on; else None.
    """
    if recording.expandable:
        empty = not start.requested and first_reserved_bytes(recording) == 0
        return _compare_growing(recording, settings) if empty else None
    by_address = _compare(recording, start, settings, by_address=True)
    if by_address.whole:
        return by_address
    by_age = _compare(recording, start, settings, by_address=False)
    return max(by_address, by_age, key=lambda each: (each.whole, each.agreed))


def _compare(recording: Recording, start: Start, settings: AllocatorSettings, *, by_address: bool) -> Agreement:
    segments = _RecordedSegments(settings, by_address=by_address)
    allocator = _RecordedAllocator(segments, settings)
    held: dict[int, Block] = {}
    for address, segment in sorted(start.segments.items()):
        held |= allocator.adopt(address, segment)
    agreed = segments_agreed = 0
    most_bytes = allocator.allocated_bytes
    taken: Block | None = None
    alike = True
    for event in recording.events:
        match event.action:
            case Action.SEGMENT_TAKEN:
                taken = Block(event.address, event.nbytes)
                segments.announce(event.address)
            case Action.SEGMENT_GIVEN_BACK:
                alike = allocator.drop(event.address)
            case Action.ALLOCATE:
                block = _taken(allocator, event)
                grown = segments.grown
                segments.grown = None
                alike = grown == taken and block.start == segments.place_of(event.address)
                agreed += alike
                segments_agreed += alike and taken is not None
                taken = None
                held[event.address] = block
                most_bytes = max(most_bytes, allocator.allocated_bytes)
            case Action.FREE_COMPLETED:
                allocator.free(held.pop(event.address))
            case _:
                pass
        if not alike:
            break
    blocks = {block.address: block.nbytes for segment in recording.segments for block in segment.blocks}
    ends_alike = segments.by_address == {each.address: each.nbytes for each in recording.segments}
    ends_alike &= {address: each.nbytes for address, each in held.items()} == blocks
    requests, taken_segments = _count(recording, Action.ALLOCATE), _count(recording, Action.SEGMENT_TAKEN)
    return Agreement(requests, agreed, taken_segments, segments_agreed, most_bytes, whole=alike and ends_alike)


def _compare_growing(recording: Recording, settings: AllocatorSettings) -> Agreement:
    """Compare places of blocks in their segments, and mapped bytes; the driver decides where segments lie."""
    allocator = pytorch_allocator(UNLIMITED_BYTES, GRANULE_BYTES, settings)
    addresses: dict[int, int] = {}
    held: dict[int, Block] = {}
    reserved = agreed = maps = maps_agreed = most_bytes = 0
    emptied, alike = False, True
    for event in recording.events:
        match event.action:
            case Action.PAGES_MAPPED:
                reserved += event.nbytes
                maps += 1
            case Action.PAGES_UNMAPPED:
                reserved -= event.nbytes
                # All free pages are unmapped at once.
                if not emptied:
                    allocator.empty_cache()
                emptied = True
            case Action.ALLOCATE:
                emptied = False
                block = held[event.address] = _taken(allocator, event)
                starts = allocator.segment_starts
                base = starts[bisect_right(starts, block.start) - 1]
                alike = addresses.setdefault(base, event.address - block.start) == event.address - block.start
                alike &= allocator.reserved_bytes == reserved
                if not alike:
                    break
                agreed, maps_agreed = agreed + 1, maps
                most_bytes = max(most_bytes, allocator.allocated_bytes)
            case Action.FREE_COMPLETED:
                allocator.free(held.pop(event.address))
            case _:
                pass
    ends_alike = allocator.reserved_bytes == sum(each.nbytes for each in recording.segments)
    requests, mapped = _count(recording, Action.ALLOCATE), _count(recording, Action.PAGES_MAPPED)
    return Agreement(requests, agreed, mapped, maps_agreed, most_bytes, whole=alike and ends_alike)


def _count(recording: Recording, action: Action) -> int:
    return sum(each.action is action for each in recording.events)


def _taken(allocator: CachingAllocator, event: Event) -> Block:
    block = allocator.take(round_up(event.nbytes, GRANULE_BYTES), event.stream)
    assert block is not None, "memory has no limit"
    return block


class _RecordedSegments(WholeSegments):
    """Segments at their recorded addresses, or one after the other in the order in which they were taken.

    Attributes:
        by_address: their sizes by recorded address.
        grown: the segment that was taken last, until it is compared.
    """

    def __init__(self, settings: AllocatorSettings, *, by_address: bool) -> None:
        super().__init__(UNLIMITED_BYTES, GRANULE_BYTES, settings)
        self._places_by_address = by_address
        self._addresses: list[int] = []
        self._places: dict[int, int] = {}
        self._announced = 0
        self.by_address: dict[int, int] = {}
        self.grown: Block | None = None

    def announce(self, address: int) -> None:
        self._announced = address

    def grow(self, pool: StreamPool, nbytes: int, pools: Iterable[StreamPool]) -> tuple[int, int] | None:
        """Take a segment for a request, at the announced address."""
        address = self._announced
        if self._places_by_address:
            self._next_segment = address
        found = super().grow(pool, nbytes, pools)
        assert found is not None
        size, place = found
        self.grown = Block(address, size)
        self._note(address, size, place)
        return found

    def adopt(self, address: int, nbytes: int) -> int:
        """Add a segment from before the history; return its place in the model."""
        place = address if self._places_by_address else self._next_segment
        self._next_segment = place + nbytes
        self.borders[place] = nbytes
        self.reserved_bytes += nbytes
        self._note(address, nbytes, place)
        return place

    def drop(self, pool: StreamPool, address: int) -> None:
        self._release(pool, self._places.pop(address))
        self._addresses.remove(address)
        del self.by_address[address]

    def place_of(self, address: int) -> int:
        """Return the place in the model of an address; -1 outside of segments."""
        found = bisect_right(self._addresses, address) - 1
        if found < 0:
            return -1
        base = self._addresses[found]
        return self._places[base] + address - base

    def _note(self, address: int, size: int, place: int) -> None:
        if address not in self._places:
            insort(self._addresses, address)
        self._places[address] = place
        self.by_address[address] = size


class _RecordedAllocator(CachingAllocator):
    """An allocator that begins with segments and blocks in use."""

    def __init__(self, segments: _RecordedSegments, settings: AllocatorSettings) -> None:
        super().__init__(segments, settings)
        self._recorded = segments

    def adopt(self, address: int, segment: StartSegment) -> dict[int, Block]:
        """Add a segment with blocks in use; return these by their addresses."""
        place = free = self._recorded.adopt(address, segment.nbytes)
        # The size of a request selects the pool.
        pool = self._pool(GRANULE_BYTES if segment.small else segment.nbytes, segment.stream)
        held = {}
        for block in segment.blocks:
            at = block.start - address + place
            pool.free.add(free, at - free)
            self._taken[at] = pool, segment.stream
            self.allocated_bytes += block.nbytes
            held[block.start] = Block(at, block.nbytes)
            free = at + block.nbytes
        pool.free.add(free, place + segment.nbytes - free)
        return held

    def drop(self, address: int) -> bool:
        """Free the segment at an address; return whether the model has it without blocks in use."""
        size, place = self._recorded.by_address.get(address), self._recorded.place_of(address)
        pool = next((each for each in self._pools.values() if size and each.free.size_at(place) == size), None)
        if pool is None:
            return False
        self._recorded.drop(pool, address)
        return True
