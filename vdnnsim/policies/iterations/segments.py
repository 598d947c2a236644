"""Segments of a network that are recomputed before their backward, shared by several policies.

After forward only maps between segments and the output of the network are kept. Before backward of a segment its
forward is recomputed from these, as far as backward needs it, once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.training_loops import LISTS
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.schedule import Run, backward_of, forward, update


@dataclass(frozen=True, slots=True)
class Segment:
    """Layers that follow each other, by index."""

    layers: range
    recomputed: bool


def modules(workload: Workload) -> list[range]:
    """Return the parts of a network that are checkpointed one by one, in order, as indices of layers.

    Of a captured model its blocks: the outermost modules with children that are in a list or sequence of modules, as a
    bottleneck of a residual network or a layer of a transformer. A module that stands alone in its class and has blocks
    of one class within, as an encoder in a sequence of embedding, encoder and head, is no block, but these are. Layers
    between two blocks are a part of their own. Of
    other models, and without blocks, the smallest parts between which exactly one map passes: the links of a chain, the
    blocks of a residual network and the modules of an Inception network. A layer in place belongs to the part whose map
    it rewrites.
    """
    if isinstance(workload, CapturedWorkload) and (blocks := blocks_of(workload)):
        return blocks
    layers = [run.layer for run in forward(workload)]
    last_use = [max(each.consumers + each.rewriters, default=-1) for each in workload.graph.maps]
    last_rewrite = [max(each.rewriters, default=-1) for each in workload.graph.maps]
    parts = []
    start = 0
    alive = {each.index for each in workload.graph.maps if each.producer is None}
    for layer in layers:
        alive = {index for index in alive.union(layer.outputs) if last_use[index] > layer.index}
        passing = len(alive) == 1 and all(last_rewrite[index] <= layer.index for index in alive)
        if passing or layer is layers[-1]:
            parts.append(range(start, layer.index + 1))
            start = layer.index + 1
    return parts


def joined(parts: Sequence[range]) -> range:
    return range(parts[0].start, parts[-1].stop)


def segmented_steps(workload: Workload, segments: Sequence[Segment]) -> list[Run]:
    """Return the runs of an iteration in which segments are recomputed; in inference forward alone."""
    steps = forward(workload)
    if workload.mode is Mode.INFERENCE:
        return steps
    for segment in reversed(segments):
        if segment.recomputed:
            steps += _recomputation(workload, segment)
        for index in reversed(segment.layers):
            steps += backward_of(workload.graph.layers[index])
    return steps + update(workload)


def stays(feature_map: FeatureMap, segment: Segment) -> bool:
    """Whether a map of a recomputed segment is kept: other segments read it, or none does."""
    return not feature_map.consumers or feature_map.consumers[-1] not in segment.layers


def _recomputation(workload: Workload, segment: Segment) -> list[Run]:
    layers = [workload.graph.layers[index] for index in segment.layers]
    wanted = {index for layer in layers for index in layer.saved_maps}
    again: list[Run] = []
    for layer in reversed(layers):
        if any(each in wanted and not stays(workload.graph.maps[each], segment) for each in layer.outputs):
            wanted.update(layer.inputs)
            again.append(Run(layer, Phase.FORWARD, repeat=1))
    return again[::-1]


def blocks_of(workload: CapturedWorkload) -> list[range]:
    """Return the layers of each block, and of those between two, in order; empty without blocks."""
    paths = _block_paths(workload)
    if not paths:
        return []
    layers = [layer for layer in workload.graph.layers if Phase.FORWARD in workload.phases(layer)]
    parts = groupby(layers, key=lambda layer: _block(_path(workload, layer), paths))
    members = [[layer.index for layer in part] for _, part in parts]
    return [range(each[0], each[-1] + 1) for each in members]


def is_sequence(workload: CapturedWorkload) -> bool:
    """Return whether a model is one sequence of blocks of a class, as `checkpoint_sequential` takes it.

    Each reads what the last one returned, and nothing else that a gradient flows to; no module beside them is of their
    class.
    """
    kinds, paths = {each.path: each.kind for each in workload.captured.modules}, _block_paths(workload)
    alike = {(path.rpartition(".")[0], kinds[path]) for path in paths}
    if not alike:
        return kinds.get("") == LISTS[0]
    ((_, kind), *others) = alike
    if others or sum(each == kind for each in kinds.values()) > len(paths):
        return False
    parts = blocks_of(workload)
    blocks = [at for at, part in enumerate(parts) if _block(_path(workload, workload.graph.layers[part[0]]), paths)]
    are_adjacent = len(blocks) == len(paths) == blocks[-1] - blocks[0] + 1
    return are_adjacent and all(passing(workload, parts[at].stop) <= 1 for at in blocks[:-1])


def passing(workload: Workload, behind: int) -> int:
    """Return how many activations are computed from weights before a layer, and read there or later.

    Others, as masks and rotations of positions, have no gradient, so that a checkpointed function may just use them.
    """
    graph, from_weights = workload.graph, set[int]()
    for layer in graph.layers[:behind]:
        if layer.work.weights or not from_weights.isdisjoint(layer.inputs):
            from_weights.update(layer.outputs)
    return sum(max(graph.maps[each].consumers, default=-1) >= behind for each in from_weights)


def _block_paths(workload: CapturedWorkload) -> frozenset[str]:
    modules = workload.captured.modules
    kinds = {each.path: each.kind for each in modules}
    parents = {each.path.rpartition(".")[0] for each in modules if each.path}
    members = [
        path
        for path, kind in kinds.items()
        if path in parents and kind not in LISTS and path and kinds.get(path.rpartition(".")[0]) in LISTS
    ]
    counts = Counter(kinds[each] for each in members)
    repeated = [each for each in members if counts[kinds[each]] > 1]
    return frozenset(
        path for path in members if path in repeated or not any(each.startswith(f"{path}.") for each in repeated)
    )


def _path(workload: CapturedWorkload, layer: Layer) -> str:
    """Return the module of a layer, of several the last."""
    return workload.step.path_of(workload.step.operations_of(layer.index, Phase.FORWARD)[-1])


def _block(path: str, paths: frozenset[str]) -> str:
    """Return the outermost block that a module is in; empty for none."""
    parts = path.split(".")
    ancestors = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return next((each for each in ancestors if each in paths), "")
