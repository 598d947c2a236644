"""The memory models of no framework, by hand, and what all models share; sizes in bytes."""

import pytest

from tests.memory_requests import serving, written
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import MODELS_WITH_EXTENTS, extent_granule_bytes, place
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import MIB

best_fit = serving(MemoryModel.BEST_FIT)
# 40 and 20 B, the 40 go, 60 come: 80 in use at most.
REQUESTS = written("40 20 -0 60 -1 -2", 1)
FULL = "30 10 20 10 30"
"""Five buffers fill 100 B: 0 at 0 (30 B), 1 at 30 (10 B), 2 at 40 (20 B), 3 at 60 (10 B), 4 at 70 (30 B)."""


def test_each_model_answers_in_its_own_way() -> None:
    """100 B. `ideal` knows no addresses; `best_fit` leaves 40 B on either side of 1; `planned` lays 1 at the bottom.

    The others take no less than 2 MiB from a GPU.
    """
    answers = {model: place(REQUESTS, model, capacity_bytes=100, granule_bytes=1) for model in MemoryModel}
    assert answers == {
        **dict.fromkeys(MemoryModel, Overflow(0, (), 100, 0)),
        MemoryModel.IDEAL: Placed((None,) * 6, (40, 20, -40, 60, -20, -60), 80),
        MemoryModel.BEST_FIT: Overflow(3, (1,), 80, 40),
        MemoryModel.PLANNED: Placed((20, 0, 20, 20, 0, 20), (40, 20, -40, 60, -20, -60), 80),
        MemoryModel.CUDA_VMM: Overflow(0, (), 100, 100),
    }


@pytest.mark.parametrize("model", MemoryModel)
def test_every_model_rounds_to_the_granule_and_serves_nothing(model: MemoryModel) -> None:
    """Granule 512: one byte takes 512; mapped by itself, it takes a block of 2 MiB."""
    answer = place([Request(0, 1)], model, capacity_bytes=2**21, granule_bytes=512)
    assert isinstance(answer, Placed)
    assert answer.deltas == ((2**21 if model is MemoryModel.CUDA_VMM else 512),)
    assert place([], model, 10, 1) == Placed((), (), 0)
    nothing = place([Request(0, 0), Request(0, None)], model, 0, 512)
    assert isinstance(nothing, Placed)
    assert (nothing.deltas, nothing.pool_bytes) == ((0, 0), 0)


