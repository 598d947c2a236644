"""Parts of the replays of papers: caches of methods, slower machines."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from vdnnsim.hardware.server import Server

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def remembered(method: Callable[Concatenate[Any, Arguments], Made]) -> Callable[Concatenate[Any, Arguments], Made]:
    """Cache the results of a method in its object, by arguments."""

    @wraps(method)
    def make(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Made:  # noqa: ANN401  # any replays
        made = vars(self).setdefault(f"_made_by_{method.__name__}", {})
        key = arguments, tuple(named.items())
        if key not in made:
            made[key] = method(self, *arguments, **named)
        found: Made = made[key]
        return found

    return make


def stretched(server: Server, factor: float) -> Server:
    """Return a machine on which every kernel takes `factor` times as long, by rates and launches.

    Papers measured more than kernels, and copies overlap with all of it.
    """
    gpu = replace(
        server.gpu,
        flop_per_s={element_type: rate / factor for element_type, rate in server.gpu.flop_per_s.items()},
        dram_bytes_per_s=server.gpu.dram_bytes_per_s / factor,
    )
    overhead_s = server.cost_model["kernel_overhead_s"] * factor
    return replace(server, gpu=gpu, cost_model={**server.cost_model, "kernel_overhead_s": overhead_s})
