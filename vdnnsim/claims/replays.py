"""Parts of the replays of papers: policies by label, readings, ranks of algorithms, slower machines."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from vdnnsim.cost.table import CostTable
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, resolve_policy


@dataclass(frozen=True)
class PaperReading:
    """A choice that a paper leaves open; without a name the default one.

    Attributes:
        question: what the paper leaves open, and the default.
        options: of the runs of a policy, by its name.
    """

    name: str = ""
    question: str = ""
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    memory_model: MemoryModel = MemoryModel.IDEAL


Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
Ranks = tuple[tuple[tuple[str, int], ...], ...]
"""By kernel the Pareto-optimal algorithms with their workspaces, the fastest first."""


def remembered(method: Callable[Concatenate[Any, Arguments], Made]) -> Callable[Concatenate[Any, Arguments], Made]:
    @wraps(method)
    def make(self: Any, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Made:  # noqa: ANN401  # any replays
        made = vars(self).setdefault(f"_made_by_{method.__name__}", {})
        key = arguments, tuple(named.items())
        if key not in made:
            made[key] = method(self, *arguments, **named)
        found: Made = made[key]
        return found

    return make


def labelled_policy(label: str, types: PolicyTypes, options: Mapping[str, object]) -> Policy:
    """Return the policy of a label, as `swap(p, interval=4)`, with other options.

    Raises:
        PolicyError: the label or an option is wrong.
    """
    stated = resolve_policy(label, types)
    return (
        resolve_policy({"policy": stated.name, **msgspec.to_builtins(stated), **options}, types) if options else stated
    )


def ranks(costs: CostTable) -> Ranks:
    """Return the options of each kernel that none beats in time and workspace; (p) takes the first, (m) the last."""
    ranked = []
    for options in costs.kernels.values():
        beats: list[tuple[str, int]] = []
        for each in options:  # the fastest first
            if not beats or each.workspace_bytes < beats[-1][1]:
                beats.append((each.algorithm, each.workspace_bytes))
        ranked.append(tuple(beats))
    return tuple(ranked)


def ranks_seen(policy: Policy, ranked: Ranks) -> Hashable:
    match getattr(policy, "algorithms", None):
        case Algorithms.PERFORMANCE_OPTIMAL:
            return tuple(each[0] for each in ranked)
        case Algorithms.MEMORY_OPTIMAL:
            return tuple(each[-1] for each in ranked)
        case _:
            return ranked


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
