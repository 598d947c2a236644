"""The process group of a rank whose other ranks are not there, and what of FSDP no operator shows."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import torch
from torch import distributed
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from calibration.capture.fake_tensors import replaced
from calibration.capture.schemas import OperatorMode
from vdnnsim.errors import CaptureError

_OPENED: Final = frozenset({DTensor, AsyncCollectiveTensor})


class ResizeListener(Protocol):
    """Is told of storages that FSDP allocates and frees without an operator."""

    def allocated(self, tensor: torch.Tensor) -> None:
        """A tensor without memory has some now."""

    def freed(self, tensor: torch.Tensor) -> None:
        """A tensor has no memory any more."""


@contextmanager
def rank_of(ranks: int) -> Iterator[None]:
    """Be rank 0 of so many, whose collectives end at once and leave arbitrary results.

    Operators within `DTensor`s are dispatched, not those on them.

    Raises:
        CaptureError: this process has a process group of another size.
    """
    own = not distributed.is_initialized()
    if own:
        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    elif distributed.get_world_size() != ranks:
        found = distributed.get_world_size()
        raise CaptureError(f"--parallel: found {ranks} ranks, but this process is one of {found}; expected {found}")
    try:
        with replaced(OperatorMode, "opened", _OPENED), warnings.catch_warnings():
            # Of a result that is a view, as that of a linear layer: harmless unless the user writes to it in place.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
            yield
    finally:
        if own:
            distributed.destroy_process_group()


@contextmanager
def following_resizes(listener: ResizeListener) -> Iterator[None]:
    """Tell a listener of storages that FSDP resizes within."""
    allocate, free = _fsdp_param.alloc_storage, _fsdp_param.free_storage

    def alloc_storage(tensor: torch.Tensor) -> None:
        was_free = not tensor.untyped_storage().size()
        allocate(tensor)
        if was_free:
            listener.allocated(tensor)

    def free_storage(tensor: torch.Tensor) -> None:
        was_allocated = bool(tensor.untyped_storage().size())
        free(tensor)
        if was_allocated:
            listener.freed(tensor)

    with (
        replaced(_fsdp_param, "alloc_storage", alloc_storage),
        replaced(_fsdp_param, "free_storage", free_storage),
    ):
        yield
