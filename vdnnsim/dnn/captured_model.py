"""A captured model at any batch size: captured, or interpolated linearly from captures at other batch sizes.

Two captures are interpolated if they differ in sizes alone: the same operations, storages and tensors in the same
order, no size that shrinks as the batch grows, none that would be negative at a batch of 0 (as one that grows with the
square of the batch), and integers at the requested batch. A third capture, where there is one, must equal the
interpolation. Otherwise every batch size is captured, if there is a function that captures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.errors import ScenarioError
from vdnnsim.files.messages import describe, listed

_SIZES: Final = frozenset(
    {"batch_size", "nbytes", "shape", "offset_bytes", "flop", "bytes_moved", "temporary_bytes", "work"}
)
"""Keys whose numbers, and those within them, may grow with the batch."""
_IGNORED: Final = frozenset({"notes"})
Capture: TypeAlias = Callable[[int], CapturedStep]

_LEAST = 2
"""PyTorch special-cases a batch of one: strides of that dimension are ignored, and it is expanded."""
_FEWEST = 2
"""Captures of a line."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Why a step cannot be interpolated: the first place that differs, and how."""

    place: str
    reason: str

    def __str__(self) -> str:
        """Place and reason on one line."""
        return f"{self.place}: {self.reason}"


class _DiffersError(Exception):
    """Carries the place and reason of a `Difference`."""


def at_batch(first: CapturedStep, second: CapturedStep, batch_size: int) -> CapturedStep | Difference:
    """Return the step at a batch size by two at other sizes, with the notes of the first, or why there is none."""
    batches = first.batch_size, second.batch_size
    if batches[0] == batches[1]:
        return Difference("batch_size", f"found {batches[0]} in both, expected two batch sizes")
    try:
        step = _Interpolation(*batches, batch_size).between(first, second, "", may_grow=False)
    except _DiffersError as differs:
        place, reason = differs.args
        return Difference(place.lstrip("."), reason)
    assert isinstance(step, CapturedStep), "a step becomes one"
    return step


@dataclass(frozen=True, slots=True)
class _Interpolation:
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


@dataclass(frozen=True, slots=True)
class Line:
    """Two captures from which the steps of other batch sizes follow; `proof` is the batch of a third that agrees."""

    first: CapturedStep
    second: CapturedStep
    proof: int | None = None


def second_batch(batch_size: int) -> int:
    """Return the batch size of a second capture: half, or twice where that is too small to tell."""
    return batch_size // 2 if batch_size >= 2 * _LEAST else 2 * batch_size


