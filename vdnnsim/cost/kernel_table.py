"""Kernel tables: what a machine's kernels were measured to cost, one row per shape and algorithm.

A table is a CSV file beside the profile of its machine (`vdnnsim.cost.kernel_file`). Layers of equal shape share their
rows, in whichever network they stand.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    Operator,
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

OPTIMIZERS: Final = tuple(each.value for each in Optimizer if each is not Optimizer.NONE)
KINDS: Final = (
    *("conv", "fc", "max_pool", "average_pool", "relu", "batch_norm", "add", "concat", "softmax_loss"),
    *OPTIMIZERS,
)
"""The operators without their parameters."""

_PLAIN: Final[Mapping[str, Operator]] = {
    "relu": Activation(),
    "batch_norm": BatchNormalization(),
    "add": ElementwiseAdd(),
    "concat": Concat(),
    "softmax_loss": SoftmaxLoss(),
}
_SIZE = r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})"
_WINDOW = rf"{_SIZE} stride {_SIZE} padding ([0-9]{{1,9}})x([0-9]{{1,9}})"
_CONVOLUTION = re.compile(rf"conv ([1-9][0-9]{{0,8}}) {_WINDOW}( bias)?")
_POOLING = re.compile(rf"(max|average)_pool {_WINDOW}")
_FULLY_CONNECTED = re.compile(r"fc ([1-9][0-9]{0,8}) bias")


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
        return cls(operator_text(layer.operator), phase, workload.batch_size, element_type, layer.in_shapes, gradients)

    @property
    def output(self) -> MapShape:
        """The shape of Y of one image; of an update, its weights as one vector."""
        operator, first = read_operator(self.operator), self.inputs[0]
        match operator:
            case Convolution() | Pooling():
                return operator.output_shape(first)
            case FullyConnected(out_features=features):
                return MapShape(features)
            case Concat():
                return MapShape(sum(each.channels for each in self.inputs), first.height, first.width)
            case _:
                return first

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


def describe_kernels(rows: Sequence[KernelRow]) -> str:
    """Return what a table holds by the origins of its times: `300 measured, 10 without a time`."""
    found = Counter("without a time" if row.seconds is None else row.origin.value for row in rows)
    return ", ".join(f"{count} {what}" for what, count in found.most_common())


def operator_text(operator: Operator) -> str:
    """Return an operator with its parameters on one line."""
    match operator:
        case Convolution(out_channels=channels, kernel=kernel, stride=stride, padding=padding, bias=bias):
            return f"conv {channels} {_window(kernel, stride, padding)}{' bias' if bias else ''}"
        case Pooling(kernel=kernel, stride=stride, padding=padding, average=average):
            return f"{'average' if average else 'max'}_pool {_window(kernel, stride, padding)}"
        case FullyConnected(out_features=features):
            return f"fc {features} bias"
        case _:
            return next(text for text, plain in _PLAIN.items() if plain == operator)


def read_operator(text: str) -> Operator | None:
    """Return the operator that `operator_text` writes so; None if there is none, as of an optimizer."""
    if found := _CONVOLUTION.fullmatch(text):
        channels, r, s, down, across, top, left = map(int, found.groups()[:7])
        return Convolution(channels, (r, s), (down, across), (top, left), bias=found[8] is not None)
    if found := _POOLING.fullmatch(text):
        r, s, down, across, top, left = map(int, found.groups()[1:])
        return Pooling((r, s), (down, across), (top, left), average=found[1] == "average")
    if found := _FULLY_CONNECTED.fullmatch(text):
        return FullyConnected(int(found[1]))
    return _PLAIN.get(text)


def _window(kernel: Size2, stride: Size2, padding: Size2) -> str:
    sizes = (f"{height}x{width}" for height, width in (kernel, stride, padding))
    return "{} stride {} padding {}".format(*sizes)


def _gradients(workload: Workload, layer: Layer) -> str:
    maps = workload.graph.maps
    return "".join(
        NOT_COMPUTED if not maps[index].needs_gradient else ADDED_TO if workload.accumulates(layer, index) else WRITTEN
        for index in layer.inputs
    )
