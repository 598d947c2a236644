"""The model of PyTorch's allocator beside what a snapshot recorded: does each block lie where PyTorch put it?

The model begins with the segments and blocks of the beginning, at their addresses. Where the GPU's driver put a segment
is taken from the record, and so is when segments were given back, for nobody recorded how much memory was free.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vdnnsim.memory.caching import CachingAllocator, StreamPool
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import UNLIMITED_BYTES, round_up
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.memory.whole_segments import WholeSegments
from vdnnsim.recordings.snapshot import Action, Recording
from vdnnsim.recordings.snapshot_start import GRANULE_BYTES, Start, StartSegment


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the model did what PyTorch did.

    Attributes:
        requests: that were recorded.
        agreed: of these, how many lie where PyTorch put them before the first that does not.
        segments: that PyTorch took meanwhile.
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


def compare(recording: Recording, start: Start, settings: AllocatorSettings) -> Agreement:
    """Ask the model what a recording says, up to the first difference; segments of a recording are whole ones."""
    segments = _RecordedSegments(settings)
    allocator = _RecordedAllocator(segments, settings)
    for address, segment in start.segments.items():
        allocator.adopt(address, segment)
    held = {block.start: block for segment in start.segments.values() for block in segment.blocks}
    agreed = segments_agreed = 0
    most_bytes = allocator.allocated_bytes
    taken: Block | None = None
    alike = True
    for event in recording.events:
        match event.action:
            case Action.SEGMENT_TAKEN:
                taken = Block(event.address, event.nbytes)
                segments.place_next(event.address)
            case Action.SEGMENT_GIVEN_BACK:
                alike = allocator.drop(event.address)
            case Action.ALLOCATE:
                block = allocator.take(round_up(event.nbytes, GRANULE_BYTES), event.stream)
                assert block is not None
                grown = segments.grown
                segments.grown = None
                alike = block.start == event.address and grown == taken
                agreed += alike
                segments_agreed += alike and taken is not None
                taken = None
                held[event.address] = block
                most_bytes = max(most_bytes, allocator.allocated_bytes)
            case Action.FREE_COMPLETED:
                allocator.give_back(held.pop(event.address))
            case _:
                pass
        if not alike:
            break
    requests = sum(each.action is Action.ALLOCATE for each in recording.events)
    return Agreement(
        requests=requests,
        agreed=agreed,
        segments=sum(each.action is Action.SEGMENT_TAKEN for each in recording.events),
        segments_agreed=segments_agreed,
        most_allocated_bytes=most_bytes,
        whole=alike and _ends_alike(recording, segments, held),
    )


def _ends_alike(recording: Recording, segments: "_RecordedSegments", held: dict[int, Block]) -> bool:
    blocks = {block.address: block.nbytes for segment in recording.segments for block in segment.blocks}
    taken = {each.address: each.nbytes for each in recording.segments}
    return segments.borders == taken and {each.start: each.nbytes for each in held.values()} == blocks


class _RecordedSegments(WholeSegments):
    """Segments where the driver put them.

    Attributes:
        grown: the segment that was taken last, until somebody looks.
    """

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(UNLIMITED_BYTES, GRANULE_BYTES, settings)
        self.grown: Block | None = None

    def place_next(self, address: int) -> None:
        """Take the next segment at an address."""
        self._next_segment = address

    def grow(self, pool: StreamPool, nbytes: int, pools: "Sequence[StreamPool]") -> tuple[int, int] | None:  # type: ignore[override]
        found = super().grow(pool, nbytes, pools)
        assert found is not None
        self.grown = Block(found[1], found[0])
        return found

    def adopt(self, address: int, nbytes: int) -> None:
        """Have a segment that was taken before."""
        self.borders[address] = nbytes
        self.reserved_bytes += nbytes

    def drop(self, pool: StreamPool, address: int) -> None:
        """Give back one segment."""
        self._give_back(pool, address)


class _RecordedAllocator(CachingAllocator):
    """An allocator that begins with what another one held."""

    def __init__(self, segments: _RecordedSegments, settings: AllocatorSettings) -> None:
        super().__init__(segments, settings)
        self._recorded = segments

    def adopt(self, address: int, segment: StartSegment) -> None:
        """Have a segment with blocks in use."""
        self._recorded.adopt(address, segment.nbytes)
        # A request of a granule is of the small pool, one of a whole segment of the large one.
        pool = self._pool(GRANULE_BYTES if segment.small else segment.nbytes, segment.stream)
        free = address
        for block in segment.blocks:
            pool.free.add(free, block.start - free)
            self._taken[block.start] = pool, segment.stream
            self.allocated_bytes += block.nbytes
            free = block.start + block.nbytes
        pool.free.add(free, address + segment.nbytes - free)

    def drop(self, address: int) -> bool:
        """Give back the segment at an address; say whether the model has it, and nothing in it in use."""
        size = self._recorded.borders.get(address)
        pool = next((each for each in self._pools.values() if size and each.free.size_at(address) == size), None)
        if pool is None:
            return False
        self._recorded.drop(pool, address)
        return True
