"""A workload: a network with batch size, saving rule, precision, optimizer and mode, and its iteration as a step."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.elementwise import Cast
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layer_step import step_of
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Autocast, SavingRule
from vdnnsim.dnn.sequences import Linear
from vdnnsim.dnn.step import BufferKind, Step
from vdnnsim.dnn.workload_sizes import Mode, Optimizer, WorkloadSizes
from vdnnsim.units import ElementType, Precision

__all__ = ["Mode", "Optimizer", "Workload", "saved_by", "under_autocast"]

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
        name, operator = f"{layer.name}/cast" + f" {position}" * bool(position), layer.operator
        first_step = isinstance(operator, Linear) and operator.first_step
        return builder.append(name, Cast(to, first_step, of_logits=operator.is_loss), (x,)).output

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


@dataclass(frozen=True)
class Workload(WorkloadSizes):
    """What one GPU does in one iteration."""

    @classmethod
    def in_precision(
        cls,
        graph: LayerGraph,
        batch_size: int,
        precision: Precision,
        optimizer: Optimizer = Optimizer.NONE,
        mode: Mode = Mode.TRAINING,
    ) -> "Workload":
        """Return the workload of a network in a precision; mixed precision puts casts into the network."""
        run = under_autocast(graph, precision.autocast) if precision.autocast else graph
        return cls(run, batch_size, precision.element_type, optimizer, mode)

    @property
    def precision(self) -> Precision:
        half = self.graph.autocast
        return Precision(f"amp_{half.value}" if half else self.element_type.value)

    def saved_by(self, rule: SavingRule) -> "Workload":
        return self if rule is self.graph.saving else replace(self, graph=saved_by(self.graph, rule))

    @cached_property
    def step(self) -> Step:
        return step_of(self)

    def kind_shown(self, storage: int) -> BufferKind:
        """Return the kind of a storage of the step in what people read."""
        return self.step.storages[storage].kind

    @cached_property
    def has_convolutions(self) -> bool:
        return any(isinstance(each.operator, Convolution) for each in self.graph.layers)

    @property
    def rounds(self) -> int:
        """How often forward and backward of `step` run before the update; captured steps may have micro-batches."""
        return 1

    @property
    def as_captured(self) -> bool:
        """Whether micro-batches are replayed as they were captured: those of a pipeline overlap, others may differ."""
        return False

    def flop(self, layer: Layer, phase: Phase) -> int:
        """FLOPs of one phase of a layer by the direct method, for a part of the batch."""
        return sum(each.all_flop for each in self.step.operations_of(layer.index, phase))

    def bytes_moved(self, layer: Layer, phase: Phase) -> int:
        return sum(each.bytes_moved for each in self.step.operations_of(layer.index, phase))
