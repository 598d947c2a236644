"""Problems and plans of cuDNN for one phase of one convolution as plain data; which plans are admitted, their families.

Needs neither cuDNN nor PyTorch; `calibration.kernels.cudnn_graphs` finds the plans.

Plans are admitted as in PyTorch (aten/src/ATen/native/cudnn/Conv_v8.cpp, `filterEngineConfigs`): float32 is never
rounded to a 16-bit type before it is multiplied, tensor cores multiply float32 only where TF32 is allowed, and, as with
`torch.backends.cudnn.deterministic`, the same input gives the same bits.

The family follows from a plan's numerical notes and workspace; engines have numbers, and no list of them is public. The
first that applies:

    FFT, Winograd           the note of that name
    explicit GEMM           no tensor cores, and the workspace is the columns e N C R S P Q to the byte, or has room for
                            them where all operands copied would take less
    layout transform        room for X or Y (or dX or dY) once more, in another layout or a wider type; on tensor cores,
                            which multiply the channels of one pixel, or as implicit GEMM
    tensor cores            the note, and no room for a copy
    precomputed             an implicit GEMM with room for two indices of 4 bytes per element of a filter at most
    implicit GEMM           no workspace at all; a direct convolution would look the same

Any other plan has no family.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.requests import round_up
from vdnnsim.units import ElementType

FFT: Final = "FFT"
WINOGRAD: Final = "Winograd"
EXPLICIT_GEMM: Final = "explicit GEMM"
TENSOR_CORES: Final = "tensor cores"
TENSOR_CORES_TRANSFORM: Final = "tensor cores with layout transform"
IMPLICIT_GEMM: Final = "implicit GEMM"
IMPLICIT_GEMM_TRANSFORM: Final = "implicit GEMM with layout transform"
PRECOMPUTED_GEMM: Final = "implicit GEMM, precomputed"
UNKNOWN: Final = ""

TENSOR_CORE_NOTE: Final = "TENSOR_CORE"
DOWN_CONVERT_NOTE: Final = "DOWN_CONVERT_INPUTS"
NONDETERMINISTIC_NOTE: Final = "NONDETERMINISTIC"

_ALIGNMENT_BYTES = 256
"""Of memory from the CUDA runtime."""
_INDEX_BYTES = 4
_INDICES_PER_FILTER_ELEMENT = 2
_ENGINE = re.compile(r"eng(\d+)(_k\d+=-?\d+)*")


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of cuDNN: N, C, H, W in either layout, which the strides define."""

    name: str
    dimensions: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionProblem:
    """One phase of one convolution, without bias; with `tf32` tensor cores may multiply float32 rounded to TF32."""

    shape: ConvolutionShape
    phase: Phase
    element_type: ElementType
    channels_last: bool = False
    tf32: bool = False

    @property
    def map_operand(self) -> Operand:
        """X, or its gradient."""
        shape = self.shape
        return self._operand("dX" if self.phase is Phase.BACKWARD_DATA else "X", (shape.n, shape.c, *shape.input_size))

    @property
    def filter_operand(self) -> Operand:
        """W, or its gradient."""
        shape = self.shape
        return self._operand("dW" if self.phase is Phase.BACKWARD_WEIGHTS else "W", (shape.k, shape.c, *shape.kernel))

    @property
    def output_operand(self) -> Operand:
        """Y, or its gradient."""
        shape = self.shape
        return self._operand("Y" if self.phase is Phase.FORWARD else "dY", (shape.n, shape.k, *shape.output_size))

    @property
    def columns_bytes(self) -> int:
        """Bytes of the columns of explicit GEMM for the whole batch."""
        shape = self.shape
        return self.element_type.nbytes * shape.n * shape.c * shape.window * shape.output_pixels

    def _operand(self, name: str, dimensions: tuple[int, ...]) -> Operand:
        images, channels, *space = range(len(dimensions))
        order = (images, *space, channels) if self.channels_last else (images, channels, *space)
        strides = {each: prod(dimensions[inner] for inner in order[at + 1 :]) for at, each in enumerate(order)}
        return Operand(name, dimensions, tuple(strides[each] for each in sorted(strides)))


