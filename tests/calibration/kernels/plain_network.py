"""The networks of the library in plain PyTorch: torch.nn.functional and autograd."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch.nn import functional

from calibration.kernels.interface import given
from calibration.kernels.operands import fill_input, fill_weights, labels
from calibration.kernels.tensors import dtype_of, weight_views
from tests.calibration.capture.built_operators import Operands, forward
from vdnnsim.dnn.convolutional import BatchNormalization, Pooling
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True)
class PlainRun:
    loss: float
    gradients: dict[int, torch.Tensor]


def run_plainly(
    workload: Workload, seed: int = 0, *, channels_last: bool = False, device_type: str = "cpu"
) -> PlainRun:
    """Run forward and backward under autograd; gradients flat by index of their layer, in the order of memory."""
    graph = workload.graph
    dtype = dtype_of(workload.element_type)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    shape = graph.maps[0].shape
    batch = torch.empty(workload.batch_size, shape.channels, shape.height, shape.width, dtype=dtype, device=device_type)
    batch = batch.to(memory_format=layout)
    fill_input(batch, seed)
    maps = {0: batch}
    weights: dict[int, tuple[torch.Tensor, ...]] = {}
    for layer in graph.layers:
        if layer.parameters:
            flat = torch.empty(layer.parameters, dtype=dtype, device=device_type)
            fill_weights(layer, flat, seed, channels_last=channels_last)
            views = weight_views(layer, flat, channels_last=channels_last)
            weights[layer.index] = tuple(view.clone().requires_grad_() for view in views if view is not None)
        inputs = [maps[x] for x in layer.inputs]
        moments = tuple(torch.zeros(x.shape[1], dtype=dtype, device=device_type) for x in inputs[:1] for _ in range(2))
        classes = labels(workload, seed).to(device_type)
        operands = Operands(tuple(inputs), 1, weights.get(layer.index, ()), moments, classes, in_time=False)
        with without_cudnn() if isinstance(layer.operator, BatchNormalization) else nullcontext():
            match layer.operator:
                case Pooling(kernel=kernel, stride=stride, padding=padding, average=True):
                    # A mean, as torchvision has it over a whole map, is rounded otherwise.
                    maps[layer.output] = functional.avg_pool2d(inputs[0], kernel, stride, padding)
                case operator:
                    maps[layer.output] = forward(operator, operands)
    loss = maps[graph.layers[-1].output]
    loss.backward()  # type: ignore[no-untyped-call]
    return PlainRun(
        float(loss.detach().cpu()), {index: _flat(layer_weights) for index, layer_weights in weights.items()}
    )


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Let PyTorch choose its own batch normalization: a plan has no room for what cuDNN's keeps for backward."""
    torch.backends.cudnn.enabled = False
    yield
    torch.backends.cudnn.enabled = True


def _flat(weights: tuple[torch.Tensor, ...]) -> torch.Tensor:
    parts = []
    for weight in weights:
        gradient = given(weight.grad)
        channels_last = gradient.dim() == 4 and not weight.is_contiguous()
        parts.append((gradient.permute(0, 2, 3, 1) if channels_last else gradient).flatten().cpu())
    return torch.cat(parts)
