"""Chunks and their copies, on the chain of ten kernels: 1 B/s, one after the other."""

from collections.abc import Sequence

import pytest

from tests.unit.planning.chain_of_ten_kernels import TURN, chain_problem, wait_of
from vdnnsim.planning.timetable import Chunk, Movement, Timetable, at_needs, in_pieces, to_offload

INPUT, CONV1, CONV2 = (wait_of(f"map {name}") for name in ("input", "conv1", "conv2"))
WAITS = chain_problem(1000).idle


def movement(capacity_bytes: int, chunks: Sequence[Chunk], turn: int = TURN) -> Movement:
    return Movement(chain_problem(capacity_bytes), turn, chunks, float, float)


def timetable(capacity_bytes: int, chunks: Sequence[Chunk]) -> Timetable:
    move = movement(capacity_bytes, chunks)
    return move.timetable([each.options[0] for each in move.problem.kernels])


def test_the_buffer_idle_first_is_offloaded_first_and_no_more_than_requested() -> None:
    """Over kernel 5 three maps are idle, over kernel 7 two, and no gradient over a kernel that uses it."""
    assert to_offload(WAITS, 5) == to_offload(WAITS, 5, 1000) == [(INPUT, 10), (CONV1, 10), (CONV2, 10)]
    assert to_offload(WAITS, 7) == [(INPUT, 10), (CONV1, 10)]
    assert to_offload(WAITS, 0) == []
    assert to_offload(WAITS, 5, 15) == [(INPUT, 10), (CONV1, 5)]
    assert to_offload(WAITS, 5, 10) == [(INPUT, 10)]


def test_pieces_are_of_one_size_but_for_the_last() -> None:
    """A whole buffer in one piece has no extent."""
    assert in_pieces([(INPUT, 10), (CONV1, 5)], 4) == [
        *(Chunk(INPUT, 4, range(4)), Chunk(INPUT, 4, range(4, 8)), Chunk(INPUT, 2, range(8, 10))),
        *(Chunk(CONV1, 4, range(4)), Chunk(CONV1, 1, range(4, 5))),
    ]
    assert in_pieces([(INPUT, 10), (CONV1, 5)], 10) == [Chunk(INPUT, 10, None), Chunk(CONV1, 5, range(5))]


@pytest.mark.parametrize(
    ("before", "after", "granule_bytes", "extents"),
    [
        # 8 B must be on the host, then 10, 12 and 20 B: the input is cut at 8, the map of conv1 at 12 - 10. After the
        # turn the input is prefetched last; while 18 B must be on the host, the first 2 B of conv1 may be back.
        ((8, 10, 12, 20), (20, 18), 1, [range(8), range(8, 10), range(2), range(2, 10)]),
        ((), (13,), 1, [None, range(7), range(7, 10)]),
        # In granules of 4 B the cut at 2 is made at 4 before the turn; after it, 18 B would be cut at 2, that is at 0.
        ((12,), (), 4, [None, range(4), range(4, 10)]),
        ((), (18,), 4, [None, None]),
        ((), (13,), 4, [None, range(4), range(4, 10)]),
    ],
)
def test_chunks_end_where_needs_do(
    before: tuple[int, ...], after: tuple[int, ...], granule_bytes: int, extents: list[range | None]
) -> None:
    found = at_needs([(INPUT, 10), (CONV1, 10)], before, after, granule_bytes)
    assert [each.extent for each in found] == extents


def test_kernels_wait_for_offloads_and_prefetches() -> None:
    """At 294 B kernel 2 lacks 2 B, 3 and 4 lack 4 B, 5 and 6 lack 12 B, 7 and 8 lack 10 B.

    The input is offloaded from 0 on: 2 B until 2 s, 2 more until 4, 6 more until 10, 2 B of conv1 until 12.
    Kernels 0, 1 and 2 follow each other until 3 s, 3 waits until 4, 4 ends at 6, 5 waits until 12, and 6 ends at 14.
    conv1 is prefetched from then until 16, so that 8 waits 1 s after 7. The input must be on the host until 8 ends at
    17: it is back at 27, when 9 begins. Finer chunks would help the kernels that wait for offloads, 3 and 5, and those
    beside which the link is idle: from 12 to 14 s, beside 5 and 6, and from 16 to 17 s, beside 8.
    """
    chunks = at_needs([(INPUT, 10), (CONV1, 2)], (2, 4, 12), (12, 10), 1)
    found = timetable(294, chunks)

    assert [each.nbytes for each in chunks] == [2, 2, 6, 2]
    assert found.released == (0, 0, 1, 2, 2, 4, 4, 4, 4, 4)
    assert found.fetched == (0, 0, 0, 0, 0, 0, 0, 1, 1, 4)
    assert found.stalls == [0, 0, 0, 1, 0, 6, 0, 0, 1, 10]
    assert found.seconds == 28
    assert found.hindered == {3, 5, 6, 8}


def test_nothing_is_offloaded_before_it_is_written() -> None:
    """Kernel 0 writes the map of conv1: its copy follows that of the input, or begins with kernel 1."""
    assert movement(294, in_pieces([(INPUT, 10), (CONV1, 10)], 10)).issued == [0, 1]
    assert timetable(304, [Chunk(CONV1, 10, None)]).stalls[:6] == [0, 0, 0, 0, 0, 6]
    # At 305 B 1 B is on the host for kernels 5 and 6, and back long before kernel 9.
    found = timetable(305, in_pieces(to_offload(WAITS, TURN, 1), 1))
    assert found.released == (0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
    assert found.fetched == (0, 0, 0, 0, 0, 0, 0, 1, 1, 1)
    assert found.seconds == 10


def test_stages_round_needs_up_to_chunks() -> None:
    """At 294 B kernel 2 lacks 2 B, for which a chunk of 10 B is offloaded, kernel 5 lacks 12 B: both chunks.

    Kernel 8 lacks 10 B, and only the input is idle then. Before kernel 1 the map of conv1 does not exist.
    """
    stages = movement(294, in_pieces([(INPUT, 10), (CONV1, 10)], 10)).stages

    needs = [(need.sent_bytes, need.returned_bytes) for (need,), _, _ in stages]
    assert needs == [(0, 0), (0, 0), (10, 0), (10, 0), (10, 0), (20, 20), (0, 20), (0, 10), (0, 10), (0, 0)]
    assert [each.sendable_bytes for each in stages] == [10] + [20] * 9
    assert [each.returnable_bytes for each in stages] == [20] * 8 + [10, 0]


@pytest.mark.parametrize("capacity", [293, 250])
def test_a_kernel_with_too_little_idle_memory_has_no_need(capacity: int) -> None:
    """For kernel 8 only the input can be on the host, 10 B, and below 294 B it lacks more."""
    stages = movement(capacity, in_pieces([(INPUT, 10), (CONV1, 10)], 10)).stages

    assert stages[8].needs == ()
