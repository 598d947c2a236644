"""The restated rows: which are here, and what they say beside a number."""

from collections.abc import Sequence

import pytest

from vdnnsim.claims.public2026.measurements import (
    BATCHES,
    ONE_PEAK_IN,
    ONE_TIME_IN,
    SERIES,
    AnyRow,
    PeakMemory,
    StepTime,
    asked_batches,
    number_of,
    operator_times,
    peak_memory,
    step_times,
)
from vdnnsim.claims.public2026.replays import BUILT
from vdnnsim.dnn.networks import build_network

_NAMED_ALIKE = ("timm:inception_v3", "timm:vit_base_patch16_224")
"""Networks that vdnnsim builds as torchvision has them, whose rows of timm are captured."""


@pytest.mark.parametrize(("rows", "one_in", "rest"), [(step_times(), ONE_TIME_IN, 0), (peak_memory(), ONE_PEAK_IN, 1)])
def test_networks_of_timm_are_those_built_here_and_drawn_by_their_names(
    rows: Sequence[StepTime | PeakMemory], one_in: int, rest: int
) -> None:
    """No row is here because it comes out; of peaks those of odd numbers, for a context was fitted on even ones."""
    networks = {row.setup.network for row in rows}
    drawn = {name for name in networks if number_of(name) % one_in == rest}

    assert {name for name in networks if name.startswith("timm:")} - drawn <= {*BUILT, *_NAMED_ALIKE}


def test_every_row_is_of_a_known_series_and_every_series_has_rows() -> None:
    rows: tuple[AnyRow, ...] = (*step_times(), *operator_times(), *peak_memory())

    assert {row.series for row in rows} == set(SERIES)
    assert all(row.measured > 0 for row in rows)


def test_what_is_built_here_can_be_built() -> None:
    for name in set(BUILT.values()):
        build_network(name)


def test_the_next_batch_is_the_one_that_was_tried_before() -> None:
    """512 is the first; before 256 comes 384."""
    by_batch = {row.batch_size: row.next_batch for row in step_times() if SERIES[row.series].searches_batch}

    assert by_batch[512] is None
    assert by_batch[256] == 384
    assert set(by_batch) <= set(BATCHES)


def test_a_network_whose_largest_batch_was_sought_is_asked_for_at_the_next_one_too() -> None:
    row = next(each for each in step_times() if SERIES[each.series].searches_batch and each.batch_size == 256)

    assert asked_batches([row]) == {row.setup: (256, 384)}
