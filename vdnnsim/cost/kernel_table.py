"""Kernel tables: what a machine's kernels were measured to cost, one row per shape and algorithm.

A table is a CSV file beside the profile of its machine (`vdnnsim.cost.kernel_file`). Layers of equal shape share their
rows, in whichever network they stand.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.cost.operator_text import OPERATOR_NAMES, operator_text, read_operator
from vdnnsim.dnn.elementwise import Concat
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType

WRITTEN, ADDED_TO, NOT_COMPUTED = "w", "a", "-"
GRADIENT_LETTERS: Final = frozenset((WRITTEN, ADDED_TO, NOT_COMPUTED))
"""What a backward does to the gradient of an input."""

OPTIMIZERS: Final = tuple(each.value for each in Optimizer if each is not Optimizer.NONE)
KINDS: Final = (*OPERATOR_NAMES, *OPTIMIZERS)
"""The operators without their parameters."""

TORCH_OPERATOR: Final = re.compile(r"torch:[A-Za-z_][A-Za-z0-9_:]{0,99}")
"""An operator that PyTorch has and no layer of ours is, `torch:threshold_backward`: timed in whichever phase by what it
moves. Its inputs are its tensors as vectors, the batch within."""


def torch_operator(name: str) -> str:
    """Return an operator of PyTorch as tables have it, `torch:add` of `aten.add_.Tensor` and of `aten::add`."""
    _, colons, rest = name.rpartition("::")
    words = rest.split(".")
    word = words[1] if not colons and len(words) > 1 and words[1] else words[0]
    return f"torch:{word.rstrip('_') or word}"


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
        # A table of float32 says of itself whether products took TF32.
        computed = workload.arithmetic_type(layer, phase)
        element_type = ElementType.FLOAT32 if computed is ElementType.TF32 else computed
        if phase is Phase.UPDATE:
            return cls(workload.optimizer.value, phase, 1, element_type, (MapShape(layer.parameters),), "")
        gradients = _gradients(workload, layer) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else ""
        return cls(operator_text(layer.operator), phase, workload.part_size, element_type, layer.in_shapes, gradients)

    @property
    def output(self) -> MapShape:
        """The shape of Y of one image; of an update, its weights as one vector."""
        operator, first = read_operator(self.operator), self.inputs[0]
        match operator:
            case None:
                return first
            case Concat():
                return replace(first, channels=sum(each.channels for each in self.inputs))
            case _:
                # Whoever wrote a table may have given an operator more inputs than it takes.
                return operator.outputs((first,))[0]

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


def _gradients(workload: Workload, layer: Layer) -> str:
    maps = workload.graph.maps
    return "".join(
        NOT_COMPUTED if not maps[index].needs_gradient else ADDED_TO if workload.accumulates(layer, index) else WRITTEN
        for index in layer.inputs
    )
