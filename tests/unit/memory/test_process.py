"""Memory of a PyTorch process beside its tensors, by hand."""

import pytest

from vdnnsim.memory.process import PinnedBlocks, cublas_workspace_bytes, pinned_block_bytes
from vdnnsim.units import GIB, MIB


def test_a_workspace_of_cublas_is_larger_on_hopper_alone() -> None:
    """Two pieces of 4,096 KiB and eight of 16 KiB: 8,388,608 B and 131,072 B."""
    assert cublas_workspace_bytes((8, 0)) == cublas_workspace_bytes((10, 0)) == 8_388_608 + 131_072
    assert cublas_workspace_bytes((9, 0)) == 32 * MIB


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (1, 1), (2, 2), (3, 4), (4097, 8192), (33 * GIB, 64 * GIB)])
def test_a_pinned_block_is_the_next_power_of_two(asked: int, taken: int) -> None:
    assert pinned_block_bytes(asked) == taken


def test_a_freed_pinned_block_serves_requests_of_its_size_alone() -> None:
    """3 B take a block of 4. Once it is free, 4 B take it, 3 B more a block of 4, and 2 B one of 2: 10 B in all."""
    blocks = PinnedBlocks()
    blocks.take(3)
    blocks.free(3)
    assert (blocks.missing_bytes(4), blocks.missing_bytes(2)) == (0, 2)
    # Of two at once the kept block serves one.
    assert blocks.missing_bytes(4, 3) == 4
    blocks.take(4)
    assert blocks.missing_bytes(3) == 4
    blocks.take(3)
    blocks.take(2)
    assert blocks.taken_bytes == 4 + 4 + 2
