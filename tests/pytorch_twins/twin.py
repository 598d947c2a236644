"""A torch program for any graph of ours: its layers one by one, as a user's `forward` would call torch.nn.functional.

Where PyTorch's choice depends on the device, that of CUDA is called by its name, for its derivative is the same on
any: a dropout with a mask of bools, attention as FlashAttention has it, RMSNorm as one kernel. Tensors have no storage
behind them (device `meta`), so that a twin of any size runs in the time that Python takes to call it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from vdnnsim.dnn.convolutional import (
    Activation,
    BatchNormalization,
    Concat,
    Convolution,
    ElementwiseAdd,
    FullyConnected,
    Pooling,
    SoftmaxLoss,
)
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.regularization import Dropout, LocalResponseNormalization
from vdnnsim.dnn.sequences import (
    Attention,
    ElementwiseProduct,
    Embedding,
    LayerNormalization,
    Linear,
    Lstm,
    SmoothActivation,
    Smoothness,
)

Tensors = tuple[torch.Tensor, ...]


class FusedRmsNorm(torch.autograd.Function):
    """aten::_fused_rms_norm and its derivative, of which only CUDA has the kernels; elsewhere it is taken apart."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, gamma, x.new_empty((*x.shape[:-1], 1), dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Tensors:
        x, gamma, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(gamma)


