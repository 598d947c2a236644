"""Requests by which a key holds more or less than before, on pools without addresses."""

import pytest

from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import MODELS_WITH_EXTENTS, extent_granule_bytes
from vdnnsim.memory.online import place_ideal, place_mapped
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import MIB


def holds(key: int, nbytes: int) -> Request:
    return Request(key, nbytes, resizes=True)


def test_a_key_may_hold_less_and_more_again() -> None:
    """Granule 10. 25 B take 30; of them 12 take 20; then all 25 again, beside 10 B of another: 40 at most."""
    requests = [Request(0, 25), holds(0, 12), Request(1, 10), holds(0, 25), Request(0, None), Request(1, None)]

    assert place_ideal(requests, 40, 10) == Placed((None,) * 6, (30, -10, 10, 10, -30, -10), 40)


def test_what_a_key_holds_no_more_is_free() -> None:
    assert place_ideal([Request(0, 30), holds(0, 0), Request(1, 30)], 30, 1) == Placed((None,) * 3, (30, -30, 30), 30)


def test_more_than_is_free_overflows() -> None:
    """Of 30 B the one holds 10 and the other 15; 6 more are one too many, and what the first held it still holds."""
    requests = [Request(0, 20), holds(0, 10), Request(1, 15), holds(0, 16)]

    assert place_ideal(requests, 30, 1) == Overflow(position=3, held=(0, 1), free_bytes=5, largest_free_bytes=5)


def test_mapped_blocks_are_2_mib() -> None:
    """5 MiB take 6, and 1 B of them 2; a driver with 8 MiB has 6 left."""
    requests = [Request(0, 5 * MIB), holds(0, 1), Request(1, 6 * MIB)]

    assert place_mapped(requests, 8 * MIB, 512) == Placed((None,) * 3, (6 * MIB, -4 * MIB, 6 * MIB), 8 * MIB)


@pytest.mark.parametrize(("model", "expected"), [(MemoryModel.IDEAL, 512), (MemoryModel.CUDA_VMM, 2 * MIB)])
def test_a_model_states_the_granule_of_parts(model: MemoryModel, expected: int) -> None:
    assert model in MODELS_WITH_EXTENTS
    assert extent_granule_bytes(model, 512) == expected
