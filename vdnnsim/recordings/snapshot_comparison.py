"""What a snapshot recorded of PyTorch's allocator compared with the model of it: does each block lie at its address?

The model begins with the segments and blocks of the beginning. Where the GPU's driver put a segment is taken from the
record, and so is when segments were given back, for free memory is not recorded.

Among equal blocks PyTorch takes the one at the lowest address, from 2.14 on that of the oldest segment (pytorch pull
request 183591). A snapshot does not say its version, so both are tried.
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
    """How far the model did what PyTorch did.

    Attributes:
        requests: that were recorded.
        agreed: of these, how many lie where PyTorch put them before the first that does not.
        segments: that PyTorch took meanwhile; of those that grow, how often they did.
        segments_agreed: of these, how many the model took then and in this size.
        most_allocated_bytes: in blocks in use, up to the first that lies elsewhere.
        whole: whether all is alike, with what is there at the end.
    """

    requests: int
    agreed: int
    segments: int
    segments_agreed: int
    most_allocated_bytes: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """What a snapshot says of one GPU, and the replays of its requests.

    Attributes:
        settings: of its allocator, as far as they are modelled.
        unread: why they could not be read; empty where they could.
        agreement: how far the model does what PyTorch did; None where that cannot be known.
        replays: by memory model, each from an empty memory on.
        memory: what there is; None where no limit was given.
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
    """Replay a recording under memory models, and hold the model of PyTorch's allocator against it.

    Raises:
        RecordingError: the recording contradicts itself.
    """
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
    """Ask the model what a recording says, up to the first difference.

    Where segments could grow, this is possible from an empty memory on; None for a history that begins in the middle.
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
    """Compare where blocks lie in their segments, and how much is mapped; where segments lie is the driver's affair."""
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
                # All that is free goes at once, for lack of room or as the cache is emptied.
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
    """Segments where the driver put them, or one behind the other in the order in which they were taken.

    Attributes:
        by_address: their sizes, by where the driver put them.
        grown: the segment that was taken last, as recorded, until it is compared.
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
        """Say where the driver puts the next segment."""
        self._announced = address

    def grow(self, pool: StreamPool, nbytes: int, pools: Iterable[StreamPool]) -> tuple[int, int] | None:
        """Take a segment for a request."""
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
        """Have a segment that was taken before; return its place in the model."""
        place = address if self._places_by_address else self._next_segment
        self._next_segment = place + nbytes
        self.borders[place] = nbytes
        self.reserved_bytes += nbytes
        self._note(address, nbytes, place)
        return place

    def drop(self, pool: StreamPool, address: int) -> None:
        """Give back one segment."""
        self._release(pool, self._places.pop(address))
        self._addresses.remove(address)
        del self.by_address[address]

    def place_of(self, address: int) -> int:
        """Return where in the model something lies; -1 where no segment is."""
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
    """An allocator that begins with what another one held."""

    def __init__(self, segments: _RecordedSegments, settings: AllocatorSettings) -> None:
        super().__init__(segments, settings)
        self._recorded = segments

    def adopt(self, address: int, segment: StartSegment) -> dict[int, Block]:
        """Have a segment with blocks in use; return these by their addresses."""
        place = free = self._recorded.adopt(address, segment.nbytes)
        # A request of a granule is of the small pool, one of a whole segment of the large one.
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
        """Give back the segment at an address; say whether the model has it, and nothing in it in use."""
        size, place = self._recorded.by_address.get(address), self._recorded.place_of(address)
        pool = next((each for each in self._pools.values() if size and each.free.size_at(place) == size), None)
        if pool is None:
            return False
        self._recorded.drop(pool, address)
        return True
