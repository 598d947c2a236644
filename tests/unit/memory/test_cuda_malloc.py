"""Blocks of 2 MiB that the driver hands out, each case worked out by hand."""

import pytest

from tests.memory_requests import serving, written
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import KIB, MIB

GRANULE = 512
ROOMY = 2**40
place_cuda_malloc = serving(MemoryModel.CUDA_MALLOC)


def pool_bytes(*sizes: int) -> int:
    """Return what buffers take that are allocated in order and kept."""
    answer = place_cuda_malloc([Request(key, nbytes) for key, nbytes in enumerate(sizes)], ROOMY, GRANULE)
    assert isinstance(answer, Placed)
    return answer.pool_bytes


@pytest.mark.parametrize(
    ("nbytes", "measured_bytes"),
    [
        *((400, 8 * KIB), (3 * KIB, 8 * KIB), (4 * KIB, 8 * KIB), (10 * KIB, 16 * KIB), (16 * KIB, 16 * KIB)),
        *((64 * KIB, 64 * KIB), (96 * KIB, 104 * KIB), (384 * KIB, 416 * KIB), (768 * KIB, MIB), (MIB, MIB)),
        *((3 * MIB // 2, 2 * MIB), (3 * MIB, 4 * MIB)),
    ],
)
def test_256_buffers_take_what_was_measured(nbytes: int, measured_bytes: int) -> None:
    """A block of 2 MiB holds 512 buffers of 4 KiB, 204 of 10, 128 of 16, 32 of 64, 21 of 96, 5 of 384, 2 of 768 KiB.

    256 of 400 B, 3 or 4 KiB are thus in one block, of 10 and 16 KiB in 2, of 64 KiB in 8, of 96 KiB in 13, of 384 KiB
    in 52, of 768 KiB and 1 MiB in 128; each of 1.5 MiB has one of its own, each of 3 MiB two. 2 MiB / 256 = 8 KiB.
    """
    assert pool_bytes(*[nbytes] * 256) == 256 * measured_bytes


@pytest.mark.parametrize(
    ("sizes", "pool_mib"),
    [
        # Two of 1 MiB share a block; of one byte more, which is one granule more, each has its own.
        ([MIB] * 2, 2),
        ([MIB + 1] * 2, 4),
        # 3 MiB take two blocks; the 1 MiB that they do not use is no gap.
        ([3 * MIB, 512], 6),
        # 4096 granules fill a block.
        ([1] * 4096, 2),
        ([1] * 4097, 4),
        # 1024 and 640 KiB leave a gap of 384, then 1024 and 768 one of 256. 256 take the latter, 384 fit the former.
        ([size * KIB for size in (1024, 640, 1024, 768, 256, 384)], 4),
        ([size * KIB for size in (1024, 640, 1024, 768, 256, 384, 1)], 6),
    ],
)
def test_small_buffers_share_blocks(sizes: list[int], pool_mib: int) -> None:
    assert pool_bytes(*sizes) == pool_mib * MIB


@pytest.mark.parametrize(
    ("requests", "capacity_mib", "expected"),
    [
        # Two of 768 KiB share the first block, a third takes the second; it goes, and so 2 MiB have room.
        ("0.75 0.75 0.75 -2 2", 4, 4 * MIB),
        # 1 goes instead of 2: both blocks are in use, each with a gap of 1.25 MiB, which are nothing to 2 MiB.
        ("0.75 0.75 0.75 -1 2", 4, Overflow(4, (0, 2), 5 * MIB // 2, 0)),
        ("0.75 0.75 0.75 -1 1.25", 4, Overflow(4, (0, 2), 5 * MIB // 2, 0)),
        ("0.75 0.75 0.75 -1 1", 4, 4 * MIB),
        # Gaps of two blocks, of 512 KiB each, never merge; 2 goes and leaves one of 768. Of 5 MiB the last is no whole
        # block, so 1 MiB finds no room although 2.75 MiB are free.
        ("0.75 0.75 0.75 0.75 -2 1", 5, Overflow(5, (0, 1, 3), 11 * MIB // 4, 768 * KIB)),
        # 2 are in use; of the other 5 two blocks can be handed out, which are too few for 5.
        ("2 5", 7, Overflow(1, (0,), 5 * MIB, 4 * MIB)),
    ],
)
def test_a_block_goes_back_when_it_is_empty(requests: str, capacity_mib: int, expected: int | Overflow) -> None:
    answer = place_cuda_malloc(written(requests), capacity_mib * MIB, GRANULE)
    assert (answer.pool_bytes if isinstance(answer, Placed) else answer) == expected
