"""The choice of a memory model by name."""

from collections.abc import Callable, Mapping, Sequence

from vdnnsim.memory.best_fit import place_best_fit
from vdnnsim.memory.caching import place_caching
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.ideal import place_ideal
from vdnnsim.memory.planned import place_planned
from vdnnsim.memory.requests import Overflow, Placed, Request

_MODELS: Mapping[MemoryModel, Callable[[Sequence[Request], int, int], Placed | Overflow]] = {
    MemoryModel.IDEAL: place_ideal,
    MemoryModel.BEST_FIT: place_best_fit,
    MemoryModel.PLANNED: place_planned,
    MemoryModel.PYTORCH: place_caching,
}


def place(
    requests: Sequence[Request], model: MemoryModel, *, capacity_bytes: int, granule_bytes: int
) -> Placed | Overflow:
    """Serve a whole sequence of requests by a memory model; each key is taken and given back in turn."""
    return _MODELS[model](requests, capacity_bytes, granule_bytes)
