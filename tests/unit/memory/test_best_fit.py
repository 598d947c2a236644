import pytest

from vdnnsim.memory.online import place_best_fit
from vdnnsim.memory.requests import Overflow, Placed, Request

# Five buffers fill 100 B: 0 at 0 (30 B), 1 at 30 (10 B), 2 at 40 (20 B), 3 at 60 (10 B), 4 at 70 (30 B).
FULL = [Request(0, 30), Request(1, 10), Request(2, 20), Request(3, 10), Request(4, 30)]
THREE = [Request(0, 30), Request(1, 30), Request(2, 30)]


def offset_of_last(requests: list[Request], capacity_bytes: int = 100) -> int | None:
    answer = place_best_fit(requests, capacity_bytes, 1)
    assert isinstance(answer, Placed)
    return answer.offsets[-1]


def test_an_empty_pool_is_filled_from_below() -> None:
    """Each request takes from the one free piece that begins where the one before ended."""
    assert place_best_fit(FULL, 100, 1) == Placed((0, 30, 40, 60, 70), (30, 10, 20, 10, 30), 100)


def test_the_smallest_piece_that_is_large_enough_wins() -> None:
    """Free: 30 B at 0 and 20 B at 40. 15 B fit into both and take the smaller; 25 B fit into the larger alone."""
    freed = [*FULL, Request(0, None), Request(2, None)]

    assert offset_of_last([*freed, Request(5, 15)]) == 40
    assert offset_of_last([*freed, Request(5, 25)]) == 0


def test_the_lowest_of_equal_pieces_wins() -> None:
    """Free, in this order: 30 B at 70, then 30 B at 0."""
    assert offset_of_last([*FULL, Request(4, None), Request(0, None), Request(5, 30)]) == 0


def test_what_a_request_leaves_of_a_piece_stays_free() -> None:
    """Free: 30 B at 0 and 20 B at 40. 15 B at 40 leave 5 B at 55, which the next 5 B take."""
    requests = [*FULL, Request(0, None), Request(2, None), Request(5, 15), Request(6, 5)]

    assert offset_of_last(requests) == 55


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_piece_merges_with_its_neighbour(order: tuple[int, int]) -> None:
    """0 and 1 leave 40 B at 0, whichever goes first; no other piece could hold 40 B."""
    assert offset_of_last([*FULL, *(Request(key, None) for key in order), Request(5, 40)]) == 0


def test_a_piece_between_two_free_ones_merges_with_both() -> None:
    """0, 2 and then 1 leave 30 + 10 + 20 = 60 B at 0."""
    requests = [*FULL, Request(0, None), Request(2, None), Request(1, None)]

    assert offset_of_last([*requests, Request(5, 60)]) == 0
    assert place_best_fit([*requests, Request(5, 61)], 100, 1) == Overflow(8, (3, 4), 60, 60)


def test_a_piece_merges_with_the_one_below_wherever_that_begins() -> None:
    """1 at 30 and 2 at 40 leave 30 to 60, the only place for 30 B."""
    assert offset_of_last([*FULL, Request(1, None), Request(2, None), Request(5, 30)]) == 30


def test_what_was_never_used_merges_too() -> None:
    """30 B given back below 70 B that were never taken make 100 B."""
    assert offset_of_last([Request(0, 30), Request(0, None), Request(1, 100)]) == 0


def test_fragmentation_is_a_result() -> None:
    """Three times 30 fill 90; without the first and the last 60 are free, but in pieces of 30: 40 do not fit."""
    requests = [*THREE, Request(0, None), Request(2, None), Request(3, 40)]

    assert place_best_fit(requests, 90, 1) == Overflow(position=5, held=(1,), free_bytes=60, largest_free_bytes=30)


def test_a_full_pool_has_no_piece() -> None:
    assert place_best_fit([*THREE, Request(3, 1)], 90, 1) == Overflow(3, (0, 1, 2), 0, 0)


def test_sizes_are_rounded_to_granules_and_the_pool_reaches_to_the_highest_end() -> None:
    """Granule 10: 25 B take 30 at 0, 5 B take 10 at 30. After the 30 are gone 11 B take 20 at 0; the top was 40."""
    requests = [Request(0, 25), Request(1, 5), Request(0, None), Request(2, 11)]

    assert place_best_fit(requests, 40, 10) == Placed((0, 30, 0, 0), (30, 10, -30, 20), 40)


def test_nothing_asked_nothing_needed() -> None:
    assert place_best_fit([], 10, 1) == Placed((), (), 0)


def test_the_pool_needs_its_gaps_as_well() -> None:
    """20 at 0, 20 at 20; the first goes, 30 do not fit below and lie at 40 to 70: 50 in use, 70 needed."""
    requests = [Request(0, 20), Request(1, 20), Request(0, None), Request(2, 30)]

    assert place_best_fit(requests, 100, 1) == Placed((0, 20, 0, 40), (20, 20, -20, 30), 70)


def test_a_request_of_nothing_takes_nothing_from_a_full_pool() -> None:
    """10 B are held of 10; 0 B more are served, and given back, without a piece."""
    answer = place_best_fit([Request(0, 10), Request(1, 0), Request(1, None), Request(0, None)], 10, 1)

    assert answer == Placed(offsets=(0, 0, 0, 0), deltas=(10, 0, 0, -10), pool_bytes=10)
