"""A workload: a network with a batch size, an element type and what is done with it; and the work of each kernel.

Bytes moved are the compulsory traffic of a phase: each operand read once, each result written once; where several
layers read one map, all but the first to run in backward add to its gradient and so read it too. Batch normalization
must know the sums over a channel before it can compute the first of its values, and a channel of a batch is larger than
a cache: forward reads X twice, backward X and dY. An embedding reads of its table the rows that it looks up. FLOPs
count a multiply and an add as two. The weight update follows its optimizer: SGD reads W and dW and writes W; momentum
reads and writes one state more, Adam two. States have the element type of the weights.
"""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.convolutional import (
    BatchNormalization,
    Concat,
    Convolution,
    ElementwiseAdd,
    FullyConnected,
    Pooling,
    SoftmaxLoss,
)
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.sequences import Embedding
from vdnnsim.element_type import ElementType

_FLOAT32_BYTES = 4


class Mode(Enum):
    """Training is forward, backward and update; inference only forward (vDNN paper, Fig. 2)."""

    TRAINING = "training"
    INFERENCE = "inference"


class Optimizer(Enum):
    """How weights are updated; `none` leaves the update out, as the papers do."""

    NONE = "none"
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @property
    def states(self) -> int:
        """Values kept per weight between iterations."""
        return {Optimizer.MOMENTUM: 1, Optimizer.ADAM: 2}.get(self, 0)

    @property
    def flop_per_weight(self) -> int:
        """FLOPs to update one weight: w -= a g; v = m v + g first; or Adam's two moments, root and quotient."""
        return {Optimizer.SGD: 2, Optimizer.MOMENTUM: 4, Optimizer.ADAM: 12}.get(self, 0)


@dataclass(frozen=True, slots=True)
class Workload:
    """What one GPU does in one iteration; batch size is per GPU."""

    graph: LayerGraph
    batch_size: int
    element_type: ElementType = ElementType.FLOAT32
    optimizer: Optimizer = Optimizer.NONE
    mode: Mode = Mode.TRAINING

    def map_bytes(self, index: int) -> int:
        """Bytes of feature map `index` for the whole batch; its gradient map is as large."""
        return self.graph.maps[index].shape.elements * self.batch_size * self.element_type.nbytes

    def weight_bytes(self, layer: Layer) -> int:
        """Bytes of the W that a layer works with, its own or another's; dW is as large."""
        return layer.weight_elements * self.element_type.nbytes

    def statistics_bytes(self, layer: Layer) -> int:
        """Bytes that backward of a layer reads and that are no map.

        Of a batch normalization the mean and the inverse deviation of each channel, in float32 whatever the element
        type; of others what they state for each image, which only training keeps.
        """
        if isinstance(layer.operator, BatchNormalization):
            return 2 * _FLOAT32_BYTES * layer.out_shape.channels
        if self.mode is Mode.INFERENCE:
            return 0
        return self.batch_size * layer.operator.statistics_bytes(layer.in_shapes[0], self.element_type.nbytes)

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        """The phases of a layer that run in this workload, in the order in which they run."""
        if self.mode is Mode.INFERENCE:
            return (Phase.FORWARD,)
        update = (Phase.UPDATE,) if layer.parameters and self.optimizer is not Optimizer.NONE else ()
        return layer.training_phases + update

    @property
    def updated_layers(self) -> tuple[Layer, ...]:
        """The layers whose weights are updated at the end of an iteration."""
        return tuple(layer for layer in self.graph.layers if Phase.UPDATE in self.phases(layer))

    def flop(self, layer: Layer, phase: Phase) -> int:
        """FLOPs of one phase of a layer by the direct method, for the whole batch."""
        if phase is Phase.UPDATE:
            return self.optimizer.flop_per_weight * layer.parameters
        out_elements = layer.out_shape.elements * self.batch_size
        match layer.operator:
            case Convolution() | FullyConnected():
                # Each output is a dot product over one filter; the three phases are the same products regrouped.
                return 2 * out_elements * layer.filter_elements
            case Pooling(kernel=(height, width), steps=steps):
                return out_elements * height * width * steps
            case SoftmaxLoss():
                return 5 * out_elements
            case BatchNormalization():
                # Forward sums x and x x, then scales and shifts. Backward sums dy and dy x; dx is a dy + b x + c.
                return (5 if phase is Phase.FORWARD else 7) * out_elements
            case ElementwiseAdd():
                return out_elements if phase is Phase.FORWARD else 0
            case Concat():
                return 0
            case operator:
                x = layer.in_shapes[0]
                flop = operator.forward_flop(x) if phase is Phase.FORWARD else operator.backward_flop(x)
                return flop * self.batch_size

    def bytes_moved(self, layer: Layer, phase: Phase) -> int:
        """Compulsory DRAM traffic of one phase of a layer."""
        weights = self.weight_bytes(layer)
        if phase is Phase.UPDATE:
            return (3 + 2 * self.optimizer.states) * weights
        x = sum(self.map_bytes(index) for index in layer.inputs)
        y = self.map_bytes(layer.output)
        dy = y if self.graph.maps[layer.output].needs_gradient else 0
        statistics = self.statistics_bytes(layer)
        passes = 2 if layer.kind is LayerKind.BN else 1
        saved = sum(self.map_bytes(index) for index in layer.saved_maps)
        match phase:
            case Phase.FORWARD:
                return x * passes + self._rows_bytes(layer) + y + statistics
            case Phase.BACKWARD_WEIGHTS:
                return x + y + (2 * self._rows_bytes(layer) if layer.shares_weights else weights)
            case Phase.BACKWARD_DATA:
                read = saved if layer.weights_of is None else weights
                return read + dy + statistics + self._input_gradient_bytes(layer)
            case Phase.BACKWARD:  # pragma: no branch
                return passes * (saved + dy) + 2 * weights + statistics + self._input_gradient_bytes(layer)

    def _rows_bytes(self, layer: Layer) -> int:
        """Bytes of W that forward reads."""
        if isinstance(layer.operator, Embedding):
            rows = layer.operator.rows(layer.in_shapes[0], self.batch_size)
            return rows * layer.operator.features * self.element_type.nbytes
        return self.weight_bytes(layer)

    def _input_gradient_bytes(self, layer: Layer) -> int:
        """Bytes of dX written, and read where another layer has begun it."""
        outgoing = [index for index in layer.inputs if self.graph.maps[index].needs_gradient]
        return sum(self.map_bytes(index) * (1 + self.accumulates(layer, index)) for index in outgoing)

    def accumulates(self, layer: Layer, index: int) -> bool:
        """Whether backward of `layer` adds to the gradient of map `index` that a later layer has begun."""
        return not layer.in_place and self.graph.maps[index].consumers[-1] != layer.index
