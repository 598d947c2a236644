"""Operations of a captured step by what decides their costs: those of a kind cost the same on every card.

A model of many equal blocks has few kinds, and a step that is replayed on many cards has the same ones on each.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import ELEMENT_BYTES, Role, StepOperation
from vdnnsim.units import ElementType

_COPIES: Final = ("aten._to_copy.default", "aten.copy_.default")
_GROUP_NORM: Final = "aten.native_group_norm"
_BROADCASTING: Final = frozenset({"add", "sub", "mul", "div", "where", "masked_fill"})
_FUSED_ADAM: Final = "aten._fused_adam"
_CAT: Final = "aten.cat.default"
_ROW_BYTES: Final = 512
"""Of what lies together, fewer than which are concatenated element by element; assumed, for on an H200 rows of 8 to
128 B were measured, and the kernel takes 16 B at a time where it may (aten/src/ATen/native/cuda/Shape.cu)."""
_RESAMPLING: Final = ("aten.upsample_", "aten.avg_pool2d_backward", "aten.max_pool2d_with_indices_backward")
_FLOATS: Final = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_MAP: Final = 4
_SUM: Final = "aten.sum.dim_IntList"
SAFE_SOFTMAX: Final = "aten._safe_softmax.default"
CLONE: Final = "aten.clone.default"
SHARING: Final = (_SUM, SAFE_SOFTMAX)
"""Whose workspaces depend on the card and on the shapes of operands."""


class OperationKind(NamedTuple):
    """What decides the costs of an operation.

    Attributes:
        operation: the first of its kind.
        element_type: in which it is costed; types that no workload has are float32.
        role: of its result.
        sizes: of what it reads first, of which a weight gradient is a sum.
        single: elements that its kernel takes one at a time.
        key: equal for operations that cost the same, but for `SHARING`.
    """

    operation: StepOperation
    element_type: ElementType
    role: Role
    sizes: tuple[int, ...]
    single: int
    key: tuple[object, ...]


class OperationKinds(NamedTuple):
    """The kinds of a step's operations, in the order of their first ones, and the numbers of those of each phase."""

    kinds: tuple[OperationKind, ...]
    of_phases: dict[tuple[int, Phase], tuple[int, ...]]
    channels_last: bool


def kinds_of(workload: CapturedWorkload) -> OperationKinds:
    """Return the kinds of operations; those of a step that several cards share are found once."""
    return _found(_SameStep(workload))


@dataclass(frozen=True, eq=False)
class _SameStep:
    """A workload, equal to those with the same step, of which cards for which the same is captured have one."""

    workload: CapturedWorkload

    def __hash__(self) -> int:
        return id(self.workload.step)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameStep) and self._parts == other._parts

    @property
    def _parts(self) -> tuple[Any, ...]:
        return id(self.workload.step), self.workload.element_type, self.workload.is_training


@lru_cache(maxsize=8)
def _found(same: _SameStep) -> OperationKinds:
    workload, step = same.workload, same.workload.step
    works = (each.work for each in workload.captured.operations if isinstance(each.work, ConvolutionWork))
    channels_last = any(work.channels_last for work in works)
    numbers, kinds = dict[object, int](), list[OperationKind]()

    def number(operation: StepOperation) -> int:
        element_type = workload.computed_in(operation, ElementType.FLOAT32)
        role = _result(operation)
        # Inference sums over no channels; the heads of attention have the same width there.
        first = operation.operands[:1] if workload.is_training or Arithmetic.PRODUCT in operation.flop else ()
        sizes = step.tensors[first[0].memory].shape if first else ()
        single = single_elements(workload, operation, channels_last=channels_last)
        work = operation.work, operation.bytes_moved, operation.copied_bytes, operation.sectors
        key = element_type, role, work, tuple(operation.flop.items()), operation.name, sizes, single
        shapes = operation.name in SHARING and tuple(step.tensors[each.memory].shape for each in operation.operands)
        if (key, shapes) not in numbers:
            numbers[key, shapes] = len(kinds)
            kinds.append(OperationKind(operation, element_type, role, sizes, single, key))
        return numbers[key, shapes]

    phases = dict.fromkeys((each.layer, each.phase) for each in step.operations)
    of_phases = {where: tuple(map(number, step.operations_of(*where))) for where in phases}
    return OperationKinds(tuple(kinds), of_phases, channels_last)


def single_elements(workload: CapturedWorkload, operation: StepOperation, *, channels_last: bool = False) -> int:
    """Return how many elements a kernel takes one at a time (`vdnnsim.cost.thread_limits`); 0 if it loads words.

    Where a capture tells no sectors, a clone is taken to turn its tensor around, as `contiguous()` does, or there would
    be none. Tensors are concatenated in words where rows are long.
    """
    name, tensors = operation.name, [workload.step.tensors[each.memory] for each in operation.operands]
    if operation.sectors.nbytes and not operation.copied_bytes:
        return max(prod(each.shape) for each in tensors)
    if name.startswith(_GROUP_NORM):
        return prod(tensors[0].shape)
    if name.startswith(_FUSED_ADAM):
        pairs = zip(operation.operands, tensors, strict=True)
        return sum(prod(each.shape) for operand, each in pairs if operand.role is Role.WEIGHTS)
    if name.startswith(_RESAMPLING):
        return max(prod(each.shape) for each in tensors)
    if name == _CAT:
        x, y = tensors[0].shape, tensors[-1].shape
        is_map = channels_last and len(x) == _MAP and x[2:] == y[2:]
        lie_together = x[1] if is_map else x[-1] if x[:-1] == y[:-1] else prod(x)
        return prod(y) if lie_together * ELEMENT_BYTES[tensors[0].element_type] < _ROW_BYTES else 0
    is_arithmetic = name.removeprefix("aten.").partition(".")[0].rstrip("_") in _BROADCASTING
    if not (is_arithmetic or name in (*_COPIES, CLONE)):
        return 0
    tensors = [each for each in tensors if prod(each.shape) > 1]
    widths = [_FLOATS.get(each.element_type, 0) for each in tensors]
    if name in _COPIES:
        is_single = len(widths) > 1 and 0 < widths[0] < widths[-1]
    else:
        is_single = name == CLONE or len({each.shape for each in tensors}) > 1 or len({*widths} - {0}) > 1
    return max((prod(each.shape) for each in tensors), default=0) if is_single else 0


def _result(operation: StepOperation) -> Role:
    """Return the role of the result of an operation: a weight gradient, an input gradient, or another output."""
    written = {each.role for each in operation.operands if each.access.writes}
    return next((each for each in (Role.WEIGHT_GRADIENT, Role.INPUT_GRADIENT) if each in written), Role.OUTPUT)
