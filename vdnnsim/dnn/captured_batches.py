"""The step of another batch size, of steps that were captured at two: where every size grows with the batch on a line.

Two points lie on a line whatever they are, so more is asked than that: same operations, storages and tensors in the
same order, everything but sizes equal, no size that shrinks as the batch grows, none that would be below 0 at a batch
of 0, as what grows with its square, and whole numbers at the batch that is asked for. A third capture is the proof:
what is made of two equals it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.messages import describe

_SIZES: Final = frozenset(
    {"batch_size", "nbytes", "shape", "offset_bytes", "flop", "bytes_moved", "temporary_bytes", "work"}
)
"""Keys whose numbers may grow, those within them included; all others refer to something, or are the model's own."""
_IGNORED: Final = frozenset({"notes"})


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a step cannot be extended: the first place that differs, and how."""

    place: str
    reason: str

    def __str__(self) -> str:
        """Place and reason on one line."""
        return f"{self.place}: {self.reason}"


class _DiffersError(Exception):
    """What differs; turned into a `Difference`."""


def at_batch(first: CapturedStep, second: CapturedStep, batch_size: int) -> CapturedStep | Difference:
    """Return the step of a batch size by two of other sizes, or why there is none, and it must be captured.

    Args:
        first: the step of one batch size; its notes are those of the result.
        second: the step of the same model at another.
        batch_size: the one that is asked for, at least 1.
    """
    batches = first.batch_size, second.batch_size
    if batches[0] == batches[1]:
        return Difference("batch_size", f"found {batches[0]} in both, expected two batch sizes")
    try:
        step = _Line(*batches, batch_size).between(first, second, "", may_grow=False)
    except _DiffersError as differs:
        place, reason = differs.args
        return Difference(place.lstrip("."), reason)
    assert isinstance(step, CapturedStep), "a step becomes one"
    return step


@dataclass(frozen=True, slots=True)
class _Line:
    low: int
    high: int
    wanted: int

    def between(self, a: object, b: object, place: str, *, may_grow: bool) -> object:
        """Return what lies on the line through `a` and `b`."""
        if type(a) is type(b) and a == b:
            return a
        if isinstance(a, msgspec.Struct) and type(a) is type(b):
            changed = {}
            for key in a.__struct_fields__:
                old, new = getattr(a, key), getattr(b, key)
                if key not in _IGNORED and old != new:
                    grows = may_grow or key in _SIZES
                    changed[key] = self.between(old, new, f"{place}.{key}", may_grow=grows)
            return msgspec.structs.replace(a, **changed)
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                raise _DiffersError(place, f"{len(a)} at a batch of {self.low}, {len(b)} at {self.high}")
            pairs = enumerate(zip(a, b, strict=True))
            return tuple(self.between(x, y, f"{place}[{at}]", may_grow=may_grow) for at, (x, y) in pairs)
        if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
            return {key: self.between(a[key], b[key], f"{place}.{key.value}", may_grow=may_grow) for key in a}
        if may_grow and type(a) is int and type(b) is int:
            return self._size(a, b, place)
        raise self._differ(a, b, place)

    def _size(self, a: int, b: int, place: str) -> int:
        """Return a + (b - a) (wanted - low) / (high - low)."""
        run = self.high - self.low
        value, rest = divmod(a * run + (b - a) * (self.wanted - self.low), run)
        constant = (a * run - (b - a) * self.low) / run
        if rest or constant < 0 or (b - a) * run < 0 or value < 0:
            raise self._differ(a, b, place, ", which is no line through the batch")
        return value

    def _differ(self, a: object, b: object, place: str, why: str = "") -> _DiffersError:
        x, y = (describe(each.value if isinstance(each, Enum) else each) for each in (a, b))
        return _DiffersError(place, f"{x} at a batch of {self.low}, {y} at {self.high}{why}")
