"""A torch program for any `LayerGraph`, by default on tensors without storage."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch

from tests.pytorch_twins.instruments import LiveBytes, saved_bytes
from tests.pytorch_twins.kernels import Tensors
from tests.pytorch_twins.operators import Operands, forward, parameter_shapes
from vdnnsim.dnn.convolutional import BatchNormalization
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.sequences import Embedding


@dataclass
class Twin:
    """A graph as a torch program, and one batch for it.

    Tensors are created on device `meta`, else on the CPU or as fake ones of the CPU. `amp` is the CPU's autocast to
    bfloat16, which leaves those of `meta` alone. Weights and running moments are by index of the layer that owns them.
    """

    graph: LayerGraph
    batch_size: int
    tensors: AbstractContextManager[object] = field(default_factory=lambda: torch.device("meta"))
    amp: bool = False
    weights: dict[int, Tensors] = field(init=False, default_factory=dict)
    moments: dict[int, Tensors] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._in_time = any(getattr(layer.operator, "steps", 1) > 1 for layer in self.graph.layers)
        with self.tensors:
            for layer in self.graph.layers:
                x = layer.in_shapes[0]
                if layer.parameters:
                    shapes = parameter_shapes(layer.operator, x, in_time=self._in_time)
                    self.weights[layer.index] = tuple(torch.empty(each, requires_grad=True) for each in shapes)
                if isinstance(layer.operator, BatchNormalization):
                    self.moments[layer.index] = torch.empty(x.channels), torch.empty(x.channels)
            self.batch = self._input()
            rows = self.graph.layers[-1].out_shape
            self.labels = torch.zeros(self.batch_size * rows.elements // rows.channels, dtype=torch.int64)

    @property
    def parameters(self) -> Iterator[torch.Tensor]:
        return (each for tensors in self.weights.values() for each in tensors)

    @property
    def buffers(self) -> Iterator[torch.Tensor]:
        return (each for tensors in self.moments.values() for each in tensors)

    def saved_bytes(self) -> int:
        """Return the bytes that autograd saves in forward, parameters and buffers aside, the batch included."""
        return saved_bytes(self.loss, [*self.parameters, *self.buffers])

    def live_bytes(self, *, gradients_kept: bool) -> LiveBytes:
        """Return the live bytes of an iteration whose gradients are set to none, or kept and set to zero."""
        live = LiveBytes()
        live.hold([*self.parameters, *self.buffers, self.batch, self.labels])
        for parameter in self.parameters:
            parameter.grad = None
            if gradients_kept:
                parameter.grad = torch.empty_like(parameter)
                live.hold([parameter.grad])
        with live:
            self.loss().backward()  # type: ignore[no-untyped-call]
        return live

    def loss(self) -> torch.Tensor:
        """Run forward; a map is freed as soon as its last reader has run."""
        maps = {0: self.batch}
        with self.tensors, torch.autocast("cpu", torch.bfloat16, enabled=self.amp):
            for layer in self.graph.layers:
                inputs = tuple(maps[index] for index in layer.inputs)
                for index in set(layer.inputs):
                    if layer.in_place or self.graph.maps[index].consumers[-1] == layer.index:
                        del maps[index]
                weights = () if layer.weights_of is None else self.weights[layer.weights_of]
                moments = self.moments.get(layer.index, ())
                operands = Operands(inputs, layer.in_shapes[0].steps, weights, moments, self.labels, self._in_time)
                del inputs
                maps[layer.output] = forward(layer.operator, operands)
        return maps[layer.output]

    def _input(self) -> torch.Tensor:
        shape = self.graph.maps[0].shape
        if any(isinstance(self.graph.layers[reader].operator, Embedding) for reader in self.graph.maps[0].consumers):
            return torch.zeros(self.batch_size, shape.steps, dtype=torch.int64)
        if shape.steps > 1 and shape.height * shape.width == 1:
            return torch.empty(self.batch_size, shape.steps, shape.channels)
        if self._in_time:
            return torch.empty(self.batch_size, shape.channels, shape.steps, shape.height, shape.width)
        return torch.empty(self.batch_size * shape.steps, shape.channels, shape.height, shape.width)
