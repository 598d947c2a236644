"""Steps at other batch sizes or numbers of tokens, interpolated between captures that differ in sizes alone.

They have the same operations, storages and tensors in the same order. Sizes grow linearly with the batch, or on a
parabola through the tokens, for attention pairs them. Of two captures no size is negative at a batch of 0, as one that
grows with the square of the batch would be, and also that of a batch whose samples lie apart; a third tells these two.
No size shrinks, and all are integers. What an operation computes and moves may not grow so with the tokens,
as a table of which more and more rows are read until it is read whole; there it is near what a capture has.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from math import lcm, prod
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import NO_SECTORS
from vdnnsim.dnn.step import Operand, Tensor
from vdnnsim.files.messages import describe

_SIZES: Final = frozenset(
    {"nbytes", "shape", "offset_bytes", "flop", "bytes_moved", "temporary_bytes", "copied_bytes", "sectors", "work"}
)
"""Keys whose numbers, and those within them, may grow."""
_IGNORED: Final = frozenset({"notes", "program"})
_EFFORTS: Final = (".flop", ".bytes_moved", ".sectors", ".work")


class Quantity(Enum):
    """A quantity in which captures of a model differ, by its key in a step."""

    BATCH = "batch_size"
    TOKENS = "sample_elements"

    def of(self, step: CapturedStep) -> int:
        return int(getattr(step, self.value))

    @property
    def needed(self) -> int:
        """How many captures determine the others."""
        return 2 if self is Quantity.BATCH else 3


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a step cannot be interpolated: the first place that differs, and how."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class _DiffersError(Exception):
    """Carries the place and reason of a `Difference`."""


def interpolated(
    steps: Sequence[CapturedStep], quantity: Quantity, wanted: int, *, proven: bool = False
) -> CapturedStep | Difference:
    """Return the step at a value of a quantity by as many others as are needed, or why there is none.

    Notes and program are those of the first. Where it is `proven` by a further capture that sizes grow so, those of a
    batch may be negative at 0.
    """
    values = [quantity.of(each) for each in steps]
    if len(set(values)) < len(values):
        return Difference(quantity.value, f"found {values[0]} twice, expected others")
    counts = {tuple(len(each.operands) for each in step.operations) for step in steps}
    numbers = {tuple(operand.memory for each in step.operations for operand in each.operands) for step in steps}
    if len(counts) == 1 and len(numbers) > 1:
        # Views that coincide at one value are one tensor there.
        steps = [_with_tensor_per_operand(each) for each in steps]
    try:
        step = _Interpolation(quantity, values, wanted, proven=proven).between(tuple(steps), "", may_grow=False)
    except _DiffersError as differs:
        place, reason = differs.args
        return Difference(place.lstrip("."), f"{reason}{_of_what(steps[0], place)}")
    assert isinstance(step, CapturedStep), "a step becomes one"
    return _with_distinct_tensors(step)


def _of_what(step: CapturedStep, place: str) -> str:
    """Return in brackets the name of the storage that a place is of, which is the operator that made it."""
    found = re.match(r"\.(storages|tensors)\[(\d+)\]", place)
    if found is None:
        return ""
    number = int(found[2])
    return f" ({step.storages[number if found[1] == 'storages' else step.tensors[number].storage].name})"


def _with_tensor_per_operand(step: CapturedStep) -> CapturedStep:
    """Split tensors into one for each operand; `_with_distinct_tensors` merges them into those that were captured."""
    tensors: list[Tensor] = []
    operations = []
    for each in step.operations:
        first = len(tensors)
        tensors += [step.tensors[operand.memory] for operand in each.operands]
        own = (msgspec.structs.replace(operand, memory=first + at) for at, operand in enumerate(each.operands))
        operations.append(msgspec.structs.replace(each, operands=tuple(own)))
    return msgspec.structs.replace(step, tensors=tuple(tensors), operations=tuple(operations))


def _with_distinct_tensors(step: CapturedStep) -> CapturedStep:
    """Merge equal views of a storage, as those of a matrix and of its transpose where it is square."""
    numbers: dict[Tensor, int] = {}
    new = [numbers.setdefault(each, len(numbers)) for each in step.tensors]
    if len(numbers) == len(new):
        return step

    def merged(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        found: dict[int, Operand] = {}
        for each in operands:
            found.setdefault(new[each.memory], msgspec.structs.replace(each, memory=new[each.memory]))
        return tuple(found.values())

    operations = (msgspec.structs.replace(each, operands=merged(each.operands)) for each in step.operations)
    return msgspec.structs.replace(step, tensors=tuple(numbers), operations=tuple(operations))


def has_pairs(first: CapturedStep, second: CapturedStep) -> bool:
    """Return whether a tensor has two dimensions that grow with the batch, as similarities of all pairs of samples.

    Operands of the same operations are compared, up to the first that only one of the captures has.
    """
    small, large = first.batch_size, second.batch_size

    def growing(one: Operand, other: Operand) -> int:
        sizes = zip(first.tensors[one.memory].shape, second.tensors[other.memory].shape, strict=False)
        return sum(size != wider and size * large == wider * small for size, wider in sizes)

    for one, other in zip(first.operations, second.operations, strict=False):
        if (one.name, len(one.operands)) != (other.name, len(other.operands)):
            return False
        if any(growing(*each) > 1 for each in zip(one.operands, other.operands, strict=True)):
            return True
    return False


def without_efforts(step: CapturedStep) -> CapturedStep:
    """Return a step without what its operations compute and move, which decides its time alone."""
    none: dict[str, Any] = {"flop": {}, "bytes_moved": 0, "copied_bytes": 0, "sectors": NO_SECTORS, "work": None}
    operations = (msgspec.structs.replace(each, **none) for each in step.operations)
    return msgspec.structs.replace(step, operations=tuple(operations))


def difference(extended: CapturedStep, captured: CapturedStep) -> Difference | None:
    """Return where an interpolated step differs from a capture, notes, program and the order of tensors aside."""
    if extended.tensors != captured.tensors:
        in_order = (_with_distinct_tensors(_with_tensor_per_operand(each)) for each in (extended, captured))
        extended, captured = in_order
    for key in CapturedStep.__struct_fields__:
        ours, theirs = getattr(extended, key), getattr(captured, key)
        if key in _IGNORED or ours == theirs:
            continue
        place = key
        if isinstance(ours, tuple) and len(ours) == len(theirs):
            place = f"{key}[{next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])}]"
        at = f"a batch of {captured.batch_size}"
        if captured.sample == "sequence":
            at += f" and {captured.sample_elements} tokens"
        return Difference(place, f"is another in a capture at {at}")
    return None


class _Interpolation:
    def __init__(self, quantity: Quantity, values: Sequence[int], wanted: int, *, proven: bool) -> None:
        self._quantity, self._values, self._wanted, self._proven = quantity, values, wanted, proven
        self._order = sorted(range(len(values)), key=values.__getitem__)
        self._at_wanted, self._at_zero = (_weights(values, at) for at in (wanted, 0))

    def between(self, found: tuple[object, ...], place: str, *, may_grow: bool) -> object:
        first = found[0]
        kinds = set(map(type, found))
        if len(kinds) > 1:
            raise self._differ(found, place)
        if found.count(first) == len(found):
            return first
        if isinstance(first, msgspec.Struct):
            changed = {}
            for key in first.__struct_fields__:
                inner = tuple([getattr(each, key) for each in found])
                if key not in _IGNORED and inner.count(inner[0]) < len(inner):
                    grows = may_grow or key in _SIZES or key == self._quantity.value
                    changed[key] = self.between(inner, f"{place}.{key}", may_grow=grows)
            return msgspec.structs.replace(first, **changed)
        if isinstance(first, tuple):
            lengths = tuple(len(each) for each in found)  # type: ignore[arg-type]  # tuples all
            if len(set(lengths)) > 1:
                raise self._differ(lengths, place)
            parts = enumerate(zip(*found, strict=True))
            return tuple(self.between(part, f"{place}[{at}]", may_grow=may_grow) for at, part in parts)
        if isinstance(first, dict) and len({tuple(each) for each in found}) == 1:  # type: ignore[arg-type]  # dictionaries
            return {
                key: self.between(tuple(each[key] for each in found), f"{place}.{key.value}", may_grow=may_grow)  # type: ignore[index]
                for key in first
            }
        if may_grow and type(first) is int:
            return self._size(found, place)  # type: ignore[arg-type]  # integers all
        raise self._differ(found, place)

    def _size(self, sizes: tuple[int, ...], place: str) -> int:
        value, rest = divmod(_sum(self._at_wanted[0], sizes), self._at_wanted[1])
        in_order = [sizes[at] for at in self._order]
        is_growing = all(low <= high for low, high in pairwise(in_order))
        if self._quantity is Quantity.BATCH:
            is_growing &= self._proven or _sum(self._at_zero[0], sizes) >= 0
        elif self._wanted > max(self._values):
            is_growing &= value >= in_order[-1]
        if self._quantity is Quantity.TOKENS and any(each in place for each in _EFFORTS):
            return max(0, value)
        if rest or value < 0 or not is_growing:
            way = "line through the batch" if self._quantity is Quantity.BATCH else "parabola through the tokens"
            raise self._differ(sizes, place, f", which is no {way}")
        return value

    def _differ(self, found: Sequence[object], place: str, why: str = "") -> _DiffersError:
        first, *others = self._values
        at = [f"a batch of {first}" if self._quantity is Quantity.BATCH else f"{first} tokens", *others]
        texts = (describe(each.value if isinstance(each, Enum) else each) for each in found)
        differing = ", ".join(f"{text} at {value}" for text, value in zip(texts, at, strict=True))
        return _DiffersError(place, differing + why)


def _sum(weights: Sequence[int], sizes: Sequence[int]) -> int:
    return sum(weight * each for weight, each in zip(weights, sizes, strict=True))


def _weights(values: Sequence[int], wanted: int) -> tuple[list[int], int]:
    """Return Lagrange's weights of values at a wanted one, over a common positive denominator."""
    shares = [
        prod((Fraction(wanted - other, each - other) for other in values if other != each), start=Fraction(1))
        for each in values
    ]
    common = lcm(*(each.denominator for each in shares))
    return [int(each * common) for each in shares], common
