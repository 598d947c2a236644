"""Segments that a process has, by hand: an empty allocator is brought into their state."""

from itertools import count

from tests.memory_requests import placed
from vdnnsim.memory.caching import place_pytorch, pytorch_allocator
from vdnnsim.memory.live_segments import LiveBlock, LiveSegment, LiveSegments, Use
from vdnnsim.memory.online import Block, serve
from vdnnsim.memory.requests import Request
from vdnnsim.units import MIB

KIB = 1024


def block(nbytes: int, use: Use) -> LiveBlock:
    return LiveBlock(nbytes, nbytes, use)


LIVE = LiveSegments(
    (
        LiveSegment(
            is_small=False,
            blocks=(block(12 * MIB, Use.PLANNED), block(8 * MIB, Use.FREE)),
        ),
        LiveSegment(
            is_small=True,
            blocks=(block(KIB, Use.PLANNED), block(1536 * KIB, Use.FREE), block(511 * KIB, Use.OTHER)),
        ),
        LiveSegment(
            is_small=False,
            blocks=(block(6 * MIB, Use.FREE), block(12 * MIB, Use.OTHER), block(2 * MIB, Use.PLANNED)),
        ),
    ),
    has_states=False,
)
KEYS = {4: 12 * MIB, 7: KIB - 300}
"""Of two of three planned blocks; that of 2 MiB was of a tensor that the plan does not count."""


def requests() -> list[Request]:
    return LIVE.requests(KEYS, count(100), 512)


def test_blocks_lie_as_in_the_process_and_all_others_are_free() -> None:
    """Segments of 20, 2 and 20 MiB. In the third others hold 12 MiB, with 6 free before them and 2 behind."""
    pool = pytorch_allocator(42 * MIB, 512)
    placed(serve(requests(), pool, 42 * MIB, 512))
    assert pool.ranges == [(0, 20 * MIB), (20 * MIB, 2 * MIB), (22 * MIB, 20 * MIB)]
    assert pool.free_blocks == [
        Block(12 * MIB, 8 * MIB),
        Block(20 * MIB + KIB, 1536 * KIB),
        Block(22 * MIB, 6 * MIB),
        Block(40 * MIB, 2 * MIB),
    ]


def test_known_buffers_have_the_blocks_of_their_size() -> None:
    """The request of 724 B has 1 KiB."""
    asked = requests()
    offsets = placed(place_pytorch(asked, 42 * MIB, 512)).offsets
    found = {each.key: at for each, at in zip(asked, offsets, strict=True) if each.key in KEYS}
    assert found == {4: 0, 7: 20 * MIB}


def test_the_next_request_takes_the_smallest_free_block_that_holds_it() -> None:
    """5 MiB the 6 of the third segment; before 8 of the first, which is older."""
    offsets = placed(place_pytorch([*requests(), Request(1, 5 * MIB)], 42 * MIB, 512)).offsets
    assert offsets[-1] == 22 * MIB


def test_only_blocks_of_others_are_beside_the_plan() -> None:
    assert LIVE.other_bytes == 12 * MIB + 511 * KIB
