"""Pinned host memory of exactly the size that is asked for, pinned no longer than it is wanted.

PyTorch's own (`pin_memory=True`) rounds a size up to a power of two and keeps every block that is given back, so a
region that grows would leave all its former sizes pinned. Here pages are mapped and registered with CUDA.
"""

import mmap
from typing import Any

import torch

from vdnnsim.errors import DeviceError
from vdnnsim.units import format_bytes

_NO_FLAGS = 0


class PinnedMemory:
    """The pinned blocks of one device."""

    def __init__(self) -> None:
        self._blocks: dict[int, torch.Tensor] = {}

    def take(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized bytes, one at least, in pages of their own.

        Raises:
            DeviceError: the host has not so many, or may not pin them.
        """
        try:
            pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as refusal:
            raise _refused(nbytes, refusal.strerror) from refusal
        block = torch.frombuffer(pages, dtype=torch.uint8)
        runtime = _runtime()
        answer = runtime.cudaHostRegister(block.data_ptr(), nbytes, _NO_FLAGS)
        if answer != runtime.cudaError.success:
            raise _refused(nbytes, runtime.cudaGetErrorString(answer))
        self._blocks[block.data_ptr()] = block
        return block

    def give_back(self, block: torch.Tensor) -> None:
        """Unpin what `take` returned."""
        del self._blocks[block.data_ptr()]
        torch.cuda.check_error(_runtime().cudaHostUnregister(block.data_ptr()))

    def give_all_back(self) -> None:
        """Unpin what is left."""
        for block in tuple(self._blocks.values()):
            self.give_back(block)


def _runtime() -> Any:  # noqa: ANN401 - as PyTorch hands it on
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _refused(nbytes: int, why: str | None) -> DeviceError:
    return DeviceError(f"the host cannot pin {format_bytes(nbytes)}: {why}")
