"""What the executor takes of a GPU and of the host, counted by PyTorch's own allocators on a pretended GPU."""

from collections.abc import Iterator

import pytest
import torch

from calibration.arena import PinnedArena
from calibration.devices.cuda import CudaDevice
from vdnnsim.units import MIB

pytestmark = [
    pytest.mark.pretend,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is there, not even a pretended one"),
]


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    gpu = CudaDevice(0)
    yield gpu
    gpu.close()


def test_an_arena_that_grew_holds_its_last_size_alone(device: CudaDevice) -> None:
    """2100 MiB after 100, 300, 700 and 1100; PyTorch's pinned memory would hold 128 + 512 + 1024 + 2048 + 4096 MiB."""
    pytorch_before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    arena = PinnedArena(device)
    for nbytes in (100 * MIB, 300 * MIB, 700 * MIB, 1100 * MIB, 2100 * MIB):
        arena.reserve(nbytes)
    whole = arena.slice(0, 2100 * MIB)
    assert whole.is_pinned()
    assert whole.untyped_storage().nbytes() == 2100 * MIB
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == pytorch_before


def test_a_closed_device_leaves_no_memory_to_the_next() -> None:
    """Each takes a workspace for cuBLAS on a stream of its own, 32 MiB on Hopper; three would hold 96 MiB."""
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(3):
        CudaDevice(0).close()
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before
