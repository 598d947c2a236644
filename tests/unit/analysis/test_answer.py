"""What was tried so that a model fits, on a card of 105 bytes: 100 leave room for peaks that are 5 % too low."""

from dataclasses import replace

import msgspec

from tests.machines import shipped_server
from vdnnsim.analysis.answer import Answer, Change, Way, limit_bytes
from vdnnsim.units import GIB, MIB

PLAIN = Way(
    change=Change.POLICY,
    policy="pytorch(p)",
    batch_size=4,
    hardware="card",
    memory_bytes=105,
    iteration_s=2.0,
    held_bytes=100,
)


def other(**fields: object) -> Way:
    return msgspec.structs.replace(PLAIN, **fields)


def test_a_way_fits_with_room_for_the_error_of_peaks() -> None:
    """At 100 bytes of 105; with 101 just so, and at 106 one is too much."""
    ways = PLAIN, other(held_bytes=101), other(held_bytes=106)
    assert [way.fits for way in ways] == [True, False, False]
    assert [way.is_tight for way in ways] == [False, True, False]
    assert [way.left_bytes for way in ways] == [5, 4, -1]
    apart = other(in_pieces=True), other(reason="host memory"), other(iteration_s=0.0)
    assert not any(way.fits or way.is_tight for way in apart)


def test_throughput_is_of_all_micro_batches() -> None:
    """Three of 4 samples in 2 s; nothing without a plan."""
    assert other(rounds=3).samples_per_s == 6
    assert other(iteration_s=0.0).samples_per_s == 0


def test_the_best_way_is_first() -> None:
    """Of the whole batch what fits, by speed, and what just fits; then less of it; what lacks memory, by how much.

    What has no plan is behind these, and another card at the end, though it is the fastest.
    """
    order = (
        other(iteration_s=1.0),
        PLAIN,
        other(held_bytes=101, iteration_s=0.1),
        other(change=Change.BATCH, iteration_s=0.5),
        other(change=Change.SEQUENCE, iteration_s=0.6, held_bytes=101),
        other(held_bytes=107),
        other(held_bytes=200),
        other(iteration_s=0.0, reason="no plan"),
        other(change=Change.CARD, iteration_s=0.01),
    )
    made = Answer(order[::-1])
    assert made.ranked == order
    assert made.best == order[0]
    assert Answer(order[3:]).best == order[3]
    assert Answer(order[5:]).best is None
    assert Answer().best is None


def test_a_limit_is_a_round_size() -> None:
    """24 GiB less 5 % less a context of 0.4 GiB are 22.457 GiB; 512 MiB less 100 are 387.6 MiB; no memory is none."""
    gpu = shipped_server("rtx_4090").gpu
    sizes = ((24 * GIB, 2 * GIB // 5, int(22.4 * GIB)), (512 * MIB, 100 * MIB, 387 * MIB), (0, 1, 0))
    for memory, context, limit in sizes:
        assert limit_bytes(replace(gpu, memory_bytes=memory, context_bytes=context)) == limit
