"""Layers: what each computes, what its output looks like, and what its backward must read.

X, Y are the input and output feature maps of a layer, dX, dY their gradients, W its weights, dW their gradient. What
backward reads follows cuDNN and the vDNN paper (II-B): CONV and FC read X, POOL reads X and Y, an in-place ACTV reads
only Y (which is the same bytes as its X), concatenation reads nothing, the loss reads its own output. Of what the paper
does not speak of, batch normalization reads X and the statistics of its batch, element-wise addition nothing.
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.shapes import MapShape

Size2 = tuple[int, int]
"""Height and width."""


class LayerKind(Enum):
    """The words of the vDNN paper for the kinds of layers; BN and ADD, which it has not, are those of the field."""

    CONV = "CONV"
    ACTV = "ACTV"
    POOL = "POOL"
    FC = "FC"
    CONCAT = "CONCAT"
    BN = "BN"
    ADD = "ADD"
    LOSS = "LOSS"


class Phase(Enum):
    """One kernel's share of an iteration.

    Backward comes in two, for a policy may order them; BACKWARD is the whole of it, for layers whose one kernel
    computes dX and dW together.
    """

    FORWARD = "forward"
    BACKWARD_DATA = "backward data"
    BACKWARD_WEIGHTS = "backward weights"
    BACKWARD = "backward"
    UPDATE = "update"

    @property
    def is_backward(self) -> bool:
        """Whether this is backward, or one of its two halves."""
        return self in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.BACKWARD)


class Stage(Enum):
    """The two parts of a network for image classification (vDNN paper, II-A)."""

    FEATURES = "feature extraction"
    CLASSIFIER = "classification"


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution, with bias unless told otherwise; kernel, stride and zero padding as (height, width)."""

    out_channels: int
    kernel: Size2
    stride: Size2 = (1, 1)
    padding: Size2 = (0, 0)
    bias: bool = True

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y for one X."""
        return MapShape(self.out_channels, *slide((x.height, x.width), self.kernel, self.stride, self.padding))


@dataclass(frozen=True, slots=True)
class Pooling:
    """Maximum pooling, or average pooling if `average`; the last incomplete window is left out, as in Torch.

    Backward of an average needs neither X nor Y, but cuDNN's call takes both and the vDNN paper keeps both for every
    POOL layer; so they count as saved here as well.
    """

    kernel: Size2
    stride: Size2
    padding: Size2 = (0, 0)
    average: bool = False

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y for one X."""
        return MapShape(x.channels, *slide((x.height, x.width), self.kernel, self.stride, self.padding))


@dataclass(frozen=True, slots=True)
class Activation:
    """A rectifier, in place: Y lies over X and dX over dY (vDNN paper, footnote 1)."""


@dataclass(frozen=True, slots=True)
class FullyConnected:
    """A matrix product with bias over all elements of X."""

    out_features: int


@dataclass(frozen=True, slots=True)
class Concat:
    """Joins its inputs along the channels by copying them, as Torch's Concat does."""


@dataclass(frozen=True, slots=True)
class BatchNormalization:
    """Normalizes each channel over the batch; W is gamma, then beta, one of each per channel.

    Forward keeps the mean and the inverse deviation of each channel for backward, the statistics. Backward is one
    kernel, for dX needs the same sums over a channel as dW. Source: Ioffe and Szegedy, Batch Normalization, ICML 2015.
    """


@dataclass(frozen=True, slots=True)
class ElementwiseAdd:
    """Y = A + B, into a map of its own: the shortcut of a residual network (He et al., CVPR 2016)."""


@dataclass(frozen=True, slots=True)
class SoftmaxLoss:
    """Softmax and cross entropy; Y holds the probabilities, which is all that backward reads."""


Operator = (
    Convolution | Pooling | Activation | FullyConnected | Concat | BatchNormalization | ElementwiseAdd | SoftmaxLoss
)

_KINDS: dict[type, LayerKind] = {
    Convolution: LayerKind.CONV,
    Pooling: LayerKind.POOL,
    Activation: LayerKind.ACTV,
    FullyConnected: LayerKind.FC,
    Concat: LayerKind.CONCAT,
    BatchNormalization: LayerKind.BN,
    ElementwiseAdd: LayerKind.ADD,
    SoftmaxLoss: LayerKind.LOSS,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer at its place in a graph.

    Attributes:
        index: position in the order of execution, from 0.
        inputs: indices of the feature maps X that forward reads, in order.
        output: index of the feature map Y; equal to the input's when the layer works in place.
        needs_input_gradient: whether backward computes dX; the first layers of a network do not.
    """

    index: int
    name: str
    operator: Operator
    inputs: tuple[int, ...]
    output: int
    in_shapes: tuple[MapShape, ...]
    out_shape: MapShape
    stage: Stage
    needs_input_gradient: bool

    @property
    def kind(self) -> LayerKind:
        """The word for this layer."""
        return _KINDS[type(self.operator)]

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X."""
        return isinstance(self.operator, Activation)

    @property
    def parameters(self) -> int:
        """Number of weights, bias included."""
        match self.operator:
            case Convolution(out_channels=k, bias=bias):
                return k * (self.filter_elements + bias)
            case FullyConnected(out_features=out):
                return out * (self.filter_elements + 1)
            case BatchNormalization():
                return 2 * self.out_shape.channels
            case _:
                return 0

    @property
    def filter_elements(self) -> int:
        """Number of weights that one element of Y is a dot product with, the bias aside; 0 where it is none."""
        x = self.in_shapes[0]
        match self.operator:
            case Convolution(kernel=(r, s)):
                return x.channels * r * s
            case FullyConnected():
                return x.elements
            case _:
                return 0

    @property
    def statistics_bytes(self) -> int:
        """Bytes of the mean and the inverse deviation of each channel, float32 whatever the element type; or 0."""
        return 2 * 4 * self.out_shape.channels if isinstance(self.operator, BatchNormalization) else 0

    @property
    def saved_maps(self) -> tuple[int, ...]:
        """Indices of the feature maps that backward of this layer reads."""
        if not self.backward_phases:
            return ()
        match self.operator:
            case Convolution() | FullyConnected() | BatchNormalization():
                return self.inputs
            case Pooling():
                return (*self.inputs, self.output)
            case Activation() | SoftmaxLoss():
                return (self.output,)
            case Concat() | ElementwiseAdd():  # pragma: no branch
                return ()

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        """The phases of one training iteration in Torch's order: forward, data gradient, weight gradient."""
        return (Phase.FORWARD, *self.backward_phases)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        """The phases of backward: the data gradient where a layer below wants it, the weight gradient where W is.

        Batch normalization has one for both.
        """
        if isinstance(self.operator, BatchNormalization):
            return (Phase.BACKWARD,)
        data = (Phase.BACKWARD_DATA,) if self.needs_input_gradient else ()
        weights = (Phase.BACKWARD_WEIGHTS,) if self.parameters else ()
        return data + weights


def slide(size: Size2, kernel: Size2, stride: Size2, padding: Size2) -> Size2:
    """Return how many windows fit, down and across; the last incomplete one is left out."""
    height = (size[0] + 2 * padding[0] - kernel[0]) // stride[0] + 1
    width = (size[1] + 2 * padding[1] - kernel[1]) // stride[1] + 1
    return height, width
