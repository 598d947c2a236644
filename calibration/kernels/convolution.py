"""Convolution by PyTorch's own choice of algorithm, and by explicit GEMM.

PyTorch: one call of aten a phase, copied into the caller's tensors. But for cuDNN's forward, aten has no variant of
these calls that writes into a given tensor; allocated results, and oneDNN's reordered copies and scratchpads on the
CPU, are workspace that has to be measured.

Explicit GEMM: the windows of one image unfolded into columns (C R S, P Q), then one product of matrices. The columns,
and the image with its zero border if there is one, are in the passed workspace, which does not grow with the batch.
This is the algorithm of Caffe, and GEMM of the vDNN paper's cuDNN.
"""

from dataclasses import dataclass

import torch

from calibration.kernels.interface import Kernel, KernelTensors, Site, deposit, given
from calibration.kernels.tensors import Part
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import Size2

PYTORCH = "pytorch"
"""PyTorch's own choice of algorithm."""

EXPLICIT_GEMM = "explicit_gemm"

_DILATION = (1, 1)
_NOT_TRANSPOSED = False
_OUTPUT_PADDING = (0, 0)
_GROUPS = 1

_Geometry = tuple[Size2, Size2, Size2, bool, Size2, int]
"""Stride, padding, dilation, whether transposed, output padding and groups, as every call of aten takes them."""


