"""A captured model at any batch size: captured there, extended from where it was captured, or captured again.

Where two captures differ in sizes alone, all of which grow with the batch on a line (`vdnnsim.dnn.captured_batches`),
the others follow; a third capture, where there is one, must be what the first two say. Where they do not, and whoever
asks can capture, every batch size is captured.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from vdnnsim.dnn.captured_batches import Difference, at_batch
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.errors import ScenarioError
from vdnnsim.messages import listed

Capture: TypeAlias = Callable[[int], CapturedStep]
"""Captures the model at a batch size."""

_LEAST = 2
"""PyTorch treats a batch of one apart here and there: its stride is of no consequence, and it is expanded."""


@dataclass(frozen=True, slots=True)
class Line:
    """Two captures from which the steps of other batch sizes follow; `proof` is the batch of a third that agrees."""

    first: CapturedStep
    second: CapturedStep
    proof: int | None = None


class CapturedModel:
    """A captured model, whose batch size may vary as far as its captures say.

    Attributes:
        sources: name and SHA-256 of the files that the captures are from.
        base: the first capture.
    """

    def __init__(
        self, *steps: CapturedStep, sources: tuple[tuple[str, str], ...] = (), capture: Capture | None = None
    ) -> None:
        """Take captures of one model, each of another batch size, and who captures it at others."""
        self.base = steps[0]
        self.sources = sources
        self._capture = capture
        self._steps = {step.batch_size: step for step in steps}
        self._workloads: dict[int, CapturedWorkload] = {}
        self._line: Line | Difference | None = None

    def workload(self, batch_size: int) -> CapturedWorkload:
        """Return what one GPU does in one iteration with a batch.

        Raises:
            ScenarioError: the step of this batch size does not follow from what was captured.
            CaptureError: it was to be captured and cannot be.
        """
        if batch_size not in self._workloads:
            self._workloads[batch_size] = CapturedWorkload.of(self._step(batch_size))
        return self._workloads[batch_size]

    @property
    def batches(self) -> str:
        """How steps of other batch sizes than the first came about, in a sentence; nothing where none was asked for."""
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
        """Return the line of the captures that there are, of at least three where there can be more."""
        if self._capture is not None:
            low = max(_LEAST, self.base.batch_size)
            for batch_size in (low, 2 * low, 3 * low):
                self._captured(batch_size, self._capture)
        return self._find_line()

    def _find_line(self) -> Line | Difference:
        """Return the line of all captures, or of the larger ones: a batch as large as another size may be a case apart.

        Of files that somebody captured all must agree.
        """
        steps = [step for _, step in sorted(self._steps.items())]
        if self._capture is None:
            return _line_of(steps)
        steps = [step for step in steps if step.batch_size >= _LEAST]
        lines = [_line_of(steps[start:]) for start in range(len(steps) - 2)]
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
    for other in others:
        extended = at_batch(first, second, other.batch_size)
        different = extended if isinstance(extended, Difference) else _difference(extended, other)
        if different is not None:
            return different
    return Line(first, second, others[-1].batch_size if others else None)


def _difference(extended: CapturedStep, captured: CapturedStep) -> Difference | None:
    """Return where a step that was extended is not what was captured, notes aside."""
    for key in CapturedStep.__struct_fields__:
        ours, theirs = getattr(extended, key), getattr(captured, key)
        if key == "notes" or ours == theirs:
            continue
        place = key
        if isinstance(ours, tuple) and len(ours) == len(theirs):
            place = f"{key}[{next(at for at, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])}]"
        return Difference(place, f"is another at a batch of {captured.batch_size} than the other two say")
    return None
