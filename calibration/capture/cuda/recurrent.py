"""Recurrent layers: one operation of cuDNN for a stack, with a reserve for backward.

Source: `aten/src/ATen/native/cudnn/RNN.cpp` and `native/RNN.cpp` (`use_cudnn`). The rule for the size of the reserve
is fitted to `cudnnGetRNNTempSpaceSizes` of cuDNN 9.24, and equals all 936 of its results.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from calibration.capture.cuda.rules import Composites, Given, Gpu, Kernels, Tensor
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.memory.requests import round_up

aten = torch.ops.aten

_MODES: Final = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_KEPT: Final = {0: (1,), 1: (1,), 2: (4, 1), 3: (6,)}
"""By mode, values for each unit and step, by region: an LSTM's gates and cell. A projected one adds two regions."""
_ALIGNMENT: Final = 32
_HEADER_BYTES: Final = 256
_STATE_BYTES: Final = 24
"""Of cuDNN's random generator, for each thread that the GPU can have."""


def reserve_bytes(
    mode: int, values: int, layers: int, directions: int, element_bytes: int, *, projected: int = 0, has_dropout: bool
) -> int:
    """Return the size of cuDNN's reserve for a stack of layers in one or two directions.

    A layer has steps x batch x directions x units `values`, and `projected` ones of a projected output. Dropout between
    layers adds masks.
    """
    counts = [count * values for count in _KEPT[mode]] + ([values, projected] if projected else [])
    kept = sum(round_up(count * layers * element_bytes, _ALIGNMENT) for count in counts)
    between = round_up((layers - 1) * values * element_bytes, _ALIGNMENT)
    masks = (layers - 1) * directions * round_up(-(-(projected or values) // 8), _ALIGNMENT) if has_dropout else 0
    return _HEADER_BYTES + kept + between + masks


def recurrent_work(given: Given, *, is_backward: bool) -> RecurrentWork:
    """Return the shape of cuDNN's recurrent layers; of packed sequences the sizes of the batch of each step are given.

    The weights of the first layer stand first, those of its input with a row for each gate of each cell.
    """
    *sizes, input_size = given["input"].shape
    hidden_size = int(given["hidden_size"])
    return RecurrentWork(
        steps=len(given["batch_sizes"]) or sizes[1 if given["batch_first"] else 0],
        rows=math.prod(sizes),
        input_size=input_size,
        hidden_size=hidden_size,
        layers=int(given["num_layers"]),
        gates=given["weight"][0].shape[0] // hidden_size,
        directions=1 + bool(given["bidirectional"]),
        projected=int(given["proj_size"]),
        is_backward=is_backward,
        of_weights=is_backward and bool(given["output_mask"][3]),
    )


def _stack(name: str, *, packed: bool) -> Callable[..., Any]:
    mode = _MODES[name]

    def run(gpu: Gpu, *args: Any) -> tuple[Tensor, ...]:
        data, *rest = args
        sizes: Sequence[int] = ()
        batch_first = False
        if packed:
            batch_sizes, hidden, parameters, has_biases, layers, dropout, train, bidirectional = rest
            sizes = [int(each) for each in batch_sizes.tolist()]
        else:
            hidden, parameters, has_biases, layers, dropout, train, bidirectional, batch_first = rest
        hx, cx = (hidden[0], hidden[1]) if mode == _MODES["lstm"] else (hidden, None)
        units = cx.shape[2] if cx is not None else hx.shape[2]
        projected = hx.shape[2] if hx.shape[2] != units else 0
        weights = 2 + 2 * has_biases + bool(projected)
        if dropout and train and gpu.dropout_states is None:
            gpu.dropout_states = data.new_empty(gpu.threads * _STATE_BYTES, dtype=torch.uint8)
        out, hy, cy, _, _ = aten._cudnn_rnn(
            data,
            parameters,
            weights,
            None,
            hx,
            cx,
            mode,
            units,
            projected,
            layers,
            batch_first,
            dropout,
            train,
            bidirectional,
            sizes,
            gpu.dropout_states,
        )
        return (out, hy, cy) if cx is not None else (out, hy)

    return run


def _cudnn_rnn(given: Given) -> tuple[Tensor, ...]:
    input, hx, cx, buffer = (given[name] for name in ("input", "hx", "cx", "weight_buf"))
    units, projected, batch_first = given["hidden_size"], given["proj_size"], given["batch_first"]
    directions = 2 if given["bidirectional"] else 1
    width = directions * (projected or units)
    if given["batch_sizes"]:
        steps = input.shape[0]
        out = input.new_empty(steps, width)
    else:
        steps = input.shape[0] * input.shape[1]
        first, second = (input.shape[1], input.shape[0]) if batch_first else input.shape[:2]
        out = input.new_empty(first, second, width)
        out = out.transpose(0, 1) if batch_first else out
    reserve = 0
    if given["train"]:
        reserve = reserve_bytes(
            given["mode"],
            steps * directions * units,
            given["num_layers"],
            directions,
            input.element_size(),
            projected=steps * directions * projected,
            has_dropout=given["dropout"] > 0,
        )
    return (
        out,
        torch.empty_like(hx, memory_format=torch.contiguous_format),
        input.new_empty(0) if cx is None else torch.empty_like(cx, memory_format=torch.contiguous_format),
        input.new_empty(reserve, dtype=torch.uint8),
        # The buffer of all weights is that of the parameters.
        input.new_empty(0) if buffer is None else buffer,
    )


def _cudnn_rnn_backward(given: Given) -> tuple[Any, ...]:
    input, weight, cx = given["input"], given["weight"], given["cx"]
    gradients = []
    if given["output_mask"][3]:
        # One buffer for all weights.
        buffer = input.new_zeros(sum(each.numel() for each in weight))
        parts = torch.split(buffer, [each.numel() for each in weight])
        gradients = [part.view(each.shape) for part, each in zip(parts, weight, strict=True)]
    of_cells = None if cx is None else torch.empty_like(cx)
    return torch.empty_like(input), torch.empty_like(given["hx"]), of_cells, gradients


COMPOSITES: Composites = {
    getattr(getattr(aten, name), overload): _stack(name, packed=overload == "data")
    for name in _MODES
    for overload in ("input", "data")
}
KERNELS: Kernels = {
    aten._cudnn_rnn.default: _cudnn_rnn,
    aten._cudnn_rnn_backward.default: _cudnn_rnn_backward,
}
