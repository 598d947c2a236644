"""Variants of a network: under autograd's saving rule, or in mixed precision."""

from collections.abc import Callable
from functools import lru_cache

from vdnnsim.dnn.elementwise import Cast
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.operator import Autocast, SavingRule
from vdnnsim.units import ElementType

_Inputs = tuple[int, ...]


def saved_by(graph: LayerGraph, rule: SavingRule) -> LayerGraph:
    """Return the network under a saving rule, the same object each time."""
    if rule is graph.saving:
        return graph
    assert rule is SavingRule.AUTOGRAD, "networks are built by the paper's rule"
    return _by_autograd(graph)


@lru_cache
def _by_autograd(graph: LayerGraph) -> LayerGraph:
    builder = GraphBuilder(graph.name, graph.maps[0].shape, SavingRule.AUTOGRAD, graph.autocast)
    return _repeated(graph, builder, lambda _, inputs: inputs)


def under_autocast(graph: LayerGraph, half: ElementType) -> LayerGraph:
    """Return a network with a layer for each cast of a map by PyTorch's autocast.

    Each reader has a copy of its own; only those of weights are shared (`vdnnsim.dnn.layer_step`).
    """
    builder = GraphBuilder(graph.name, graph.maps[0].shape, graph.saving, half)

    def cast(layer: Layer, inputs: _Inputs) -> _Inputs:
        to = {Autocast.HALF: half, Autocast.FLOAT32: ElementType.FLOAT32}.get(layer.operator.autocast)
        return inputs if to is None else tuple(copied(layer, at, x, to) for at, x in enumerate(inputs))

    def copied(layer: Layer, position: int, x: int, to: ElementType) -> int:
        if builder.element_type(x) is to:
            return x
        name = f"{layer.name}/cast" + f" {position}" * bool(position)
        return builder.append(name, Cast(to, layer.operator.reads_first_step), (x,)).output

    return _repeated(graph, builder, cast)


def _repeated(graph: LayerGraph, builder: GraphBuilder, prepare: Callable[[Layer, _Inputs], _Inputs]) -> LayerGraph:
    """Add the layers of a graph to a builder, as they are under its rule, with the inputs that `prepare` returns."""
    maps, layers = {0: 0}, dict[int, int]()
    for layer in graph.layers:
        builder.stage = layer.stage
        inputs = prepare(layer, tuple(maps[x] for x in layer.inputs))
        owner = layer.weights_of
        weights_of = None if owner in (None, layer.index) else layers[owner]
        added = builder.append(layer.name, layer.operator.under(builder.saving), inputs, weights_of)
        layers[layer.index] = added.index
        maps |= zip(layer.outputs, added.outputs, strict=True)
    return builder.graph()