class CapturedModel:
    """A captured model at the batch sizes that follow from its captures.

    Attributes:
        sources: name and SHA-256 of the files that the captures are from.
        base: the first capture.
        rounds: micro-batches of an iteration, each of which was captured alone.
    """

    def __init__(
        self,
        *steps: CapturedStep,
        sources: tuple[tuple[str, str], ...] = (),
        capture: Capture | None = None,
        rounds: int = 1,
    ) -> None:
        """Take captures of one model at different batch sizes, and a function that captures it at others."""
        self.base = steps[0]
        self.sources = sources
        self.rounds = rounds
        self._capture = capture
        self._steps = {step.batch_size: step for step in steps}
        self._workloads: dict[tuple[int, int], CapturedWorkload] = {}
        self._line: Line | Difference | None = None

    def workload(self, batch_size: int, rounds: int | None = None) -> CapturedWorkload:
        """Return what one GPU does in one iteration.

        Args:
            batch_size: of a micro-batch.
            rounds: how many micro-batches; by default as many as the model has.

        Raises:
            ScenarioError: the step of this batch size does not follow from what was captured.
            CaptureError: capturing it failed.
        """
        key = batch_size, rounds or self.rounds
        if key not in self._workloads:
            self._workloads[key] = CapturedWorkload.of(self._step(batch_size), key[1])
        return self._workloads[key]

    @property
    def batches(self) -> str:
        """How steps at other batch sizes were made, in a sentence; empty where none was requested."""
        captured = listed([str(each) for each in sorted(self._steps)])
        match self._line:
            case Line(first, second, proof):
                proven = "" if proof is None else f"; a third capture, at {proof}, is what these two say"
                if apart := [str(each) for each in sorted(self._steps) if _LEAST <= each < first.batch_size]:
                    proven += f"; not on it, and captured by itself: {listed(apart)}"
                return (
                    f"batches: extended from captures at {first.batch_size} and {second.batch_size}, between which all "
                    f"sizes grow on a line{proven}"
                )
            case Difference() as differs:
                return f"batches: captured at each of {captured}, for not all sizes grow on a line: {differs}"
            case _:
                return ""

    def _step(self, batch_size: int) -> CapturedStep:
        if batch_size in self._steps:
            return self._steps[batch_size]
        if self._line is None:
            self._line = self._first_line()
        line = self._line
        extended = at_batch(line.first, line.second, batch_size) if isinstance(line, Line) else line
        if isinstance(extended, CapturedStep):
            check_captured_step(extended, f"{self.base.model} at a batch of {batch_size}")
            return extended
        if self._capture is None:
            raise self._refused(batch_size, extended)
        step = self._captured(batch_size, self._capture)
        if isinstance(self._line, Difference):
            self._line = self._find_line()
        return step

    def _refused(self, batch_size: int, why: Difference) -> ScenarioError:
        batches = listed([str(each) for each in self._steps])
        if len(self._steps) == 1:
            reason = "expected a second capture of it at another batch: step: [one.step.json, another.step.json]"
        else:
            reason = f"which does not follow from these: {why}; expected a capture at {batch_size}"
        return ScenarioError(f"{self.base.model}: was captured at a batch of {batches}, found {batch_size}, {reason}")

    def _first_line(self) -> Line | Difference:
        """Return the line of the captures; of two at least where the model can be captured."""
        if self._capture is not None:
            low = max(_LEAST, self.base.batch_size)
            for batch_size in (low, second_batch(low)):
                self._captured(batch_size, self._capture)
        return self._find_line()

    def _find_line(self) -> Line | Difference:
        """Return the line of all captures; where the model can be captured, small ones that differ may be left out."""
        steps = [step for _, step in sorted(self._steps.items())]
        if self._capture is None:
            return _line_of(steps)
        steps = [step for step in steps if step.batch_size >= _LEAST]
        if len(steps) == _FEWEST:
            return _line_of(steps)
        lines = [_line_of(steps[start:]) for start in range(len(steps) - _FEWEST)]
        return next((line for line in lines if isinstance(line, Line)), lines[0])

    def _captured(self, batch_size: int, capture: Capture) -> CapturedStep:
        if batch_size not in self._steps:
            self._steps[batch_size] = capture(batch_size)
        return self._steps[batch_size]


def _line_of(steps: list[CapturedStep]) -> Line | Difference:
    """Return the line of the first two steps, if the others lie on it."""
    if len(steps) == 1:
        return Difference("batch_size", f"found {steps[0].batch_size} alone, expected two")
    first, second, *others = steps
    # Where whole steps of the two end, every size of a line is an integer.
    ahead = at_batch(first, second, 2 * second.batch_size - first.batch_size)
    if isinstance(ahead, Difference):
        return ahead
    for other in others:
        extended = at_batch(first, second, other.batch_size)
        different = extended if isinstance(extended, Difference) else _difference(extended, other)
        if different is not None:
            return different
    return Line(first, second, others[-1].batch_size if others else None)


def _difference(extended: CapturedStep, captured: CapturedStep) -> Difference | None:
    """Return where an interpolated step differs from a capture, notes aside."""
    for key in CapturedStep.__struct_fields__:
        ours, theirs = getattr(extended, key), getattr(captured, key)
        if key == "notes" or ours == theirs:
            continue
        place = key
        if isinstance(ours, tuple) and len(ours) == len(theirs):
            place = f"{key}[{next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])}]"
        return Difference(place, f"is another at a batch of {captured.batch_size} than the other two say")
    return None
