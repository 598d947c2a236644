"""The requests of a snapshot asked of a memory model: how much it would have reserved, and whether that fits.

A replay begins with an empty memory, asks for what was in use when the history begins, from the lowest address on, and
goes on with the history. What PyTorch refused then is not asked, and what it emptied from its cache is kept. A block
that waited for other streams waits as long; memory models other than PyTorch's know no streams, and hold it until then.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.choices import MemoryChoice, settings_of
from vdnnsim.memory.models import place
from vdnnsim.memory.online import Block
from vdnnsim.memory.pytorch import pytorch_allocator
from vdnnsim.memory.requests import UNLIMITED_BYTES, Overflow, Request, round_up
from vdnnsim.memory.settings import GRANULE_BYTES, AllocatorSettings
from vdnnsim.recordings.snapshot import Action, Event, Recording
from vdnnsim.recordings.snapshot_start import Start
from vdnnsim.units import MIB

_SHORT_BY_BYTES: Final = 8 * MIB
"""To so many bytes it is found out how much is lacking."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The most that was in use, and the most that was reserved for it, gaps included."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What there is: free for the allocator, and in all, of which settings take a part."""

    free_bytes: int
    total_bytes: int

    def with_more(self, nbytes: int) -> "Memory":
        """Return a larger memory."""
        return Memory(self.free_bytes + nbytes, self.total_bytes + nbytes)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a memory model does with the requests of a recording.

    Attributes:
        peaks: without a limit of memory.
        short_bytes: by how much memory is too small, to 8 MiB; 0 where it fits or no limit was given.
    """

    model: MemoryChoice
    peaks: Peaks
    short_bytes: int = 0


def recorded_peaks(recording: Recording, start: Start, settings: AllocatorSettings) -> Peaks:
    """Return what PyTorch itself had at most, as far as a recording says it.

    What was reserved is told; what was in use is counted in requests as they are rounded up, without what was too
    little to be cut off a block.
    """
    reserved = most_reserved = first_reserved_bytes(recording)
    sizes = {address: _block_bytes(nbytes, settings) for address, (nbytes, _) in start.requested.items()}
    in_use = most_in_use = sum(sizes.values())
    for event in recording.events:
        reserved += event.nbytes * _PAGES.get(event.action, 0)
        most_reserved = max(most_reserved, reserved)
        if event.action is Action.ALLOCATE:
            sizes[event.address] = _block_bytes(event.nbytes, settings)
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
    """Return what was reserved when the history begins."""
    taken = sum(event.nbytes * _PAGES.get(event.action, 0) for event in recording.events)
    return sum(each.nbytes for each in recording.segments) - taken


def _block_bytes(nbytes: int, settings: AllocatorSettings) -> int:
    return settings.rounded(round_up(nbytes, GRANULE_BYTES))


def replay(recording: Recording, start: Start, model: MemoryChoice, memory: Memory | None = None) -> Replay:
    """Ask a memory model what was recorded, beginning with what was in use then; without a memory there is no limit."""
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
    low, high = 0, max(_SHORT_BY_BYTES, roomy.reserved_bytes - memory.free_bytes)
    # Where settings allow but a part of all memory, it takes more than what is reserved.
    while peaks(memory.with_more(high)) is None:
        low, high = high, 2 * high
    while high - low > _SHORT_BY_BYTES:
        middle = (low + high) // 2
        if peaks(memory.with_more(middle)) is None:
            low = middle
        else:
            high = middle
    return Replay(model, roomy, high)


def _peaks_of_pytorch(recording: Recording, start: Start, allocator: CachingAllocator) -> Peaks | None:
    """Return peaks under PyTorch's allocator; None where a request finds no room."""
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
                # A stream of its own for each block that waits: nobody recorded which it was.
                stream = waits_for[event.address] = -1 - at
                block = held.pop(event.address)
                allocator.record_use(block, stream)
                allocator.give_back(block)
            case Action.FREE_COMPLETED if event.address in waits_for:
                stream = waits_for.pop(event.address)
                allocator.reach(stream, allocator.waiting_blocks(stream))
            case Action.FREE_COMPLETED:
                allocator.give_back(held.pop(event.address))
            case _:
                pass
    return Peaks(most_bytes, allocator.pool_bytes)


def _completed_at_once(events: tuple[Event, ...], at: int) -> bool:
    following = events[at + 1] if at + 1 < len(events) else None
    return (
        following is not None and following.action is Action.FREE_COMPLETED and following.address == events[at].address
    )


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
    """Yield requests for what was in use at the beginning, then the history."""
    for address, (nbytes, stream) in start.requested.items():
        yield Event(Action.ALLOCATE, address, nbytes, stream)
    yield from recording.events
