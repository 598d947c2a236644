"""Layers: what each computes, what its output looks like, and what its backward must read.

X, Y are the input and output feature maps of a layer, dX, dY their gradients, W its weights, dW their gradient. What
backward reads follows cuDNN and the vDNN paper (II-B): CONV and FC read X, POOL reads X and Y, an in-place ACTV reads
only Y (which is the same bytes as its X), concatenation reads nothing, the loss reads its own output.
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.shapes import MapShape

Size2 = tuple[int, int]
"""Height and width."""


class LayerKind(Enum):
    """The words of the vDNN paper for the kinds of layers."""

    CONV = "CONV"
    ACTV = "ACTV"
    POOL = "POOL"
    FC = "FC"
    CONCAT = "CONCAT"
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
    """A convolution with bias; kernel, stride and zero padding as (height, width)."""

    out_channels: int
    kernel: Size2
    stride: Size2 = (1, 1)
    padding: Size2 = (0, 0)

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y for one X."""
        return MapShape(self.out_channels, *slide((x.height, x.width), self.kernel, self.stride, self.padding))


@dataclass(frozen=True, slots=True)
class Pooling:
    """Maximum or average pooling; the last incomplete window is left out, as in Torch."""

    kernel: Size2
    stride: Size2
    padding: Size2 = (0, 0)

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
class SoftmaxLoss:
    """Softmax and cross entropy; Y holds the probabilities, which is all that backward reads."""


Operator = Convolution | Pooling | Activation | FullyConnected | Concat | SoftmaxLoss

_KINDS: dict[type, LayerKind] = {
    Convolution: LayerKind.CONV,
    Pooling: LayerKind.POOL,
    Activation: LayerKind.ACTV,
    FullyConnected: LayerKind.FC,
    Concat: LayerKind.CONCAT,
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
        """The paper's word for this layer."""
        return _KINDS[type(self.operator)]

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X."""
        return isinstance(self.operator, Activation)

    @property
    def parameters(self) -> int:
        """Number of weights, bias included."""
        match self.operator:
            case Convolution(out_channels=k, kernel=(r, s)):
                return k * self.in_shapes[0].channels * r * s + k
            case FullyConnected(out_features=out):
                return out * self.in_shapes[0].elements + out
            case _:
                return 0

    @property
    def saved_maps(self) -> tuple[int, ...]:
        """Indices of the feature maps that backward of this layer reads."""
        match self.operator:
            case Convolution() | FullyConnected():
                return self.inputs
            case Pooling():
                return (*self.inputs, self.output)
            case Activation() | SoftmaxLoss():
                return (self.output,)
            case Concat():  # pragma: no branch
                return ()

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        """The phases of one training iteration in Torch's order: forward, data gradient, weight gradient."""
        return (Phase.FORWARD, *self.backward_phases)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        """The phases of backward: the data gradient where a layer below wants it, the weight gradient where W is."""
        data = (Phase.BACKWARD_DATA,) if self.needs_input_gradient else ()
        weights = (Phase.BACKWARD_WEIGHTS,) if self.parameters else ()
        return data + weights


def slide(size: Size2, kernel: Size2, stride: Size2, padding: Size2) -> Size2:
    """Return how many windows fit, down and across; the last incomplete one is left out."""
    height = (size[0] + 2 * padding[0] - kernel[0]) // stride[0] + 1
    width = (size[1] + 2 * padding[1] - kernel[1]) // stride[1] + 1
    return height, width
