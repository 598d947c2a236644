import pytest

from tests.memory_requests import serving
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
        (400, 8 * KIB),
        (3 * KIB, 8 * KIB),
        (4 * KIB, 8 * KIB),
        (10 * KIB, 16 * KIB),
        (16 * KIB, 16 * KIB),
        (64 * KIB, 64 * KIB),
        (96 * KIB, 104 * KIB),
        (384 * KIB, 416 * KIB),
        (768 * KIB, MIB),
        (MIB, MIB),
        (3 * MIB // 2, 2 * MIB),
        (3 * MIB, 4 * MIB),
    ],
)
def test_256_buffers_take_what_was_measured(nbytes: int, measured_bytes: int) -> None:
    """A block of 2 MiB holds 512 buffers of 4 KiB, 204 of 10, 128 of 16, 32 of 64, 21 of 96, 5 of 384, 2 of 768 KiB.

    256 of 400 B, 3 or 4 KiB are thus in one block, of 10 and 16 KiB in 2, of 64 KiB in 8, of 96 KiB in 13, of 384 KiB
    in 52, of 768 KiB and 1 MiB in 128; each of 1.5 MiB has one of its own, each of 3 MiB two. 2 MiB / 256 = 8 KiB.
    """
    assert pool_bytes(*[nbytes] * 256) == 256 * measured_bytes


def test_the_step_is_at_1_mib() -> None:
    """Two of 1 MiB share a block; of one byte more, which is one granule more, each has its own."""
    assert pool_bytes(MIB, MIB) == 2 * MIB
    assert pool_bytes(MIB + 1, MIB + 1) == 4 * MIB


def test_a_large_buffer_leaves_nothing_to_small_ones() -> None:
    """3 MiB take two blocks; the 1 MiB that they do not use is no gap, and 512 B take a block of their own."""
    assert pool_bytes(3 * MIB, 512) == 6 * MIB


def test_granules_count_inside_a_block() -> None:
    """4096 granules fill a block: as many buffers of one byte, one more takes the next."""
    assert pool_bytes(*[1] * 4096) == 2 * MIB
    assert pool_bytes(*[1] * 4097) == 4 * MIB


def test_the_smallest_gap_that_is_large_enough_is_taken() -> None:
    """1024 and 640 KiB leave a gap of 384, then 1024 and 768 one of 256. 256 take the latter, 384 fit the former."""
    assert pool_bytes(*(size * KIB for size in (1024, 640, 1024, 768, 256, 384))) == 4 * MIB
    assert pool_bytes(*(size * KIB for size in (1024, 640, 1024, 768, 256, 384, 1))) == 6 * MIB


def test_bytes_in_use_are_those_of_the_buffers() -> None:
    """1 B is a granule, 3 MiB are 3 MiB, and go; the pool had one block and two."""
    requests = [Request(0, 1), Request(1, 3 * MIB), Request(1, None), Request(0, None)]

    assert place_cuda_malloc(requests, ROOMY, GRANULE) == Placed(
        (None,) * 4, (512, 3 * MIB, -3 * MIB, -512), pool_bytes=6 * MIB
    )


def test_a_block_goes_back_when_it_is_empty() -> None:
    """Of 4 MiB: two of 768 KiB share the first block, a third takes the second; it goes, and so 2 MiB have room."""
    three = [Request(0, 768 * KIB), Request(1, 768 * KIB), Request(2, 768 * KIB)]

    answer = place_cuda_malloc([*three, Request(2, None), Request(3, 2 * MIB)], 4 * MIB, GRANULE)

    assert isinstance(answer, Placed)
    assert answer.pool_bytes == 4 * MIB


def test_a_block_stays_as_long_as_a_buffer_is_in_it() -> None:
    """The same, but 1 goes instead of 2: both blocks are in use, and the largest that is left for 2 MiB is nothing.

    In use are 1.5 MiB of 4, a gap of 1.25 MiB is in either block; the largest for one of 1.25 MiB is nothing either.
    """
    requests = [Request(0, 768 * KIB), Request(1, 768 * KIB), Request(2, 768 * KIB), Request(1, None)]

    assert place_cuda_malloc([*requests, Request(3, 2 * MIB)], 4 * MIB, GRANULE) == Overflow(
        4, held=(0, 2), free_bytes=5 * MIB // 2, largest_free_bytes=0
    )
    assert isinstance(place_cuda_malloc([*requests, Request(3, 1280 * KIB)], 4 * MIB, GRANULE), Overflow)
    assert isinstance(place_cuda_malloc([*requests, Request(3, MIB)], 4 * MIB, GRANULE), Placed)


def test_gaps_of_two_blocks_never_merge() -> None:
    """Four of 768 KiB fill two blocks but for 512 KiB each; the first of the second block goes: its gap is 768 KiB.

    Of 5 MiB, the last one is no whole block, so 1 MiB finds no room although 2.75 MiB are free.
    """
    four = [Request(key, 768 * KIB) for key in range(4)]

    answer = place_cuda_malloc([*four, Request(2, None), Request(4, MIB)], 5 * MIB, GRANULE)

    assert answer == Overflow(5, held=(0, 1, 3), free_bytes=11 * MIB // 4, largest_free_bytes=768 * KIB)


def test_what_is_left_of_the_gpu_is_whole_blocks() -> None:
    """Of 7 MiB, 2 are in use; of the other 5 two blocks can be handed out, which are too few for 5."""
    assert place_cuda_malloc([Request(0, 2 * MIB), Request(1, 5 * MIB)], 7 * MIB, GRANULE) == Overflow(
        1, (0,), free_bytes=5 * MIB, largest_free_bytes=4 * MIB
    )
