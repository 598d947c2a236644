"""What an allocator held when a history begins: what it holds at the end, with every event undone from the last on.

Where in a segment blocks lay that were freed since follows from the rules of PyTorch's allocator: what would have been
too little to be cut off a block belongs to it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vdnnsim.errors import RecordingError
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import GRANULE_BYTES, AllocatorSettings
from vdnnsim.memory.whole_segments import SMALL_SEGMENT_BYTES, least_rest_bytes
from vdnnsim.recordings.snapshot import Action, Event, Recording


@dataclass(frozen=True, slots=True)
class StartSegment:
    """A segment at the beginning, with the blocks in it that are in use."""

    nbytes: int
    stream: int
    small: bool
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """What was there at the beginning.

    Attributes:
        segments: by address.
        requested: bytes that were asked for and the stream, by the address of each block in use, from the lowest on.
    """

    segments: Mapping[int, StartSegment]
    requested: Mapping[int, tuple[int, int]]


def start_of(recording: Recording, settings: AllocatorSettings, name: str) -> Start:
    """Return what the allocator of one GPU held when a history begins.

    Raises:
        RecordingError: an event cannot have led to what was there afterwards, or a block lies in no segment.
    """
    segments = {each.address: StartSegment(each.nbytes, each.stream, each.small) for each in recording.segments}
    requested: dict[int, tuple[int, int]] = {}
    sizes: dict[int, int] = {}
    for segment in recording.segments:
        for block in segment.blocks:
            requested[block.address] = block.requested_bytes, segment.stream
            sizes[block.address] = block.nbytes
    for place in range(len(recording.events) - 1, -1, -1):
        event = recording.events[place]
        if not _undo(event, segments, requested, sizes):
            raise RecordingError(
                f"{name}: device_traces[{recording.gpu}][{place}]: {event.action.value} of {event.nbytes} bytes at "
                f"{event.address} does not lead to what is there afterwards, expected a history up to the snapshot"
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
    event: Event,
    segments: dict[int, StartSegment],
    requested: dict[int, tuple[int, int]],
    sizes: dict[int, int],
) -> bool:
    """Undo one event; say whether it can have happened."""
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
            # Pages that were mapped are not needed: such a segment is replayed from its blocks alone.
            return True


def _blocks(
    starts: Sequence[int],
    end: int,
    small: bool,  # noqa: FBT001  # of the segment
    requested: Mapping[int, tuple[int, int]],
    sizes: Mapping[int, int],
    settings: AllocatorSettings,
) -> Iterator[Block]:
    """Yield the blocks that lay in a segment."""
    for start, limit in zip(starts, [*starts[1:], end], strict=False):
        nbytes = sizes.get(start)
        if nbytes is None:
            nbytes = settings.rounded(round_up(requested[start][0], GRANULE_BYTES))
            least = least_rest_bytes(settings, nbytes, GRANULE_BYTES, small=small)
            if least is None or limit - start - nbytes < least:
                nbytes = limit - start
        yield Block(start, nbytes)
