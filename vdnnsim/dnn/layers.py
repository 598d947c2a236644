"""Layers of a graph, their kinds and phases.

X, Y are the input and output feature maps of a layer, dX, dY their gradients, W its weights, dW their gradient. Layers
are a view of a step (`vdnnsim.dnn.step`), on which the policies of the papers work: the operations of one operator.
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.operator import Arithmetic, Operator, Work
from vdnnsim.dnn.shapes import MapShape, Shapes


class LayerKind(Enum):
    """Kinds of layers: to LOSS as the vDNN paper names them, then common names; `OTHER` is for captured models."""

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
    CAST = "CAST"
    OTHER = "OTHER"


class Phase(Enum):
    """Phase of an iteration, of which a layer has one kernel.

    Data and weight gradient are separate phases that a policy may order; BACKWARD is for layers whose one kernel
    computes dX and dW together.
    """

    FORWARD = "forward"
    BACKWARD_DATA = "backward data"
    BACKWARD_WEIGHTS = "backward weights"
    BACKWARD = "backward"
    UPDATE = "update"

    # Faster than the hash of an enum, which hashes its name; plans look up by phase millions of times.
    __hash__ = object.__hash__

    @property
    def is_backward(self) -> bool:
        """Whether this is backward, or one of its two halves."""
        return self in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.BACKWARD)


class Stage(Enum):
    """The two parts of a network for image classification (vDNN paper, II-A)."""

    FEATURES = "feature extraction"
    CLASSIFIER = "classification"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer at its place in a graph.

    Attributes:
        index: position in the order of execution, from 0.
        inputs: indices of the feature maps X that forward reads, in order.
        outputs: indices of the feature maps Y; those of the inputs when the layer works in place.
        work: of one image, by the saving rule of the graph.
        needs_input_gradient: whether backward computes dX; the first layers of a network do not.
        weights_of: index of the layer whose W it uses: its own, or of one before it; None without W.
        shares_weights: whether a later layer uses its W, too, and begins dW in backward.
    """

    index: int
    name: str
    operator: Operator
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    in_shapes: Shapes
    out_shapes: Shapes
    work: Work
    stage: Stage
    needs_input_gradient: bool
    weights_of: int | None
    shares_weights: bool = False

    @property
    def kind(self) -> LayerKind:
        return LayerKind(self.operator.kind)

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X."""
        return self.operator.in_place

    @property
    def output(self) -> int:
        """The feature map Y, of several the first."""
        return self.outputs[0]

    @property
    def out_shape(self) -> MapShape:
        """The shape of Y, of several the first."""
        return self.out_shapes[0]

    @property
    def parameters(self) -> int:
        """Number of weights of its own, bias included."""
        return self.work.weights if self.weights_of == self.index else 0

    @property
    def saved_maps(self) -> tuple[int, ...]:
        """Indices of the feature maps that backward of this layer reads."""
        if not self.backward_phases:
            return ()
        work = self.work
        return (*(self.inputs[i] for i in work.saved_inputs), *(self.outputs[i] for i in work.saved_outputs))

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        """The phases of one training iteration in Torch's order: forward, data gradient, weight gradient."""
        return (Phase.FORWARD, *self.backward_phases)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        """Phases of backward: data gradient if the input needs one, weight gradient if it has W; or one for both."""
        if self.operator.whole_backward:
            return (Phase.BACKWARD,)
        data = (Phase.BACKWARD_DATA,) if self.needs_input_gradient else ()
        weights = () if self.weights_of is None else (Phase.BACKWARD_WEIGHTS,)
        return data + weights


@dataclass(frozen=True, kw_only=True)
class CapturedOperator(Operator):
    """The main operator of a captured layer; `name` is as the framework calls it, `convolution`."""

    # Class variables of other operators are fields here.
    name: str  # type: ignore[misc]
    kind: str  # type: ignore[misc]
    arithmetic: Arithmetic  # type: ignore[misc]
    whole_backward: bool  # type: ignore[misc]
    is_loss: bool  # type: ignore[misc]
    in_place: bool  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class CapturedLayer(Layer):
    """A layer of a captured model.

    Attributes:
        phases: those that it has, in order; UPDATE alone for the layer of the optimizer.
        saved: indices of the feature maps that its backward reads; recomputation may read maps of other layers.
    """

    phases: tuple[Phase, ...] = ()
    saved: tuple[int, ...] = ()

    @property
    def saved_maps(self) -> tuple[int, ...]:
        return self.saved

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        return tuple(phase for phase in self.phases if phase is not Phase.UPDATE)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        return tuple(phase for phase in self.phases if phase.is_backward)
