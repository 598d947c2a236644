"""The rules of PyTorch's caching allocator, each worked out by hand; sizes in MiB where not said otherwise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory_requests import give, take
from vdnnsim.memory.caching import place_pytorch
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.memory.segments import segment_bytes
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.units import MIB

ROOMY = 2**40


def served(requests: list[Request], capacity_bytes: int = ROOMY) -> Placed:
    answer = place_pytorch(requests, capacity_bytes, 512)
    assert isinstance(answer, Placed)
    return answer


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (31 * MIB, 32 * MIB),
    ],
)
def test_a_segment_has_the_size_of_its_class(nbytes: int, expected: int) -> None:
    """2 MiB up to 1 MiB, 20 MiB below 10 MiB, then the request rounded up to 2 MiB."""
    assert segment_bytes(nbytes) == expected


def test_small_requests_share_a_segment() -> None:
    """1 B and 513 B take 512 B and 1024 B, one after the other, of one segment of 2 MiB."""
    assert served([Request(0, 1), Request(1, 513)]) == Placed((0, 512), (512, 1024), 2 * MIB)


def test_a_medium_request_is_cut_from_a_segment_of_20_mib() -> None:
    """8 and 9 leave 3, which is more than 1 MiB and so free: 2 go there; the last 1 MiB is no more, and goes along."""
    answer = served([take(0, 8), take(1, 9), take(2, 2)])

    assert answer == Placed((0, 8 * MIB, 17 * MIB), (8 * MIB, 9 * MIB, 3 * MIB), 20 * MIB)


def test_a_rest_of_1_mib_is_not_cut_off_a_large_block() -> None:
    """11 MiB get a segment of 12, and the rest, 1 MiB, is not more than 1 MiB: all 12 count as allocated."""
    assert served([take(0, 11)]).deltas == (12 * MIB,)


def test_a_rest_above_1_mib_is_cut_off() -> None:
    """16 MiB come back; 14.5 are cut from them and leave 1.5, which the next 1.5 take."""
    answer = served([take(0, 16), give(0), take(1, 14.5), take(2, 1.5)])

    assert answer.offsets == (0, 0, 0, int(14.5 * MIB))
    assert answer.pool_bytes == 16 * MIB


def test_the_pools_do_not_help_each_other() -> None:
    """A free block of 20 MiB serves no request of 1 MiB, which takes a segment of its own."""
    assert served([take(0, 20), give(0), take(1, 1)]).pool_bytes == 22 * MIB


def test_the_smallest_block_that_is_large_enough_wins_and_the_lowest_among_equals() -> None:
    """Free are 30 at 0, 20 at 30 and 20 at 50, each a segment. 20 go to 30, then 20 to 50, then 20 to the 30."""
    freed = [take(0, 30), take(1, 20), take(2, 20), give(0), give(1), give(2)]
    answer = served([*freed, take(3, 20), take(4, 20), take(5, 20)])

    assert answer.offsets[6:] == (30 * MIB, 50 * MIB, 0)
    assert answer.pool_bytes == 70 * MIB


def test_a_block_merges_with_both_neighbours_but_never_across_segments() -> None:
    """5, 5 and 10 fill a segment of 20; after all three came back it is whole, and 19.5 take all of it.

    Two free segments of 20 do not make 40: that is a third one.
    """
    filled = [take(0, 5), take(1, 5), take(2, 9.5)]
    freed = [*filled, give(0), give(2), give(1)]

    assert served([*freed, take(3, 19.5)]).deltas[-1] == 20 * MIB
    assert served([*freed, take(3, 20), take(4, 20), give(3), give(4), take(5, 40)]).pool_bytes == 80 * MIB


def test_free_segments_go_back_to_the_gpu_when_it_has_no_room() -> None:
    """40 MiB: 20 and 18 come back, 30 find neither a block nor room. Both segments go, and 30 fit."""
    answer = served([take(0, 20), take(1, 18), give(0), give(1), take(2, 30)], 40 * MIB)

    assert answer.pool_bytes == 38 * MIB
    assert answer.deltas[-1] == 30 * MIB


def test_a_segment_in_use_does_not_go_back() -> None:
    """40 MiB: 5 hold a segment of 20, of which 15 are free. 22 MiB do not fit though 35 are free: 15, and 20 beside."""
    answer = place_pytorch([take(0, 5), take(1, 22)], 40 * MIB, 512)

    assert answer == Overflow(1, (0,), 35 * MIB, 20 * MIB)


def test_a_medium_request_does_not_fit_where_its_segment_does_not() -> None:
    """19 MiB hold no segment of 20 MiB, which a request of 2 MiB would be cut from."""
    assert place_pytorch([take(0, 2)], 19 * MIB, 512) == Overflow(0, (), 19 * MIB, 0)


SIZES = st.sampled_from((1, 700, 4096, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 15 * MIB + 5, 40 * MIB))


@pytest.mark.parametrize("grow", [False, True])
@settings(max_examples=60)
@given(
    toggles=st.lists(st.tuples(st.integers(0, 7), SIZES), max_size=40),
    capacity_bytes=st.sampled_from((24 * MIB, 96 * MIB, ROOMY)),
)
def test_blocks_in_use_never_overlap_and_nothing_is_lost(
    grow: bool,  # noqa: FBT001  # given by pytest
    toggles: list[tuple[int, int]],
    capacity_bytes: int,
) -> None:
    """A key takes bytes if it has none and gives them back if it has; at the end everything is given back.

    Blocks in use lie apart and are at least as large as asked; allocated never exceeds reserved, reserved never the
    capacity.
    """
    requests: list[Request] = []
    held: set[int] = set()
    for key, nbytes in toggles:
        requests.append(Request(key, None if key in held else nbytes))
        held ^= {key}
    requests += [Request(key, None) for key in held]
    answer = place_pytorch(requests, capacity_bytes, 512, AllocatorSettings(expandable_segments=grow))
    if isinstance(answer, Overflow):
        assert 0 <= answer.largest_free_bytes <= answer.free_bytes <= capacity_bytes
        return
    live: dict[int, tuple[int, int]] = {}
    for request, offset, delta in zip(requests, answer.offsets, answer.deltas, strict=True):
        assert offset is not None
        if request.nbytes is None:
            assert live.pop(request.key) == (offset, offset - delta)
            continue
        assert delta >= round_up(request.nbytes, 512)
        assert all(offset + delta <= start or end <= offset for start, end in live.values())
        live[request.key] = (offset, offset + delta)
        assert sum(end - start for start, end in live.values()) <= answer.pool_bytes
    assert not live
    assert sum(answer.deltas) == 0
    assert answer.pool_bytes <= capacity_bytes


def test_of_memory_taken_ahead_nothing_is_given_back() -> None:
    """A segment of 12 MiB is free, which 14 MiB do not fit into, and 20 MiB are all that may be taken."""
    requests = [take(0, 12), Request(0, None), take(1, 14)]
    assert isinstance(place_pytorch(requests, 20 * MIB, 512), Placed)
    kept = place_pytorch(requests, 20 * MIB, 512, AllocatorSettings(preallocated=True))
    assert isinstance(kept, Overflow)
    assert kept.position == 2
