"""The shape of one convolution, in the symbols that the cost model uses.

N images of C channels and H x W pixels are convolved with K filters of C x R x S weights to K channels of P x Q pixels.
Sizes are (height, width) pairs, of volumes (depth, height, width). Two layers of equal shape cost the same, so shapes
also serve as cache keys. A shape is that of one group where it is said how many there are; tensor cores pad channels,
and pack groups of few.

In groups, tensor cores compute one product for each 32 channels where groups are as ResNeXt's: 32 or more, in eights,
of as many channels in as out, which divide 32. Others as depthwise where cuDNN has no kernel for tensor cores: before
Ampere for no groups; channels last for weight gradients and the data gradients of strides, and all else if a group has
fewer than 32 channels that do not divide 32. Channels of a group are then padded to 32, but in gradients channels last.
So PyTorch 1.12 (cuDNN 8.3) computes gradients and PyTorch 2.4 (cuDNN 9) forward passes. With cuDNN 9 tensor cores
compute all gradients, and strided depthwise ones are no slower: profiled steps of RegNetY-3.2GF, ResNeSt-50d and
GhostNet on an H200; of cards before Hopper that was not measured.

Channels of volumes are padded to whole tiles: in float16 on an A100 and a V100 with cuDNN 8.0, 2 x 4 x 128 x 128 x 128
takes as long as 32 channels do within a fifth, and 32 filters as long as 64 (`tests/claims/test_volumes.py`).
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Final

from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.units import ElementType

TILE_CHANNELS: Final = 32
LOAD_BYTES: Final = 16
_VOLUME: Final = 3
_PHASES: Final = {"input": Phase.BACKWARD_DATA, "weight": Phase.BACKWARD_WEIGHTS}
_PACKED_GROUPS: Final = 32
_PACKED_AT_ONCE: Final = 8
GROUPED_GRADIENTS: Final = 9
"""The version of cuDNN from which on all gradients in groups run on tensor cores, and strided ones are no slower."""
_PADDED_COPIES: Final = 3.1
"""How many times as long operands are copied where their channels are padded as well: six kernels for both gradients of
our own 128 x 576 x 14 x 14 in 24 groups in float16 on an H200, 92 us each."""
_PARTS_OF_AN_IMAGE: Final = 8
_SUM_BYTES: Final = 4
_IN_PARTS: Final = {ElementType.BFLOAT16: (3, 5, 7), ElementType.FLOAT16: (7,)}
"""Sides of depthwise filters whose dW is summed in parts, by element type."""


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    """One convolution.

    Attributes:
        n, c, k: images, input channels, output channels (filters).
        input_size: H, W of one input channel, padding left out.
        kernel: R, S of one filter.
        stride, padding, dilation: step of the window, zeros added on each side, distance between its weights.
    """

    n: int
    c: int
    k: int
    input_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    bias: bool = True
    dilation: tuple[int, ...] = (1, 1)

    @classmethod
    def of_layer(cls, layer: Layer, batch_size: int) -> "ConvolutionShape":
        """Return the shape of a CONV layer for a batch.

        Steps of a video count as images, and so do groups of channels, but that the filters of all groups count as one.
        A kernel in time slides over images whose rows are the steps and whose columns are the pixels.
        """
        operator = layer.operator
        assert isinstance(operator, Convolution), f"{layer.name} is no convolution"
        x = layer.in_shapes[0]
        if operator.steps > 1:
            return cls(
                n=batch_size,
                c=x.channels,
                k=operator.out_channels,
                input_size=(x.steps, x.height * x.width),
                kernel=(operator.steps, 1),
                padding=(operator.steps // 2, 0),
                bias=operator.bias,
            )
        return cls(
            n=batch_size * x.steps * operator.groups,
            c=x.channels // operator.groups,
            k=operator.out_channels // operator.groups,
            input_size=(x.height, x.width),
            kernel=operator.kernel,
            stride=operator.stride,
            padding=operator.padding,
            bias=operator.bias,
        )

    @classmethod
    def of_work(cls, work: ConvolutionWork) -> "ConvolutionShape":
        """Return the shape of one group of a convolution, of a transposed one that of which it is the data gradient."""
        inner, outer = work.input_channels // work.groups, work.output_channels // work.groups
        return cls(
            n=work.batch_size,
            c=outer if work.transposed else inner,
            k=inner if work.transposed else outer,
            input_size=work.output_size if work.transposed else work.input_size,
            kernel=work.kernel,
            stride=work.stride,
            padding=work.padding,
            dilation=work.dilation,
            bias=work.bias and not work.transposed,
        )

    @property
    def is_volume(self) -> bool:
        """Whether it is of three dimensions."""
        return len(self.kernel) == _VOLUME

    @property
    def is_strided(self) -> bool:
        """Whether its window steps over pixels, in any direction."""
        return max(self.stride) > 1

    @property
    def is_plain_product(self) -> bool:
        """Whether it is a product of matrices whose rows begin at multiples of 8 elements, as it lies."""
        return self.window == 1 and not self.is_strided and self.output_pixels % 8 == 0

    @property
    def output_size(self) -> tuple[int, ...]:
        """P, Q of one output channel."""
        sizes = zip(self.input_size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d in sizes)

    @property
    def input_pixels(self) -> int:
        """H W."""
        return prod(self.input_size)

    @property
    def output_pixels(self) -> int:
        """P Q."""
        return prod(self.output_size)

    @property
    def window(self) -> int:
        """R S."""
        return prod(self.kernel)

    @property
    def x_elements(self) -> int:
        """Elements of X, and of dX."""
        return self.n * self.c * self.input_pixels

    @property
    def y_elements(self) -> int:
        """Elements of Y, and of dY."""
        return self.n * self.k * self.output_pixels

    @property
    def w_elements(self) -> int:
        """Elements of W, and of dW, without bias."""
        return self.k * self.c * self.window

    @property
    def flop(self) -> int:
        """FLOPs of any of the three phases by the direct method: 2 N K C R S P Q."""
        return 2 * self.y_elements * self.c * self.window


def convolution_phases(work: ConvolutionWork) -> tuple[Phase, ...]:
    """Return the phases of a layer that a convolution computes, in the order in which they run."""
    return tuple(_PHASES[each] for each in work.computes if each in _PHASES) or (Phase.FORWARD,)


def operand_bytes(element_type: ElementType, shape: ConvolutionShape, groups: int) -> int:
    """Return the bytes of X, Y and W of all groups."""
    return groups * element_type.nbytes * (shape.x_elements + shape.y_elements + shape.w_elements)


def loaded_channels(element_type: ElementType, shape: ConvolutionShape) -> int:
    """Return the multiple to which tensor cores want channels padded: what a load takes, of volumes a whole tile."""
    return TILE_CHANNELS if shape.is_volume else LOAD_BYTES // element_type.nbytes


def unaligned_bytes(element_type: ElementType, shape: ConvolutionShape, groups: int) -> int:
    """Return the bytes of X and Y where tensor cores need their channels padded."""
    loaded, x, y = loaded_channels(element_type, shape), shape.x_elements, shape.y_elements
    sides = ((shape.c, x), (shape.k, y))
    return groups * element_type.nbytes * sum(elements for channels, elements in sides if groups * channels % loaded)


def summed_parts_bytes(element_type: ElementType, images: int, channels: int, kernel: tuple[int, ...]) -> int:
    """Return the bytes of the parts of dW that cuDNN sums of a depthwise filter, channels last; 0 where it does not.

    One sum in float32 for each eighth of an image, of channels in whole tiles, which a second kernel adds up: to the
    byte what PyTorch 2.14 with cuDNN 9.24 takes in bfloat16 for 20 shapes on a pretended H100 and RTX 4090. Other
    kernels, which take less, compute 3 x 3 and 5 x 5 in float16, except of small maps, and on an H100 small batches of
    maps of some 16 pixels a side or fewer.
    """
    if kernel not in [(side, side) for side in _IN_PARTS.get(element_type, ())]:
        return 0
    return _SUM_BYTES * _PARTS_OF_AN_IMAGE * images * multiple(channels, TILE_CHANNELS) * prod(kernel)


def is_packed(shape: ConvolutionShape, groups: int) -> bool:
    """Whether tensor cores compute several groups at once, as those of ResNeXt."""
    comes_in_eights = groups >= _PACKED_GROUPS and groups % _PACKED_AT_ONCE == 0
    return comes_in_eights and shape.c == shape.k and TILE_CHANNELS % shape.c == 0


def multiplies_groups_last(shape: ConvolutionShape, phase: Phase, groups: int, cudnn: float) -> bool:
    """Whether tensor cores compute a convolution in groups of maps that lie as N, H, W, C."""
    if is_packed(shape, groups) or (phase.is_backward and cudnn >= GROUPED_GRADIENTS):
        return True
    if phase is Phase.BACKWARD_WEIGHTS or (phase is Phase.BACKWARD_DATA and shape.is_strided):
        return False
    return TILE_CHANNELS % shape.c == 0 or shape.c > TILE_CHANNELS


def copied_bytes(
    element_type: ElementType, shape: ConvolutionShape, phase: Phase, groups: int, cudnn: float, *, channels_last: bool
) -> float:
    """Return the bytes of operands that tensor cores want copied.

    Of maps that lie as N, C, H, W those of all that is no plain product. Of others from cuDNN 9 on those of gradients,
    group by group, so that the channels of each lie together.
    """
    if not channels_last:
        return 0 if shape.is_plain_product else operand_bytes(element_type, shape, groups)
    if groups == 1 or not phase.is_backward or is_packed(shape, groups) or cudnn < GROUPED_GRADIENTS:
        return unaligned_bytes(element_type, shape, groups)
    is_padded = shape.c % TILE_CHANNELS and TILE_CHANNELS % shape.c
    return operand_bytes(element_type, shape, groups) * (_PADDED_COPIES if is_padded else 1)


def tiled(element_type: ElementType, shape: ConvolutionShape, groups: int) -> tuple[ConvolutionShape, int]:
    """Return shape and groups as tensor cores multiply them: groups packed, channels padded."""
    if groups > 1 and is_packed(shape, groups):
        packed = replace(shape, c=TILE_CHANNELS, k=TILE_CHANNELS)
        return packed, groups * shape.c // TILE_CHANNELS
    loaded = loaded_channels(element_type, shape)
    return replace(shape, c=multiple(shape.c, loaded), k=multiple(shape.k, loaded)), groups


def multiple(number: int, of: int) -> int:
    """Return the least multiple of a number that is no less than another."""
    return -(-number // of) * of
