"""The choice of a memory model by name."""

from collections.abc import Callable, Mapping, Sequence

from vdnnsim.memory.bfc import place_tensorflow
from vdnnsim.memory.caching import place_caching
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.cuda_malloc import place_cuda_malloc
from vdnnsim.memory.online import place_best_fit, place_ideal
from vdnnsim.memory.planned import place_planned
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.storages import place_mxnet

_MODELS: Mapping[MemoryModel, Callable[[Sequence[Request], int, int], Placed | Overflow]] = {
    MemoryModel.IDEAL: place_ideal,
    MemoryModel.BEST_FIT: place_best_fit,
    MemoryModel.PLANNED: place_planned,
    MemoryModel.PYTORCH: place_caching,
    MemoryModel.CUDA_MALLOC: place_cuda_malloc,
    MemoryModel.MXNET: place_mxnet,
    MemoryModel.TENSORFLOW: place_tensorflow,
}


def place(
    requests: Sequence[Request], model: MemoryModel, *, capacity_bytes: int, granule_bytes: int
) -> Placed | Overflow:
    """Serve a whole sequence of requests by a memory model; each key is taken and given back in turn."""
    return _MODELS[model](requests, capacity_bytes, granule_bytes)
