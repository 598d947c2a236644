"""Kernel tables: what a machine's kernels were measured to cost, one row per shape and algorithm.

A table is a CSV file beside the profile of its machine (`vdnnsim.cost.kernel_file`). Layers of equal shape share their
rows, in whichever network they stand.
"""

from dataclasses import dataclass
from typing import Final

from vdnnsim.dnn.layers import (
    Activation,
    BatchNormalization,
    Concat,
    Convolution,
    ElementwiseAdd,
    FullyConnected,
    Layer,
    Phase,
    Pooling,
    Size2,
    SoftmaxLoss,
)
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.server import Origin

WRITTEN, ADDED_TO, NOT_COMPUTED = "w", "a", "-"
GRADIENT_LETTERS: Final = frozenset((WRITTEN, ADDED_TO, NOT_COMPUTED))
"""What a backward does to the gradient of an input."""

KINDS: Final = (
    *("conv", "fc", "max_pool", "average_pool", "relu", "batch_norm", "add", "concat", "softmax_loss"),
    *(optimizer.value for optimizer in Optimizer if optimizer is not Optimizer.NONE),
)
"""The operators without their parameters."""


@dataclass(frozen=True, slots=True)
class KernelShape:
    """All that decides what a kernel costs on a given machine, but for its algorithm.

    Attributes:
        operator: the layer's operator with its parameters, `conv 64 3x3 stride 1x1 padding 1x1 bias`; of an update, the
            optimizer.
        batch_size: images; 1 for an update, which touches none.
        inputs: shapes of the X of one image; of an update, its weights as one vector.
        gradients: of a backward that computes dX, a letter for each input: `w` its gradient is written, `a` added to
            what stands there, `-` not computed; empty in other phases.
    """

    operator: str
    phase: Phase
    batch_size: int
    element_type: ElementType
    inputs: tuple[MapShape, ...]
    gradients: str

    @classmethod
    def of(cls, workload: Workload, layer: Layer, phase: Phase) -> "KernelShape":
        """Return the shape of a phase of a layer."""
        element_type = workload.element_type
        if phase is Phase.UPDATE:
            return cls(workload.optimizer.value, phase, 1, element_type, (MapShape(layer.parameters),), "")
        gradients = _gradients(workload, layer) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else ""
        return cls(_operator(layer), phase, workload.batch_size, element_type, layer.in_shapes, gradients)

    @property
    def kind(self) -> str:
        """The operator without its parameters, `conv`; of an update, `sgd`."""
        return self.operator.partition(" ")[0]

    @property
    def inputs_text(self) -> str:
        """The inputs as one word: `64x28x28+128x28x28`."""
        return "+".join(map(str, self.inputs))


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One algorithm for one shape, as measured.

    Attributes:
        family: what kind of algorithm it is; empty where unknown.
        seconds: the median; None where the measurement failed, and `note` says why.
        spread: (third quartile - first quartile) / median of the runs.
        count: number of timed runs; 0 for what was not timed.
        workspace_bytes: device memory needed while it runs, beyond its operands.
        flop, nbytes: FLOPs by the direct method and compulsory DRAM traffic, as the workload counts them.
        note: empty, or what a reader should know: `out of memory`.
    """

    shape: KernelShape
    algorithm: str
    family: str
    seconds: float | None
    spread: float
    count: int
    workspace_bytes: int
    flop: int
    nbytes: int
    origin: Origin
    note: str = ""


def _operator(layer: Layer) -> str:
    match layer.operator:
        case Convolution(out_channels=channels, kernel=kernel, stride=stride, padding=padding, bias=bias):
            return f"conv {channels} {_window(kernel, stride, padding)}{' bias' if bias else ''}"
        case Pooling(kernel=kernel, stride=stride, padding=padding, average=average):
            return f"{'average_pool' if average else 'max_pool'} {_window(kernel, stride, padding)}"
        case FullyConnected(out_features=features):
            return f"fc {features} bias"
        case Activation():
            return "relu"
        case BatchNormalization():
            return "batch_norm"
        case ElementwiseAdd():
            return "add"
        case Concat():
            return "concat"
        case SoftmaxLoss():  # pragma: no branch
            return "softmax_loss"


def _window(kernel: Size2, stride: Size2, padding: Size2) -> str:
    return f"{_size(kernel)} stride {_size(stride)} padding {_size(padding)}"


def _size(size: Size2) -> str:
    return f"{size[0]}x{size[1]}"


def _gradients(workload: Workload, layer: Layer) -> str:
    maps = workload.graph.maps
    return "".join(
        NOT_COMPUTED if not maps[index].needs_gradient else ADDED_TO if workload.accumulates(layer, index) else WRITTEN
        for index in layer.inputs
    )