def framework_convolution(site: Site, operator: Convolution, phase: Phase) -> Kernel:
    """Return PyTorch's own kernel for a phase of a convolution."""

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        weights, bias = site.weights(tensors.weights)
        x, y = tensors.inputs[0], given(tensors.output)
        if _is_cudnn(operator, x, weights, bias):
            _cudnn_forward(operator, x, weights, bias, y)
            return
        y.copy_(torch.convolution(x, weights, bias, *_geometry(operator)))

    def backward_data(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        dx = given(tensors.input_gradients[0])
        # The values of X are not read for dX, and the plan may have released it: dX has the same shape.
        result = _backward(site, operator, tensors, dx, (True, False, False))[0]
        deposit(given(result), dx, added=tensors.accumulates[0])

    def backward_weights(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        weight_gradient, bias_gradient = site.weights(tensors.weight_gradient)
        # The values of W are not read for dW, which has the same shape.
        mask = (False, True, operator.bias)
        _dx, weight_result, bias_result = _backward(site, operator, tensors, tensors.inputs[0], mask)
        weight_gradient.copy_(given(weight_result))
        if bias_gradient is not None:
            bias_gradient.copy_(given(bias_result))

    run = {Phase.FORWARD: forward, Phase.BACKWARD_DATA: backward_data, Phase.BACKWARD_WEIGHTS: backward_weights}[phase]
    return site.kernel(PYTORCH, "", run, allocates=True)


def _backward(
    site: Site, operator: Convolution, tensors: KernelTensors, x: torch.Tensor, mask: tuple[bool, bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    weights, _ = site.weights(tensors.weight_gradient if mask[1] else tensors.weights)
    results: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
    results = torch.ops.aten.convolution_backward(
        given(tensors.output_gradient),
        x,
        weights,
        [operator.out_channels] if operator.bias else None,
        *_geometry(operator),
        mask,
    )
    return results


def _geometry(operator: Convolution) -> _Geometry:
    return operator.stride, operator.padding, _DILATION, _NOT_TRANSPOSED, _OUTPUT_PADDING, _GROUPS


def _is_cudnn(operator: Convolution, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether PyTorch dispatches this convolution to cuDNN."""
    if not x.is_cuda:
        return False
    backend = torch._C._select_conv_backend(  # noqa: SLF001 - there is no public way
        x, weights, bias, *_geometry(operator), [operator.out_channels] if operator.bias else None
    )
    return backend.name == "Cudnn"


def _cudnn_forward(
    operator: Convolution, x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
) -> None:
    """Let cuDNN write Y; PyTorch also adds the bias afterwards (aten/native/Convolution.cpp)."""
    precision = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    torch.ops.aten.cudnn_convolution.out(
        x,
        weights,
        operator.padding,
        operator.stride,
        _DILATION,
        _GROUPS,
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
        precision == "tf32",
        out=y,
    )
    if bias is not None:
        y.add_(bias.view(1, -1, 1, 1))


def explicit_gemm(site: Site, operator: Convolution, phase: Phase) -> Kernel:
    unfolding = _Unfolding(site, operator)
    run = {
        Phase.FORWARD: unfolding.forward,
        Phase.BACKWARD_DATA: unfolding.backward_data,
        Phase.BACKWARD_WEIGHTS: unfolding.backward_weights,
    }[phase]
    image_needed = operator.padding != (0, 0) or (phase is Phase.BACKWARD_DATA and site.added_to(0))
    parts = (unfolding.columns_part, unfolding.image_part) if image_needed else (unfolding.columns_part,)
    # A product of matrices allocates memory for some element types and devices.
    return site.kernel(EXPLICIT_GEMM, "explicit GEMM", run, parts, allocates=True)


@dataclass(frozen=True, slots=True)
class _Unfolding:
    """The three phases of a convolution over the columns of one image."""

    site: Site
    operator: Convolution

    @property
    def columns_part(self) -> Part:
        """The columns, in the order of their layout: (C, R, S, P, Q) or (P, Q, R, S, C)."""
        layer = self.site.layer
        windows = (layer.out_shape.height, layer.out_shape.width)
        channels = layer.in_shapes[0].channels
        if self.site.channels_last:
            return Part((*windows, *self.operator.kernel, channels), self.site.dtype)
        return Part((channels, *self.operator.kernel, *windows), self.site.dtype)

    @property
    def image_part(self) -> Part:
        """One image with its border."""
        x = self.site.layer.in_shapes[0]
        height, width = (x.height + 2 * self.operator.padding[0], x.width + 2 * self.operator.padding[1])
        return Part((1, x.channels, height, width), self.site.dtype, self.site.channels_last)

    def forward(self, tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        """Y = W columns, image by image, then the bias over all."""
        weights, bias = self.site.weights(tensors.weights)
        y = given(tensors.output)
        self._clear_border(parts)
        for image, result in zip(tensors.inputs[0], y, strict=True):
            self._unfold(image, parts)
            torch.mm(self._matrix(weights), self._column_matrix(parts), out=result.flatten(1))
        if bias is not None:
            y.add_(bias.view(1, -1, 1, 1))

    def backward_data(self, tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        """Columns = W^T dY, folded into dX, image by image."""
        weights, _ = self.site.weights(tensors.weights)
        dx = given(tensors.input_gradients[0])
        for gradient, incoming in zip(dx, given(tensors.output_gradient), strict=True):
            torch.mm(self._matrix(weights).t(), incoming.flatten(1), out=self._column_matrix(parts))
            folded = parts[1][0] if len(parts) > 1 else gradient
            folded.zero_()
            self._fold(parts[0], folded)
            if len(parts) > 1:
                deposit(self._without_border(folded), gradient, added=tensors.accumulates[0])

    def backward_weights(self, tensors: KernelTensors, parts: list[torch.Tensor]) -> None:
        """DW = the sum over the images of dY columns^T; the bias's is the sum of dY."""
        weight_gradient, bias_gradient = self.site.weights(tensors.weight_gradient)
        dy = given(tensors.output_gradient)
        self._clear_border(parts)
        matrix = self._matrix(weight_gradient)
        for number, (image, incoming) in enumerate(zip(tensors.inputs[0], dy, strict=True)):
            self._unfold(image, parts)
            # With beta 0 the old content of dW is not read.
            matrix.addmm_(incoming.flatten(1), self._column_matrix(parts).t(), beta=1 if number else 0)
        if bias_gradient is not None:
            torch.sum(dy, (0, 2, 3), out=bias_gradient)

    def _matrix(self, weights: torch.Tensor) -> torch.Tensor:
        """W as (K, C R S), or as (K, R S C) where the channels lie last."""
        return (weights.permute(0, 2, 3, 1) if self.site.channels_last else weights).flatten(1)

    def _column_matrix(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """The columns as (C R S, P Q), or as (R S C, P Q) where the channels lie last."""
        if self.site.channels_last:
            return parts[0].flatten(2).flatten(0, 1).t()
        return parts[0].flatten(0, 2).flatten(1)

    def _ordered(self, columns: torch.Tensor) -> torch.Tensor:
        """The columns as (C, R, S, P, Q) in either layout."""
        return columns.permute(4, 2, 3, 0, 1) if self.site.channels_last else columns

    def _clear_border(self, parts: list[torch.Tensor]) -> None:
        if len(parts) > 1:
            parts[1].zero_()

    def _without_border(self, image: torch.Tensor) -> torch.Tensor:
        x = self.site.layer.in_shapes[0]
        down, across = self.operator.padding
        return image[:, down : down + x.height, across : across + x.width]

    def _unfold(self, image: torch.Tensor, parts: list[torch.Tensor]) -> None:
        """Write the windows of an image (C, H, W) into the columns."""
        whole = image
        if len(parts) > 1:
            whole = parts[1][0]
            self._without_border(whole).copy_(image)
        (rows, width), (down, across) = self.operator.kernel, self.operator.stride
        windows = whole.unfold(1, rows, down).unfold(2, width, across)
        self._ordered(parts[0]).copy_(windows.permute(0, 3, 4, 1, 2))

    def _fold(self, columns: torch.Tensor, image: torch.Tensor) -> None:
        """Add the columns to the elements of an image that its windows cover."""
        down, across = self.operator.stride
        ordered = self._ordered(columns)
        high, wide = ordered.shape[3:]
        for row in range(self.operator.kernel[0]):
            for column in range(self.operator.kernel[1]):
                rows = slice(row, row + (high - 1) * down + 1, down)
                across_columns = slice(column, column + (wide - 1) * across + 1, across)
                image[:, rows, across_columns].add_(ordered[:, row, column])
