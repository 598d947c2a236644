"""Views of flat bytes as what they hold: feature maps, weights, and the parts of a workspace.

A plan knows bytes; aten knows shapes and strides. Every view here lies over the bytes that it is given and copies
nothing. In the layout `channels_last` a map lies in memory as (N, H, W, C) and a filter as (K, R, S, C), as
`torch.channels_last` has it; the shape of the view is (N, C, H, W) all the same.
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
    """Return PyTorch's word for an element type."""
    return _DTYPES[element_type]


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor to lay into a workspace; of four dimensions, it follows the layout of the maps if `channels_last`."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool = False

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def typed_view(flat: torch.Tensor, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """Return the first elements of a flat buffer of bytes as elements of a type."""
    return flat[: elements * dtype.itemsize].view(dtype)


def shaped_view(flat: torch.Tensor, shape: tuple[int, ...], *, channels_last: bool) -> torch.Tensor:
    """Return flat elements under a shape; of four dimensions, in the order of `channels_last` if asked."""
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

    There are as many as the layer has parameters: W, dW or a state. In `channels_last` filters lie as (K, R, S, C).
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


def workspace_bytes(parts: tuple[Part, ...]) -> int:
    """Return the bytes of a workspace that holds these parts one behind the other."""
    return sum(part.nbytes for part in parts)


def carve(workspace: torch.Tensor | None, parts: tuple[Part, ...]) -> list[torch.Tensor]:
    """Lay parts into a workspace, those of the widest elements first so that each lies aligned; uninitialized."""
    views = []
    begin = 0
    widest_first = sorted(range(len(parts)), key=lambda index: -parts[index].dtype.itemsize)
    begins = {}
    for index in widest_first:
        begins[index] = begin
        begin += parts[index].nbytes
    for index, part in enumerate(parts):
        assert workspace is not None, "a kernel that asks for workspace is given it"
        elements = typed_view(workspace[begins[index] :], part.dtype, torch.Size(part.shape).numel())
        views.append(shaped_view(elements, part.shape, channels_last=part.channels_last))
    return views
