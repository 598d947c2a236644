"""Layers: operators at their places in a graph, the kinds that they are of, and the phases in which they run.

X, Y are the input and output feature maps of a layer, dX, dY their gradients, W its weights, dW their gradient. What
the operators compute stands in `vdnnsim.dnn.convolutional`, `vdnnsim.dnn.regularization` and `vdnnsim.dnn.sequences`.
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn import convolutional, regularization, sequences
from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.shapes import MapShape


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


_KINDS: dict[type, LayerKind] = {
    convolutional.Convolution: LayerKind.CONV,
    convolutional.Pooling: LayerKind.POOL,
    convolutional.Activation: LayerKind.ACTV,
    convolutional.FullyConnected: LayerKind.FC,
    convolutional.Concat: LayerKind.CONCAT,
    convolutional.BatchNormalization: LayerKind.BN,
    convolutional.ElementwiseAdd: LayerKind.ADD,
    convolutional.SoftmaxLoss: LayerKind.LOSS,
    regularization.Dropout: LayerKind.DROPOUT,
    regularization.LocalResponseNormalization: LayerKind.LRN,
    sequences.Embedding: LayerKind.EMBEDDING,
    sequences.LayerNormalization: LayerKind.LN,
    sequences.SmoothActivation: LayerKind.ACTV,
    sequences.ElementwiseProduct: LayerKind.PRODUCT,
    sequences.Linear: LayerKind.FC,
    sequences.Attention: LayerKind.ATTENTION,
    sequences.Lstm: LayerKind.RNN,
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