class CudnnLstm(torch.autograd.Function):
    """aten::_cudnn_rnn and its derivative; the reserve is that of `vdnnsim.dnn.sequences.Lstm`, for cuDNN's is secret."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, *weights: torch.Tensor) -> Any:
        y = x.new_empty(*x.shape[:-1], cell.shape[-1])
        ctx.save_for_backward(x, hidden, cell, y, y.new_empty(5, *y.shape), *weights)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, hidden, cell, _, _, *weights = ctx.saved_tensors
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        return dx, None, None, *(torch.empty_like(each) for each in weights)


@dataclass
class Twin:
    """A graph as a torch program.

    Attributes:
        parameters: by index of the layer that owns them.
        buffers: the running moments of batch normalizations, likewise.
    """

    graph: LayerGraph
    batch_size: int
    device: str = "meta"
    dtype: torch.dtype = torch.float32
    parameters: dict[int, Tensors] = field(default_factory=dict)
    buffers: dict[int, Tensors] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the parameters."""
        self._in_time = any(getattr(layer.operator, "steps", 1) > 1 for layer in self.graph.layers)
        for layer in self.graph.layers:
            if layer.parameters:
                self.parameters[layer.index] = tuple(
                    torch.empty(shape, dtype=self.dtype, device=self.device, requires_grad=True)
                    for shape in self._parameter_shapes(layer)
                )
            if isinstance(layer.operator, BatchNormalization):
                channels = layer.out_shape.channels
                self.buffers[layer.index] = tuple(torch.empty(channels, device=self.device) for _ in range(2))

    def all_parameters(self) -> Iterator[torch.Tensor]:
        """Yield the parameters in the order of their layers."""
        for tensors in self.parameters.values():
            yield from tensors

    def batch(self) -> Tensors:
        """Return an input and labels."""
        shape, loss = self.graph.maps[0].shape, self.graph.layers[-1]
        labels = torch.empty(self.batch_size * loss.out_shape.steps, dtype=torch.int64, device=self.device)
        if any(isinstance(self.graph.layers[reader].operator, Embedding) for reader in self.graph.maps[0].consumers):
            tokens = torch.empty(self.batch_size, shape.steps, dtype=torch.int64, device=self.device)
            return tokens, labels
        if shape.height * shape.width == 1 and shape.steps > 1:
            sizes: tuple[int, ...] = (self.batch_size, shape.steps, shape.channels)
        elif self._in_time:
            sizes = (self.batch_size, shape.channels, shape.steps, shape.height, shape.width)
        else:
            sizes = (self.batch_size * shape.steps, shape.channels, shape.height, shape.width)
        return torch.empty(sizes, dtype=self.dtype, device=self.device), labels

    def loss(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run forward; a map is let go as soon as its last reader has run."""
        maps = {0: x}
        del x
        for layer in self.graph.layers:
            inputs = [maps[index] for index in layer.inputs]
            for index in set(layer.inputs):
                if layer.in_place or self.graph.maps[index].consumers[-1] == layer.index:
                    del maps[index]
            maps[layer.output] = self._forward(layer, inputs, labels)
        return maps[self.graph.layers[-1].output]

    def _parameter_shapes(self, layer: Layer) -> list[tuple[int, ...]]:
        x = layer.in_shapes[0]
        match layer.operator:
            case Convolution(out_channels=channels, kernel=kernel, groups=groups, bias=bias, steps=steps):
                window = (steps, *kernel) if self._in_time else kernel
                return _with_bias((channels, x.channels // groups, *window), bias=bias)
            case FullyConnected(out_features=features):
                return _with_bias((features, x.elements), bias=True)
            case Linear(out_features=features, bias=bias):
                return _with_bias((features, x.elements // x.steps), bias=bias)
            case BatchNormalization():
                return [(x.channels,)] * 2
            case LayerNormalization(centered=centered):
                return [(x.channels,)] * (1 + centered)
            case Embedding(vocabulary=vocabulary, features=features, positions=positions):
                return [(rows, features) for rows in (vocabulary, positions) if rows]
            case Lstm(cells=cells):
                features = x.elements // x.steps
                return [(4 * cells, features), (4 * cells, cells), (4 * cells,), (4 * cells,)]
            case operator:
                raise AssertionError(f"{operator} has no weights that a twin knows")

    def _forward(self, layer: Layer, inputs: list[torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
        x = inputs[0]
        weights = () if layer.weights_of is None else self.parameters[layer.weights_of]
        match layer.operator:
            case Convolution():
                return self._convolution(layer.operator, x, *weights)
            case Pooling():
                return self._pooling(layer.operator, x)
            case Activation():
                return functional.relu_(x)
            case FullyConnected():
                return functional.linear(x.flatten(1), *weights)
            case Linear():
                steps = layer.in_shapes[0].steps
                x = x if x.dim() == 3 else x.reshape(self.batch_size, steps, -1)
                return functional.linear(x, weights[0], weights[1] if layer.operator.bias else None)
            case Concat():
                return torch.cat(inputs, 1)
            case ElementwiseAdd():
                return inputs[0] + inputs[1]
            case ElementwiseProduct():
                return inputs[0] * inputs[1]
            case BatchNormalization():
                return functional.batch_norm(x, *self.buffers[layer.index], *weights, training=True)
            case LocalResponseNormalization(window=window):
                return functional.local_response_norm(x, window)
            case Dropout():
                return torch.native_dropout(x, 0.5, train=True)[0]
            case Embedding():
                return _embedding(x, *weights)
            case LayerNormalization(centered=True):
                return functional.layer_norm(x, (x.shape[-1],), *weights)
            case LayerNormalization():
                return FusedRmsNorm.apply(x, weights[0])
            case SmoothActivation(function=function):
                return (functional.gelu if function is Smoothness.GELU else functional.silu)(x)
            case Attention(heads=heads, key_value_heads=key_value_heads):
                return _attention(x, heads, key_value_heads)
            case Lstm(cells=cells):
                x = x if x.dim() == 3 else x.reshape(self.batch_size, -1, x.shape[-1])
                return CudnnLstm.apply(x, *_states(x, cells), *weights)
            case SoftmaxLoss():
                return functional.cross_entropy(x.reshape(len(labels), -1), labels)
            case operator:
                raise AssertionError(f"{operator} has no twin")

    def _convolution(self, operator: Convolution, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        bias = weights[1] if operator.bias else None
        if self._in_time:
            padding = (operator.steps // 2, *operator.padding)
            return functional.conv3d(x, weights[0], bias, (1, *operator.stride), padding, groups=operator.groups)
        return functional.conv2d(x, weights[0], bias, operator.stride, operator.padding, groups=operator.groups)

    def _pooling(self, operator: Pooling, x: torch.Tensor) -> torch.Tensor:
        if self._in_time:
            kernel, stride = (operator.steps, *operator.kernel), (operator.steps, *operator.stride)
            pool = functional.avg_pool3d if operator.average else functional.max_pool3d
            return pool(x, kernel, stride, (0, *operator.padding))
        if operator.average and tuple(x.shape[2:]) == operator.kernel:
            return functional.adaptive_avg_pool2d(x, 1)
        pool = functional.avg_pool2d if operator.average else functional.max_pool2d
        return pool(x, operator.kernel, operator.stride, operator.padding)


def _with_bias(shape: tuple[int, ...], *, bias: bool) -> list[tuple[int, ...]]:
    return [shape, shape[:1]] if bias else [shape]


def _states(x: torch.Tensor, cells: int) -> Tensors:
    return x.new_zeros(x.shape[0], cells), x.new_zeros(x.shape[0], cells)


def _embedding(tokens: torch.Tensor, table: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
    y = functional.embedding(tokens, table)
    if positions is None:
        return y
    return y + functional.embedding(torch.arange(tokens.shape[1], device=tokens.device), positions)


def _attention(x: torch.Tensor, heads: int, key_value_heads: int) -> torch.Tensor:
    """Q, K and V are views of X; Y is the view that the next product reads."""
    batch, steps, features = x.shape
    width = features // (heads + 2 * key_value_heads)
    q, k, v = (
        part.view(batch, steps, -1, width).transpose(1, 2)
        for part in x.split([heads * width, key_value_heads * width, key_value_heads * width], dim=2)
    )
    y = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)[0]
    return y.transpose(1, 2).reshape(batch, steps, heads * width)
