"""Operators of convolutional networks: what each makes of X, and what its backward must read.

What backward reads follows cuDNN and the vDNN paper (II-B): CONV and FC read X, POOL reads X and Y, an in-place ACTV
reads only Y (which is the same bytes as its X), concatenation reads nothing, the loss reads its own output. Of what the
paper does not speak of, batch normalization reads X and the statistics of its batch, element-wise addition nothing.
"""

from dataclasses import dataclass
from typing import ClassVar

from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.shapes import MapShape, Size2, slide


@dataclass(frozen=True, slots=True)
class Convolution(Operator):
    """A convolution, with bias unless told otherwise; kernel, stride and zero padding as (height, width).

    Attributes:
        groups: into which input and output channels are divided, each filter seeing those of its own.
        steps: of the kernel in time, of which it leaves as many as there were; a kernel of several is of one pixel.
    """

    out_channels: int
    kernel: Size2
    stride: Size2 = (1, 1)
    padding: Size2 = (0, 0)
    bias: bool = True
    groups: int = 1
    steps: int = 1

    saves_inputs: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y for one X."""
        assert self.steps == 1 or self.kernel == (1, 1), f"{self} has a kernel in time and space"
        sizes = slide((x.height, x.width), self.kernel, self.stride, self.padding)
        return MapShape(self.out_channels, *sizes, steps=x.steps)

    def weights(self, x: MapShape) -> int:
        """A filter, and a bias if there is one, for each output channel."""
        return self.out_channels * (self.filter_elements(x) + self.bias)

    def filter_elements(self, x: MapShape) -> int:
        """C R S of its group, for each step of the kernel."""
        return x.channels // self.groups * self.steps * self.kernel[0] * self.kernel[1]


@dataclass(frozen=True, slots=True)
class Pooling(Operator):
    """Maximum pooling, or average pooling if `average`; the last incomplete window is left out, as in Torch.

    Backward of an average needs neither X nor Y, but cuDNN's call takes both and the vDNN paper keeps both for every
    POOL layer; so they count as saved here as well.

    Attributes:
        steps: of the window in time, and from one window to the next.
    """

    kernel: Size2
    stride: Size2
    padding: Size2 = (0, 0)
    average: bool = False
    steps: int = 1

    saves_inputs: ClassVar[bool] = True
    saves_output: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y for one X."""
        sizes = slide((x.height, x.width), self.kernel, self.stride, self.padding)
        return MapShape(x.channels, *sizes, steps=x.steps // self.steps)


@dataclass(frozen=True, slots=True)
class Activation(Operator):
    """A rectifier, in place: Y lies over X and dX over dY (vDNN paper, footnote 1)."""

    saves_output: ClassVar[bool] = True

    @property
    def in_place(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class FullyConnected(Operator):
    """A matrix product with bias over all elements of X."""

    out_features: int

    saves_inputs: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:  # noqa: ARG002 - whatever X
        """A vector."""
        return MapShape(self.out_features)

    def weights(self, x: MapShape) -> int:
        """A row and a bias for each feature."""
        return self.out_features * (x.elements + 1)

    def filter_elements(self, x: MapShape) -> int:
        """All of X."""
        return x.elements


@dataclass(frozen=True, slots=True)
class Concat(Operator):
    """Joins its inputs along the channels by copying them, as Torch's Concat does."""


@dataclass(frozen=True, slots=True)
class BatchNormalization(Operator):
    """Normalizes each channel over the batch; W is gamma, then beta, one of each per channel.

    Forward keeps the mean and the inverse deviation of each channel for backward, the statistics. Backward is one
    kernel, for dX needs the same sums over a channel as dW. Source: Ioffe and Szegedy, Batch Normalization, ICML 2015.
    """

    saves_inputs: ClassVar[bool] = True
    whole_backward: ClassVar[bool] = True

    def weights(self, x: MapShape) -> int:
        """Gamma and beta."""
        return 2 * x.channels


@dataclass(frozen=True, slots=True)
class ElementwiseAdd(Operator):
    """Y = A + B, into a map of its own: the shortcut of a residual network (He et al., CVPR 2016)."""


@dataclass(frozen=True, slots=True)
class SoftmaxLoss(Operator):
    """Softmax and cross entropy; Y holds the probabilities, which is all that backward reads."""

    saves_output: ClassVar[bool] = True
