"""Layers: what each computes, what its output looks like, and what its backward must read.

X, Y are the input and output feature maps of a layer, dX, dY their gradients, W its weights, dW their gradient. What
backward reads follows cuDNN and the vDNN paper (II-B): CONV and FC read X, POOL reads X and Y, an in-place ACTV reads
only Y (which is the same bytes as its X), concatenation reads nothing, the loss reads its own output. Of what the paper
does not speak of, batch normalization reads X and the statistics of its batch, element-wise addition nothing. More
operators stand in `vdnnsim.dnn.regularization` and `vdnnsim.dnn.sequences`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.regularization import Dropout, LocalResponseNormalization
from vdnnsim.dnn.sequences import (
    Attention,
    ElementwiseProduct,
    Embedding,
    LayerNormalization,
    Linear,
    Lstm,
    SmoothActivation,
)
from vdnnsim.dnn.shapes import MapShape, slide

Size2 = tuple[int, int]
"""Height and width."""


class LayerKind(Enum):
    """The words of the vDNN paper for the kinds of layers; from BN on, which it has not, those of the field."""

    CONV = "CONV"
    ACTV = "ACTV"
    POOL = "POOL"
    FC = "FC"
    CONCAT = "CONCAT"
    LOSS = "LOSS"
    BN = "BN"
    ADD = "ADD"
    DROPOUT = "DROPOUT"
    LRN = "LRN"
    EMBEDDING = "EMBEDDING"
    LN = "LN"
    ATTENTION = "ATTENTION"
    PRODUCT = "PRODUCT"
    RNN = "RNN"


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


_KINDS: dict[type, LayerKind] = {
    Convolution: LayerKind.CONV,
    Pooling: LayerKind.POOL,
    Activation: LayerKind.ACTV,
    FullyConnected: LayerKind.FC,
    Concat: LayerKind.CONCAT,
    BatchNormalization: LayerKind.BN,
    ElementwiseAdd: LayerKind.ADD,
    SoftmaxLoss: LayerKind.LOSS,
    Dropout: LayerKind.DROPOUT,
    LocalResponseNormalization: LayerKind.LRN,
    Embedding: LayerKind.EMBEDDING,
    LayerNormalization: LayerKind.LN,
    SmoothActivation: LayerKind.ACTV,
    ElementwiseProduct: LayerKind.PRODUCT,
    Linear: LayerKind.FC,
    Attention: LayerKind.ATTENTION,
    Lstm: LayerKind.RNN,
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer at its place in a graph.

    Attributes:
        index: position in the order of execution, from 0.
        inputs: indices of the feature maps X that forward reads, in order.
        output: index of the feature map Y; equal to the input's when the layer works in place.
        needs_input_gradient: whether backward computes dX; the first layers of a network do not.
        weights_of: index of the layer whose W it works with: its own, or of one before it; None without W.
        shares_weights: whether a layer behind it works with its W, too, and begins dW in backward.
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
    weights_of: int | None
    shares_weights: bool = False

    @property
    def kind(self) -> LayerKind:
        """The word for this layer; a variant of an operator has that of the operator."""
        return next(_KINDS[each] for each in type(self.operator).__mro__ if each in _KINDS)

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X."""
        return self.operator.in_place

    @property
    def parameters(self) -> int:
        """Number of weights of its own, bias included."""
        return self.weight_elements if self.weights_of == self.index else 0

    @property
    def weight_elements(self) -> int:
        """Number of weights that it works with, bias included, whichever layer they belong to."""
        return self.operator.weights(self.in_shapes[0])

    @property
    def filter_elements(self) -> int:
        """Number of weights that one element of Y is a dot product with, the bias aside; 0 where it is none."""
        return self.operator.filter_elements(self.in_shapes[0])

    @property
    def saved_maps(self) -> tuple[int, ...]:
        """Indices of the feature maps that backward of this layer reads."""
        if not self.backward_phases:
            return ()
        return self.inputs * self.operator.saves_inputs + (self.output,) * self.operator.saves_output

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        """The phases of one training iteration in Torch's order: forward, data gradient, weight gradient."""
        return (Phase.FORWARD, *self.backward_phases)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        """The phases of backward: the data gradient where a layer below wants it, the weight gradient where W is.

        One for both where the operator has a whole backward.
        """
        if self.operator.whole_backward:
            return (Phase.BACKWARD,)
        data = (Phase.BACKWARD_DATA,) if self.needs_input_gradient else ()
        weights = () if self.weights_of is None else (Phase.BACKWARD_WEIGHTS,)
        return data + weights
