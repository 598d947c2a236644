"""PyTorch calls for each operator of `vdnnsim.dnn`, and the shapes of its parameters.

Images are N C H W, videos N C T H W if an operator works along their frames, else one image a frame, sequences N T C.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Concat, Dropout, ElementwiseAdd, ElementwiseProduct, LocalResponseNormalization
from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions, Relu6, TransposedConvolution

Tensors = tuple[torch.Tensor, ...]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Operands:
    """What an operator works with; `in_time` operators of the network look along the frames of a video."""

    inputs: Tensors
    steps: int
    weights: Tensors
    moments: Tensors
    labels: torch.Tensor
    in_time: bool

    @property
    def sequences(self) -> torch.Tensor:
        """X with its steps side by side."""
        (x,) = self.inputs
        return x if x.dim() == 3 else x.reshape(len(x) // self.steps, self.steps, -1)


def parameter_shapes(operator: Operator, x: MapShape, *, in_time: bool) -> Shapes:
    """Return the shapes of an operator's parameters, in the order in which `forward` takes them."""
    return _PARAMETERS[type(operator)](operator, x, in_time)


def forward(operator: Operator, operands: Operands) -> torch.Tensor:
    return _FORWARD[type(operator)](operator, operands)


def _with_bias(*shape: int, bias: bool = True) -> Shapes:
    return (shape, shape[:1]) if bias else (shape,)


