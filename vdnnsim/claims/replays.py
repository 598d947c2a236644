"""What the replays of all papers need: policies by their labels, cached results, and slower machines."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from vdnnsim.hardware.server import Server
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import known_policies, resolve_policy

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
_types = cache(known_policies)


def labelled_policy(label: str, options: Mapping[str, object] = MappingProxyType({})) -> Policy:
    """Return the policy of a label, as `swap(p, interval=4)`, with other options.

    Raises:
        PolicyError: the label or an option is wrong.
    """
    stated = resolve_policy(label, _types())
    if not options:
        return stated
    return resolve_policy({"policy": stated.name, **msgspec.to_builtins(stated), **options}, _types())


def cached_method(method: Callable[Concatenate[Any, Arguments], Made]) -> Callable[Concatenate[Any, Arguments], Made]:
    """Cache the results of a method in its object, by arguments; they are freed with it."""

    @wraps(method)
    def make(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Made:  # noqa: ANN401  # any replays
        made = vars(self).setdefault(f"_made_by_{method.__name__}", {})
        key = arguments, tuple(named.items())
        if key not in made:
            made[key] = method(self, *arguments, **named)
        found: Made = made[key]
        return found

    return make


def slower_machine(server: Server, factor: float) -> Server:
    """Return a machine on which every kernel takes `factor` times as long, by rates and launches.

    For papers whose times hold more than kernels: what they measured beside kernels overlaps with copies as kernels do.
    """
    gpu = replace(
        server.gpu,
        flop_per_s={element_type: rate / factor for element_type, rate in server.gpu.flop_per_s.items()},
        dram_bytes_per_s=server.gpu.dram_bytes_per_s / factor,
    )
    overhead_s = server.cost_model["kernel_overhead_s"] * factor
    return replace(server, gpu=gpu, cost_model={**server.cost_model, "kernel_overhead_s": overhead_s})