@dataclass(frozen=True, slots=True)
class ConvolutionPlan:
    """One engine of cuDNN with its knobs set.

    Attributes:
        name: cuDNN's, with engine and knobs by number: `eng38_k2=0_k13=2`.
        numerical_notes, behavior_notes: cuDNN's, on its arithmetic and its requirements.
    """

    name: str
    workspace_bytes: int
    numerical_notes: frozenset[str]
    behavior_notes: tuple[str, ...] = ()

    @property
    def engine(self) -> int:
        """Number of the engine; each phase has a numbering of its own."""
        return engine_of(self.name)

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether it multiplies on tensor cores."""
        return TENSOR_CORE_NOTE in self.numerical_notes


def engine_of(name: str) -> int:
    """Return the number of the engine in the name of a plan."""
    match = _ENGINE.fullmatch(name)
    assert match, f"{name} is no name of an engine of cuDNN"
    return int(match[1])


def is_engine(name: str) -> bool:
    """Whether a plan is an engine of cuDNN's own; later frontends also offer kernels that they compile themselves."""
    return _ENGINE.fullmatch(name) is not None


def is_admitted(notes: frozenset[str], problem: ConvolutionProblem) -> bool:
    """Whether plans with these numerical notes are exact and deterministic enough for a problem."""
    if NONDETERMINISTIC_NOTE in notes:
        return False
    if problem.element_type is not ElementType.FLOAT32:
        return True
    return DOWN_CONVERT_NOTE not in notes and (problem.tf32 or TENSOR_CORE_NOTE not in notes)


def family_of(plan: ConvolutionPlan, problem: ConvolutionProblem) -> str:
    """Return the family of a plan; empty where it is unknown."""
    workspace, shape = plan.workspace_bytes, problem.shape
    if any(note.startswith("FFT") for note in plan.numerical_notes):
        return FFT
    if any(note.startswith("WINOGRAD") for note in plan.numerical_notes):
        return WINOGRAD
    if not plan.uses_tensor_cores and _holds_columns(workspace, problem):
        return EXPLICIT_GEMM
    if workspace >= problem.element_type.nbytes * min(shape.x_elements, shape.y_elements):
        return TENSOR_CORES_TRANSFORM if plan.uses_tensor_cores else IMPLICIT_GEMM_TRANSFORM
    if plan.uses_tensor_cores:
        return TENSOR_CORES
    if workspace == 0:
        return IMPLICIT_GEMM
    indices = _INDICES_PER_FILTER_ELEMENT * max(shape.c, shape.k) * shape.window
    return PRECOMPUTED_GEMM if workspace <= _INDEX_BYTES * indices else UNKNOWN


def distinct(plans: Iterable[ConvolutionPlan]) -> tuple[ConvolutionPlan, ...]:
    """Return the first plan of each engine and workspace, in order: others differ in knobs, not in memory."""
    first: dict[tuple[int, int], ConvolutionPlan] = {}
    for plan in plans:
        first.setdefault((plan.engine, plan.workspace_bytes), plan)
    return tuple(first.values())


def workspace_beside_result_bytes(plan: ConvolutionPlan, problem: ConvolutionProblem) -> int:
    """Return the workspace of a plan whose result is accumulated: its own, and behind it room for the result.

    cuDNN's graphs overwrite their outputs.
    """
    return result_begin_bytes(plan) + problem.element_type.nbytes * problem.shape.x_elements


def result_begin_bytes(plan: ConvolutionPlan) -> int:
    """Return the offset of the result in that workspace."""
    return round_up(plan.workspace_bytes, _ALIGNMENT_BYTES)


def _holds_columns(workspace_bytes: int, problem: ConvolutionProblem) -> bool:
    shape = problem.shape
    copies_bytes = problem.element_type.nbytes * (shape.x_elements + shape.y_elements + shape.w_elements)
    columns_bytes = problem.columns_bytes
    return workspace_bytes == columns_bytes or workspace_bytes >= columns_bytes > copies_bytes
