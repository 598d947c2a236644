"""Pinned host memory of exactly the requested size, unpinned when it is freed.

PyTorch's own (`pin_memory=True`) rounds a size up to a power of two and caches freed blocks, so a region that grows
would leave all its former sizes pinned. Here pages are mapped and registered with CUDA.

When a process forks, as for the workers of a `DataLoader`, Linux copies pinned pages at once, since a device reads them
where they are (`copy_present_page` of mm/memory.c, from 5.9 on). Children therefore get none of them
(`MADV_DONTFORK`): one that touches them ends with SIGSEGV instead of reading stale data.
"""

import mmap
import os
import weakref
from typing import Any, Final

import torch

from vdnnsim.errors import DeviceError
from vdnnsim.units import format_bytes

_NO_FLAGS = 0
_MAPPED: Final[weakref.WeakSet[mmap.mmap]] = weakref.WeakSet()
"""All pages of this process that children lack."""
_OF_PARENT: Final[list[mmap.mmap]] = []


def _keep_those_of_the_parent() -> None:
    # A child may map other memory at their addresses, which freeing them would unmap.
    _OF_PARENT.extend(_MAPPED)


os.register_at_fork(after_in_child=_keep_those_of_the_parent)


class PinnedMemory:
    """The pinned blocks of one device."""

    def __init__(self) -> None:
        self._blocks: dict[int, torch.Tensor] = {}
        self._process = os.getpid()

    @property
    def is_of_this_process(self) -> bool:
        return self._process == os.getpid()

    def take(self, nbytes: int) -> torch.Tensor:
        """Return uninitialized bytes, one at least, in pages of their own.

        Raises:
            DeviceError: there are not so many, or they may not be pinned.
        """
        try:
            pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as refusal:
            raise _refused(nbytes, refusal.strerror) from refusal
        pages.madvise(mmap.MADV_DONTFORK)
        _MAPPED.add(pages)
        block = torch.frombuffer(pages, dtype=torch.uint8)
        runtime = _runtime()
        answer = runtime.cudaHostRegister(block.data_ptr(), nbytes, _NO_FLAGS)
        if answer != runtime.cudaError.success:
            raise _refused(nbytes, runtime.cudaGetErrorString(answer))
        self._blocks[block.data_ptr()] = block
        return block

    def give_back(self, block: torch.Tensor) -> None:
        """Unpin what `take` returned, once no copy uses it."""
        del self._blocks[block.data_ptr()]
        torch.cuda.check_error(_runtime().cudaHostUnregister(block.data_ptr()))

    def give_all_back(self) -> None:
        """Unpin what is left, once no copy uses it."""
        for block in tuple(self._blocks.values()):
            self.give_back(block)


def _runtime() -> Any:  # noqa: ANN401 - as PyTorch hands it on
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def _refused(nbytes: int, why: str | None) -> DeviceError:
    return DeviceError(f"the host cannot pin {format_bytes(nbytes)}: {why}")
