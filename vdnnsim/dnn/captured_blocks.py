"""The blocks of a captured model: what users checkpoint one by one.

A block is a module that stands in a list or sequence of modules and is made of several itself, as a bottleneck of a
residual network or a layer of a transformer; of nested ones the outermost. What lies between two blocks is a part of
its own.
"""

from itertools import groupby
from typing import Final

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Layer, Phase

_LISTS: Final = tuple(f"torch.nn.modules.container.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))


def blocks_of(workload: CapturedWorkload) -> list[range]:
    """Return the layers of each block, and of what lies between two, in order; empty where a model has no blocks.

    The layer of an optimizer, which has no forward, is of none.
    """
    paths = _block_paths(workload)
    if not paths:
        return []
    layers = [layer for layer in workload.graph.layers if Phase.FORWARD in workload.phases(layer)]
    parts = groupby(layers, key=lambda layer: _block(_path(workload, layer), paths))
    members = [[layer.index for layer in part] for _, part in parts]
    return [range(each[0], each[-1] + 1) for each in members]


def _block_paths(workload: CapturedWorkload) -> frozenset[str]:
    modules = workload.captured.modules
    kinds = {each.path: each.kind for each in modules}
    parents = {each.path.rpartition(".")[0] for each in modules if each.path}
    return frozenset(
        path
        for path, kind in kinds.items()
        if path in parents and kind not in _LISTS and path and kinds.get(path.rpartition(".")[0]) in _LISTS
    )


def _path(workload: CapturedWorkload, layer: Layer) -> str:
    """Return the module of a layer; where it was joined with others, that of the last."""
    return workload.step.operations_of(layer.index, Phase.FORWARD)[-1].module


def _block(path: str, paths: frozenset[str]) -> str:
    """Return the outermost block that a module is in; empty for none."""
    parts = path.split(".")
    ancestors = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return next((each for each in ancestors if each in paths), "")
