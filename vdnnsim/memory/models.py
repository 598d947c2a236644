"""The choice of a memory model by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from vdnnsim.memory.bfc import place_tensorflow
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, settings_of
from vdnnsim.memory.cuda_malloc import place_cuda_malloc
from vdnnsim.memory.online import MAPPED_BYTES, place_best_fit, place_ideal, place_mapped
from vdnnsim.memory.planned import place_planned
from vdnnsim.memory.pytorch import place_pytorch
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up
from vdnnsim.memory.storages import place_mxnet

_MODELS: Mapping[MemoryChoice, Callable[[Sequence[Request], int, int], Placed | Overflow]] = {
    MemoryModel.IDEAL: place_ideal,
    MemoryModel.BEST_FIT: place_best_fit,
    MemoryModel.PLANNED: place_planned,
    MemoryModel.CUDA_MALLOC: place_cuda_malloc,
    MemoryModel.MXNET: place_mxnet,
    MemoryModel.TENSORFLOW: place_tensorflow,
    MemoryModel.CUDA_VMM: place_mapped,
}

MODELS_WITH_EXTENTS: Final = (MemoryModel.IDEAL, MemoryModel.CUDA_VMM)
"""Those that can give back some bytes of what a request was given, and take it again at the same addresses."""


def place(
    requests: Sequence[Request],
    model: MemoryChoice,
    capacity_bytes: int,
    granule_bytes: int,
    total_bytes: int | None = None,
) -> Placed | Overflow:
    """Serve a whole sequence of requests by a memory model; each key is taken and given back in turn.

    `total_bytes` is all memory of the GPU, of which settings of PyTorch's allocator take a part; the capacity unless
    given.
    """
    settings = settings_of(model)
    if settings is not None:
        return place_pytorch(requests, capacity_bytes, granule_bytes, settings, total_bytes)
    return _MODELS[model](requests, capacity_bytes, granule_bytes)


def extent_granule_bytes(model: MemoryChoice, granule_bytes: int) -> int:
    """Return the unit in which one of `MODELS_WITH_EXTENTS` gives back and takes again extents of a buffer."""
    assert model in MODELS_WITH_EXTENTS
    return round_up(granule_bytes, MAPPED_BYTES) if model is MemoryModel.CUDA_VMM else granule_bytes
