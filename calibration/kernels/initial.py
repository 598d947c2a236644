"""What stands in memory when an iteration begins: weights, optimizer states, the input batch and its labels.

Every tensor is drawn from a generator of its own, seeded by a hash of the seed and the tensor's name, on the CPU in
float32: so it does not depend on the order in which tensors are filled, on the device, or on what is left out.
"""

import hashlib
import math

import torch

from calibration.kernels.tensors import weight_views
from vdnnsim.dnn.convolutional import BatchNormalization
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.workload import Workload


def fill_weights(layer: Layer, flat: torch.Tensor, seed: int, *, channels_last: bool) -> None:
    """Fill the flat weights of a layer: filters as He et al. (2015) for rectifiers, biases small, gamma near 1.

    A bias is not zero, so that a layer that forgot it is found out. The layout changes no value.
    """
    weights, bias = weight_views(layer, flat, channels_last=channels_last)
    if isinstance(layer.operator, BatchNormalization):
        weights.copy_(_normal(weights.shape, seed, f"W {layer.name}") * 0.1 + 1)
    else:
        inputs_of_one = weights[0].numel()
        weights.copy_(_normal(weights.shape, seed, f"W {layer.name}") * math.sqrt(2 / inputs_of_one))
    if bias is not None:
        fill(bias, seed, f"bias {layer.name}", deviation=0.1)


def fill_state(layer: Layer, number: int, flat: torch.Tensor, seed: int) -> None:
    """Fill a state of the optimizer, flat: the first a mean of gradients, the second a mean of their squares."""
    fill(flat, seed, f"state {number} {layer.name}", deviation=0.01)
    if number == 1:
        flat.square_()


def fill_input(batch: torch.Tensor, seed: int) -> None:
    """Fill the input batch (N, C, H, W), standard normal as images are after their mean and deviation are taken out."""
    fill(batch, seed, "input", deviation=1.0)


def labels(workload: Workload, seed: int) -> torch.Tensor:
    """Return the class of each image, on the CPU, uniform over the classes."""
    classes = workload.graph.layers[-1].in_shapes[0].channels
    return torch.randint(classes, (workload.batch_size,), generator=_generator(seed, "labels"))


def fill(tensor: torch.Tensor, seed: int, name: str, *, deviation: float) -> None:
    """Fill a tensor of any layout and device with normal values of mean 0, drawn by seed and name."""
    tensor.copy_(_normal(tensor.shape, seed, name) * deviation)


def _normal(shape: torch.Size, seed: int, name: str) -> torch.Tensor:
    return torch.randn(shape, generator=_generator(seed, name))


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
