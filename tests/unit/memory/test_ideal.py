from vdnnsim.memory.online import place_ideal
from vdnnsim.memory.requests import Overflow, Placed, Request


def test_bytes_in_use_are_a_sum_of_granules() -> None:
    """Granule 10. 25 B take 30, 10 B take 10, together 40; then 30 go and 5 B take 10: 20. The most was 40."""
    requests = [Request(0, 25), Request(1, 10), Request(0, None), Request(2, 5)]

    assert place_ideal(requests, 40, 10) == Placed(offsets=(None,) * 4, deltas=(30, 10, -30, 10), pool_bytes=40)


def test_the_first_request_beyond_the_capacity_overflows() -> None:
    """Of 50 B, 30 are held; 30 more do not fit into the 20 that are free, which are one piece."""
    requests = [Request(7, 30), Request(8, 30), Request(9, 10)]

    assert place_ideal(requests, 50, 10) == Overflow(position=1, held=(7,), free_bytes=20, largest_free_bytes=20)


def test_rounding_alone_may_overflow() -> None:
    """21 B would fit into 25, three granules of 10 do not."""
    assert place_ideal([Request(0, 21)], 25, 10) == Overflow(0, (), 25, 25)


def test_freed_bytes_never_lie_apart() -> None:
    """Three times 30 fill 90. The first and the last go; 60 fit although nothing says that they are adjacent."""
    requests = [Request(0, 30), Request(1, 30), Request(2, 30), Request(0, None), Request(2, None), Request(3, 60)]

    assert place_ideal(requests, 90, 1) == Placed((None,) * 6, (30, 30, 30, -30, -30, 60), 90)


def test_a_key_may_be_taken_again() -> None:
    """As a prefetched map is: 10 B, given back, then 20 B under the same key."""
    requests = [Request(0, 10), Request(0, None), Request(0, 20), Request(0, None)]

    assert place_ideal(requests, 20, 1) == Placed((None,) * 4, (10, -10, 20, -20), 20)


def test_nothing_asked_nothing_needed() -> None:
    assert place_ideal([], 10, 1) == Placed((), (), 0)