@pytest.mark.parametrize(
    ("model", "requests", "capacity_bytes", "granule_bytes", "expected"),
    [
        # 25 B take 30, 10 B take 10; then 30 go and 5 B take 10. The most was 40.
        (MemoryModel.IDEAL, "25 10 -0 5", 40, 10, Placed((None,) * 4, (30, 10, -30, 10), 40)),
        # Of 50 B, 30 are held; 30 more do not fit into the 20 that are free, which are one piece.
        (MemoryModel.IDEAL, "30 30 10", 50, 10, Overflow(1, (0,), 20, 20)),
        # 21 B would fit into 25, three granules of 10 do not.
        (MemoryModel.IDEAL, "21", 25, 10, Overflow(0, (), 25, 25)),
        # A key is taken again, as a prefetched buffer is.
        (MemoryModel.IDEAL, "10 -0 0:20 -0", 20, 1, Placed((None,) * 4, (10, -10, 20, -20), 20)),
        # 25 B take 30; of them 12 take 20; then all 25 again, beside 10 B of another: 40 at most.
        (MemoryModel.IDEAL, "25 0:12 10 0:25 -0 -1", 40, 10, Placed((None,) * 6, (30, -10, 10, 10, -30, -10), 40)),
        # What a key holds no more is free.
        (MemoryModel.IDEAL, "30 0:0 30", 30, 1, Placed((None,) * 3, (30, -30, 30), 30)),
        # Of 30 B one holds 10 and the other 15; 6 more are one too many, and the first still holds what it held.
        (MemoryModel.IDEAL, "20 0:10 15 0:16", 30, 1, Overflow(3, (0, 1), 5, 5)),
        (MemoryModel.BEST_FIT, FULL, 100, 1, Placed((0, 30, 40, 60, 70), (30, 10, 20, 10, 30), 100)),
        (MemoryModel.BEST_FIT, f"{FULL} -0 -2 -1 61", 100, 1, Overflow(8, (3, 4), 60, 60)),
        # 60 B are free, but in pieces of 30: 40 do not fit.
        (MemoryModel.BEST_FIT, f"{FULL} -0 -4 40", 100, 1, Overflow(7, (1, 2, 3), 60, 30)),
        (MemoryModel.BEST_FIT, f"{FULL} 1", 100, 1, Overflow(5, (0, 1, 2, 3, 4), 0, 0)),
        # 25 B take 30 at 0, 5 B take 10 at 30. After the 30 are gone 11 B take 20 at 0; the top was 40.
        (MemoryModel.BEST_FIT, "25 5 -0 11", 40, 10, Placed((0, 30, 0, 0), (30, 10, -30, 20), 40)),
        # 20 at 0, 20 at 20; the first goes, 30 do not fit below and lie at 40 to 70: 50 in use, 70 needed.
        (MemoryModel.BEST_FIT, "20 20 -0 30", 100, 1, Placed((0, 20, 0, 40), (20, 20, -20, 30), 70)),
        # 0 B more are served, and given back, without a piece.
        (MemoryModel.BEST_FIT, "10 0 -1 -0", 10, 1, Placed((0, 0, 0, 0), (10, 0, 0, -10), 10)),
    ],
)
def test_ideal_counts_granules_in_use_and_best_fit_its_gaps_as_well(
    model: MemoryModel, requests: str, capacity_bytes: int, granule_bytes: int, expected: Placed | Overflow
) -> None:
    assert place(written(requests, 1), model, capacity_bytes, granule_bytes) == expected


def test_mapped_blocks_are_2_mib() -> None:
    """5 MiB take 6, and 1 B of them 2; a driver with 8 MiB has 6 left."""
    requests = [Request(0, 5 * MIB), Request(0, 1, resizes=True), Request(1, 6 * MIB)]
    served = serving(MemoryModel.CUDA_VMM)(requests, 8 * MIB, 512)
    assert served == Placed((None,) * 3, (6 * MIB, -4 * MIB, 6 * MIB), 8 * MIB)
    assert [extent_granule_bytes(model, 512) for model in MODELS_WITH_EXTENTS] == [512, 2 * MIB]


@pytest.mark.parametrize(
    ("requests", "offset"),
    [
        # Free: 30 B at 0 and 20 B at 40. 15 B take the smaller; 25 B fit into the larger alone.
        (f"{FULL} -0 -2 15", 40),
        (f"{FULL} -0 -2 25", 0),
        # Free, in this order: 30 B at 70, then 30 B at 0; the lowest of equals wins.
        (f"{FULL} -4 -0 30", 0),
        # 15 B at 40 leave 5 B at 55, which the next 5 B take.
        (f"{FULL} -0 -2 15 5", 55),
        # 0 and 1 leave 40 B at 0, whichever goes first.
        (f"{FULL} -0 -1 40", 0),
        (f"{FULL} -1 -0 40", 0),
        # 0, 2 and then 1 leave 30 + 10 + 20 = 60 B at 0.
        (f"{FULL} -0 -2 -1 60", 0),
        # 1 at 30 and 2 at 40 leave 30 to 60, the only place for 30 B.
        (f"{FULL} -1 -2 30", 30),
        # 30 B given back below 70 B that were never taken make 100 B.
        ("30 -0 100", 0),
    ],
)
def test_best_fit_takes_the_smallest_piece_and_merges_what_is_free(requests: str, offset: int) -> None:
    answer = best_fit(written(requests, 1), 100, 1)
    assert isinstance(answer, Placed)
    assert answer.offsets[-1] == offset
