"""Views of flat bytes as feature maps, weights, and the parts of a workspace.

In the layout `channels_last`, which is `torch.channels_last`, a map lies in memory as (N, H, W, C) and a filter as
(K, R, S, C); the shape of the view is still (N, C, H, W).
"""

from dataclasses import dataclass

import torch

from vdnnsim.dnn.convolutional import BatchNormalization, Convolution, FullyConnected
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.units import ElementType

_DTYPES = {
    ElementType.FLOAT32: torch.float32,
    ElementType.TF32: torch.float32,
    ElementType.FLOAT16: torch.float16,
    ElementType.BFLOAT16: torch.bfloat16,
}


def dtype_of(element_type: ElementType) -> torch.dtype:
    return _DTYPES[element_type]


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor in a workspace; with four dimensions, it has the layout of the maps if `channels_last`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool = False

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def typed_view(flat: torch.Tensor, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """Return the first elements of a flat buffer of bytes as elements of a type."""
    return flat[: elements * dtype.itemsize].view(dtype)


def shaped_view(flat: torch.Tensor, shape: tuple[int, ...], *, channels_last: bool) -> torch.Tensor:
    """Return flat elements in a shape; with four dimensions, optionally in `channels_last`."""
    if channels_last and len(shape) == 4:
        count, channels, height, width = shape
        return flat.view(count, height, width, channels).permute(0, 3, 1, 2)
    return flat.view(shape)


def map_view(
    flat: torch.Tensor, shape: MapShape, batch_size: int, dtype: torch.dtype, *, channels_last: bool
) -> torch.Tensor:
    """Return a flat buffer of bytes as the feature map (N, C, H, W) that it holds."""
    elements = typed_view(flat, dtype, shape.elements * batch_size)
    whole = (batch_size, shape.channels, shape.height, shape.width)
    return shaped_view(elements, whole, channels_last=channels_last)


def weight_views(layer: Layer, flat: torch.Tensor, *, channels_last: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return W and, where the layer has one, its bias (of a batch normalization gamma and beta) in flat elements.

    The elements are those of W, dW or a state, as many as the layer has parameters.
    """
    match layer.operator:
        case Convolution(out_channels=out, kernel=kernel, bias=bias):
            shape: tuple[int, ...] = (out, layer.in_shapes[0].channels, *kernel)
        case FullyConnected(out_features=out):
            shape, bias = (out, layer.in_shapes[0].elements), True
        case BatchNormalization():
            shape, bias = (layer.in_shapes[0].channels,), True
        case _:
            raise AssertionError(f"{layer.name} has no weights")
    elements = torch.Size(shape).numel()
    weights = shaped_view(flat[:elements], shape, channels_last=channels_last)
    return weights, flat[elements:] if bias else None


def carve(workspace: torch.Tensor | None, parts: tuple[Part, ...]) -> list[torch.Tensor]:
    """Return the parts of a workspace, those of the widest elements first so that each is aligned; uninitialized."""
    views: dict[int, torch.Tensor] = {}
    begin = 0
    for index, part in sorted(enumerate(parts), key=lambda each: -each[1].dtype.itemsize):
        assert workspace is not None, "a kernel that asks for workspace is given it"
        elements = typed_view(workspace[begin:], part.dtype, torch.Size(part.shape).numel())
        views[index] = shaped_view(elements, part.shape, channels_last=part.channels_last)
        begin += part.nbytes
    return [views[index] for index in range(len(parts))]