def _filters(operator: Convolution, x: MapShape, in_time: bool) -> Shapes:  # noqa: FBT001 - as all in the table
    window = (operator.steps, *operator.kernel) if in_time else operator.kernel
    return _with_bias(operator.out_channels, x.channels // operator.groups, *window, bias=operator.bias)


def _gates(operator: Lstm, x: MapShape, _: bool) -> Shapes:  # noqa: FBT001 - as above
    gates = 4 * operator.cells
    return (gates, x.elements // x.steps), (gates, operator.cells), (gates,), (gates,)


_PARAMETERS: Mapping[type[Operator], Callable[[Any, MapShape, bool], Shapes]] = {
    Convolution: _filters,
    TransposedConvolution: lambda operator, x, _: (
        (x.channels, operator.out_channels, *operator.kernel),
        *([(operator.out_channels,)] if operator.bias else []),
    ),
    FullyConnected: lambda operator, x, _: _with_bias(operator.out_features, x.elements),
    Linear: lambda operator, x, _: _with_bias(operator.out_features, x.elements // x.steps, bias=operator.bias),
    ClassToken: lambda _operator, x, _: ((x.channels,),),
    LearnedPositions: lambda _operator, x, _: ((x.steps, x.channels),),
    BatchNormalization: lambda _operator, x, _: ((x.channels,),) * 2,
    LayerNormalization: lambda operator, x, _: ((x.channels,),) * (1 + operator.centered),
    Embedding: lambda operator, _x, _: tuple(
        (rows, operator.features) for rows in (operator.vocabulary, operator.positions) if rows
    ),
    Lstm: _gates,
}


def _convolve(operator: Convolution, operands: Operands) -> torch.Tensor:
    (x,), weight = operands.inputs, operands.weights[0]
    bias = operands.weights[1] if operator.bias else None
    if operands.in_time:
        stride, padding = (1, *operator.stride), (operator.steps // 2, *operator.padding)
        return functional.conv3d(x, weight, bias, stride, padding, groups=operator.groups)
    return functional.conv2d(x, weight, bias, operator.stride, operator.padding, groups=operator.groups)


def _convolve_transposed(operator: TransposedConvolution, operands: Operands) -> torch.Tensor:
    (x,), weight = operands.inputs, operands.weights[0]
    return functional.conv_transpose2d(x, weight, operands.weights[1] if operator.bias else None, operator.stride)


def _pool(operator: Pooling, operands: Operands) -> torch.Tensor:
    (x,) = operands.inputs
    if operands.in_time:
        pool = functional.avg_pool3d if operator.average else functional.max_pool3d
        return pool(x, (operator.steps, *operator.kernel), (operator.steps, *operator.stride), (0, *operator.padding))
    if operator.average and x.shape[2:] == operator.kernel:
        return functional.adaptive_avg_pool2d(x, 1)
    pool = functional.avg_pool2d if operator.average else functional.max_pool2d
    return pool(x, operator.kernel, operator.stride, operator.padding)


def _linear(operator: Linear, operands: Operands) -> torch.Tensor:
    """A tied one works with the table of an embedding, and not with that of its positions."""
    x = operands.sequences[:, 0] if operator.first_step else operands.sequences
    return functional.linear(x, *operands.weights[: 1 + operator.bias])


def _class_token(_: ClassToken, operands: Operands) -> torch.Tensor:
    (x,), (token,) = operands.inputs, operands.weights
    return torch.cat([token.expand(len(x), 1, -1), x.flatten(2).transpose(1, 2)], 1)


def _batch_normalize(_: BatchNormalization, operands: Operands) -> torch.Tensor:
    (x,), (mean, variance), (gamma, beta) = operands.inputs, operands.moments, operands.weights
    return functional.batch_norm(x, mean, variance, gamma, beta, training=True)


def _embed(_: Embedding, operands: Operands) -> torch.Tensor:
    (tokens,), (table, *positions) = operands.inputs, operands.weights
    y = functional.embedding(tokens, table)
    for each in positions:
        y = y + functional.embedding(torch.arange(operands.steps, device=tokens.device), each)
    return y


def _layer_normalize(operator: LayerNormalization, operands: Operands) -> torch.Tensor:
    (x,), gamma = operands.inputs, operands.weights[0]
    if operator.centered:
        return functional.layer_norm(x, x.shape[-1:], gamma, operands.weights[1])
    return functional.rms_norm(x, x.shape[-1:], gamma)


def _attend(operator: Attention, operands: Operands) -> torch.Tensor:
    """Q, K and V are views of X."""
    (x,) = operands.inputs
    batch, steps, features = x.shape
    width = features // (operator.heads + 2 * operator.key_value_heads)
    parts = torch.split(x, [heads * width for heads in (operator.heads, *[operator.key_value_heads] * 2)], dim=2)
    q, k, v = (part.view(batch, steps, -1, width).transpose(1, 2) for part in parts)
    grouped = operator.heads != operator.key_value_heads
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=not operator.bidirectional, enable_gqa=grouped)
    return y.transpose(1, 2).reshape(batch, steps, -1)


def _lstm(operator: Lstm, operands: Operands) -> torch.Tensor:
    x = operands.sequences
    state = [x.new_zeros(1, len(x), operator.cells) for _ in range(2)]
    return torch.lstm(x, state, operands.weights, True, 1, 0.0, True, False, True)[0]  # noqa: FBT003 - as in nn.LSTM


def _lose(_: SoftmaxLoss, operands: Operands) -> torch.Tensor:
    (x,), labels = operands.inputs, operands.labels
    if x.dim() == 4:
        return functional.cross_entropy(x, labels.view(len(x), *x.shape[2:]))
    return functional.cross_entropy(x.reshape(len(labels), -1), labels)


_SMOOTH: Mapping[Smoothness, Callable[[torch.Tensor], torch.Tensor]] = {
    Smoothness.GELU: functional.gelu,
    Smoothness.SILU: functional.silu,
}

_FORWARD: Mapping[type[Operator], Callable[[Any, Operands], torch.Tensor]] = {
    Convolution: _convolve,
    TransposedConvolution: _convolve_transposed,
    Pooling: _pool,
    Activation: lambda _, operands: functional.relu_(*operands.inputs),
    Relu6: lambda _, operands: functional.relu6(operands.inputs[0], inplace=True),
    FullyConnected: lambda _, operands: functional.linear(operands.inputs[0].flatten(1), *operands.weights),
    Linear: _linear,
    Concat: lambda _, operands: torch.cat(operands.inputs, 1),
    ElementwiseAdd: lambda _, operands: torch.add(*operands.inputs),
    ElementwiseProduct: lambda _, operands: torch.mul(*operands.inputs),
    ClassToken: _class_token,
    LearnedPositions: lambda _, operands: operands.inputs[0] + operands.weights[0],
    BatchNormalization: _batch_normalize,
    LocalResponseNormalization: lambda operator, operands: functional.local_response_norm(
        operands.inputs[0], operator.window
    ),
    Dropout: lambda _, operands: functional.dropout(operands.inputs[0], 0.5),
    Embedding: _embed,
    LayerNormalization: _layer_normalize,
    SmoothActivation: lambda operator, operands: _SMOOTH[operator.function](operands.inputs[0]),
    Attention: _attend,
    Lstm: _lstm,
    SoftmaxLoss: _lose,
}
