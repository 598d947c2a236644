from vdnnsim.memory.planned import place_planned
from vdnnsim.memory.requests import Overflow, Placed, Request


def test_what_lives_throughout_lies_at_the_bottom() -> None:
    """0 (10 B) and 2 (20 B) are taken before the first release and never given back; 1 (50 B) and 3 (40 B) come and go.

    The two at the bottom fill 0 to 30, in their order, although 1 was asked for between them; 1 and 3 share 30 and up.
    """
    requests = [Request(0, 10), Request(1, 50), Request(2, 20), Request(1, None), Request(3, 40), Request(3, None)]

    assert place_planned(requests, 80, 1) == Placed((0, 30, 10, 30, 30, 30), (10, 50, 20, -50, 40, -40), 80)


def test_a_buffer_given_back_after_the_last_request_also_lives_throughout() -> None:
    """0 is given back at the very end, as W is; 1 came after the first release and does not count."""
    requests = [Request(0, 10), Request(2, 5), Request(2, None), Request(1, 30), Request(1, None), Request(0, None)]

    assert place_planned(requests, 40, 1) == Placed((0, 10, 10, 10, 10, 0), (10, 5, -5, 30, -30, -10), 40)


def test_buffers_whose_lives_touch_share_an_address() -> None:
    """1 is taken right after 0 was given back: both lie at 0. 2 lives with 1 and lies above it."""
    requests = [Request(0, 10), Request(0, None), Request(1, 10), Request(2, 5), Request(1, None), Request(2, None)]

    assert place_planned(requests, 15, 1) == Placed((0, 0, 0, 10, 0, 10), (10, -10, 10, 5, -10, -5), 15)


def test_a_buffer_takes_the_lowest_gap_that_is_free_for_its_whole_life() -> None:
    """None lives throughout: 0 to 3 are given back before 4 is taken.

    By size: 0 (40 B) at 0. 1 (30 B) lives with it and lies at 40. 2 (20 B) lives after 0 but with 1: the gap below 1
    is 40 B, it lies at 0. 3 (20 B) lives with 1 and 2: it takes the rest of the gap, at 20.
    """
    requests = [
        *(Request(0, 40), Request(1, 30), Request(0, None), Request(2, 20), Request(3, 20)),
        *(Request(1, None), Request(2, None), Request(3, None), Request(4, 1), Request(4, None)),
    ]

    answer = place_planned(requests, 70, 1)

    assert isinstance(answer, Placed)
    assert answer.offsets == (0, 40, 0, 0, 20, 40, 0, 20, 0, 0)
    assert answer.pool_bytes == 70


def test_a_gap_that_is_too_small_is_passed_over() -> None:
    """0 (40 B) at 0, 1 (30 B) at 40. 2 (25 B) and 3 (20 B) live after 0, with 1: 25 B at 0 leave 15, too few for 20.

    So 3 lies above 1, at 70.
    """
    requests = [
        *(Request(0, 40), Request(1, 30), Request(0, None), Request(2, 25), Request(3, 20)),
        *(Request(1, None), Request(2, None), Request(3, None), Request(4, 1), Request(4, None)),
    ]

    answer = place_planned(requests, 90, 1)

    assert isinstance(answer, Placed)
    assert answer.offsets[4] == 70
    assert answer.pool_bytes == 90


def test_long_sequences_know_their_neighbours_too() -> None:
    """1000 short lives of 10 B, one after the other, beside one of 20 B that ends in the middle.

    0 (20 B) lies at 0 for the first 500, which therefore lie at 20; the other 500 lie at 0.
    """
    short = [request for key in range(1, 1001) for request in (Request(key, 10), Request(key, None))]
    requests = [Request(0, 20), *short[:1000], Request(0, None), *short[1000:]]

    answer = place_planned(requests, 30, 1)

    assert isinstance(answer, Placed)
    assert set(answer.offsets[1:1001]) == {20}
    assert set(answer.offsets[1002:]) == {0}
    assert answer.pool_bytes == 30


def test_a_life_as_long_as_the_sequence_is_found_by_all_it_meets() -> None:
    """0 (20 B) lives from the first to the last but one request, with 500 others of 10 B: they all lie at 20.

    It does not live throughout, for a last buffer of 5 B is taken after it; that one lies at 0.
    """
    short = [request for key in range(1, 501) for request in (Request(key, 10), Request(key, None))]
    requests = [Request(0, 20), *short, Request(0, None), Request(501, 5)]

    answer = place_planned(requests, 30, 1)

    assert isinstance(answer, Placed)
    assert set(answer.offsets[1:1001]) == {20}
    assert answer.offsets[-1] == 0


def test_sizes_are_rounded_to_granules() -> None:
    """Granule 10: 1 B takes 10, 11 B take 20 above it."""
    assert place_planned([Request(0, 1), Request(1, 11)], 30, 10) == Placed((0, 10), (10, 20), 30)


def test_a_key_may_be_taken_again() -> None:
    """Twice the same key, of 10 and of 20 B: two lives, both at 0."""
    requests = [Request(0, 10), Request(0, None), Request(0, 20), Request(0, None)]

    assert place_planned(requests, 20, 1) == Placed((0, 0, 0, 0), (10, -10, 20, -20), 20)


def test_a_buffer_that_reaches_above_the_capacity_overflows() -> None:
    """1 (20 B) lives throughout and lies at 0; 2 (60 B) lies at 20 and would reach to 80, above 70.

    50 B are free, all of them above 1.
    """
    requests = [Request(0, 40), Request(1, 20), Request(0, None), Request(2, 60)]

    assert place_planned(requests, 70, 1) == Overflow(3, held=(1,), free_bytes=50, largest_free_bytes=50)


def test_a_buffer_that_lies_above_the_capacity_as_a_whole_has_no_piece_at_all() -> None:
    """0 (20 B) and 1 (10 B) live throughout; of 15 B, 0 alone is too many, and of 25 B, 1 is.

    Of 10 B, 1 comes first here and fits; 0 would begin at 10.
    """
    assert place_planned([Request(0, 20), Request(1, 10)], 15, 1) == Overflow(0, (), 15, 15)
    assert place_planned([Request(0, 20), Request(1, 10)], 25, 1) == Overflow(1, (0,), 5, 5)
    assert place_planned([Request(1, 10), Request(0, 20)], 10, 1) == Overflow(1, (1,), 0, 0)
