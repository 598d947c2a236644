"""The configuration of a workload, and sizes of maps, weights and statistics that follow from it."""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic, Autocast, SavingRule
from vdnnsim.dnn.step import INDEX_BYTES, WeightGradients
from vdnnsim.units import ElementType


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


@dataclass(frozen=True)
class WorkloadSizes:
    """A network with a batch size per GPU, an element type, an optimizer and a mode.

    Attributes:
        parts: equal parts of the batch, over which forward and backward run in turn; weight gradients add up.
    """

    graph: LayerGraph
    batch_size: int
    element_type: ElementType = ElementType.FLOAT32
    optimizer: Optimizer = Optimizer.NONE
    mode: Mode = Mode.TRAINING
    parts: int = 1
    weight_gradients: WeightGradients = WeightGradients.HELD

    @property
    def is_training(self) -> bool:
        return self.mode is Mode.TRAINING

    @property
    def part_size(self) -> int:
        """Images that forward and backward run over at a time."""
        return self.batch_size // self.parts

    def map_bytes(self, index: int) -> int:
        """Bytes of feature map `index` for a part of the batch; its gradient map is as large."""
        each = self.graph.maps[index]
        is_long = each.holds_indices and self.graph.saving is SavingRule.AUTOGRAD
        return each.shape.elements * self.part_size * (INDEX_BYTES if is_long else self.map_type(index).nbytes)

    def map_type(self, index: int) -> ElementType:
        """Element type of feature map `index` and of its gradient."""
        return self.graph.maps[index].element_type or self.element_type

    def arithmetic_type(self, layer: Layer, phase: Phase) -> ElementType:
        """Element type of a phase of a layer: the wider type for a cast, that of the weights for an update."""
        operator, half = layer.operator, self.graph.autocast
        if half and operator.autocast is Autocast.HALF and phase is not Phase.UPDATE:
            return half
        types = [self.map_type(index) for index in (*layer.inputs, layer.output)]
        widest = self.element_type if phase is Phase.UPDATE else max(types, key=lambda each: each.nbytes)
        is_product = operator.arithmetic is Arithmetic.PRODUCT and phase is not Phase.UPDATE
        return ElementType.FLOAT32 if widest is ElementType.TF32 and not is_product else widest

    def narrow_weight_bytes(self, layer: Layer) -> int:
        """Bytes of the narrow copy of W, biases aside, that autograd saves under autocast; 0 if it saves W."""
        half, work = self.graph.autocast, layer.work
        return (work.weights - work.biases) * half.nbytes if half and layer.operator.autocast is Autocast.HALF else 0

    def weight_bytes(self, layer: Layer) -> int:
        """Bytes of the W that a layer uses, its own or another's; dW is as large."""
        return layer.work.weights * self.element_type.nbytes

    def statistics_bytes(self, layer: Layer) -> int:
        """Bytes of statistics of a layer; in inference of those of the batch alone."""
        statistics = layer.work.statistics
        if statistics is None or not (self.is_training or statistics.of_batch):
            return 0
        count = 1 if statistics.of_batch else self.part_size
        return count * statistics.elements * (statistics.element_bytes or self.map_type(layer.output).nbytes)

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        if not self.is_training:
            return (Phase.FORWARD,)
        update = (Phase.UPDATE,) if layer.parameters and self.optimizer is not Optimizer.NONE else ()
        return layer.training_phases + update

    @property
    def updated_layers(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.graph.layers if Phase.UPDATE in self.phases(layer))

    def accumulates(self, layer: Layer, index: int) -> bool:
        """Whether backward of `layer` adds to the gradient of map `index` that a later layer has begun."""
        return not layer.in_place and self.graph.maps[index].consumers[-1] != layer.index
