"""A captured model at any batch size, captured or interpolated (`captured_sizes`), and on sequences of other lengths.

A third capture, where there is one, must equal the interpolation of two. Otherwise every batch size is captured, if
there is a function that captures. Batch sizes are those of a micro-batch, also where a step has several.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_sizes import Difference, Quantity, difference, has_pairs, interpolated
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.errors import ScenarioError
from vdnnsim.files.messages import listed

Capture: TypeAlias = Callable[[int], CapturedStep]
CaptureLoop: TypeAlias = "Callable[[Loop, int], CapturedModel | None]"
"""Captures in another loop at a batch size."""
CaptureLengths: TypeAlias = "Callable[[Sequence[int]], Sequence[CapturedModel]]"
CaptureExecution: TypeAlias = "Callable[[str], CapturedModel]"
"""Captures, or reads, the model for another way of execution, as `compiled`."""

_LEAST = 2
"""PyTorch special-cases a batch of one: strides of that dimension are ignored, and it is expanded."""
MOST_ROUNDS = 512
"""Micro-batches of an iteration."""
_FEWEST = 2
"""Captures of a line."""


def at_batch(
    first: CapturedStep, second: CapturedStep, batch_size: int, *, proven: bool = False
) -> CapturedStep | Difference:
    """Return the step at a batch size by two at other sizes, with the notes of the first, or why there is none.

    `proven` is as of `interpolated`.
    """
    return interpolated((first, second), Quantity.BATCH, batch_size, proven=proven)


@dataclass(frozen=True, slots=True)
class Line:
    """Two captures from which the steps of other batch sizes follow; `proof` is the batch of a third that agrees."""

    first: CapturedStep
    second: CapturedStep
    proof: int | None = None

    def at_batch(self, batch_size: int) -> CapturedStep | Difference:
        return at_batch(self.first, self.second, batch_size, proven=self.proof is not None)


def second_batch(batch_size: int) -> int:
    """Return the batch size of a second capture: half, or twice where that is too small to tell."""
    return batch_size // 2 if batch_size >= 2 * _LEAST else 2 * batch_size


class CapturedModel:
    """A captured model at the batch sizes that follow from its captures.

    Attributes:
        sources: name and SHA-256 of the files that the captures are from.
        base: the first capture.
        rounds: micro-batches of an iteration, each of which was captured alone.
        others: the other ranks of a pipeline, whose first this is; of other models none.
        capture_card: captures it for the card of a server; None where it cannot be.
    """

    def __init__(
        self,
        *steps: CapturedStep,
        sources: tuple[tuple[str, str], ...] = (),
        capture: Capture | None = None,
        lengths: "Sequence[CapturedModel]" = (),
        capture_lengths: "CaptureLengths | None" = None,
        capture_loop: "CaptureLoop | None" = None,
        capture_execution: "CaptureExecution | None" = None,
        rounds: int = 1,
        others: "Sequence[CapturedModel]" = (),
    ) -> None:
        """Take captures of one model at different batch sizes.

        Args:
            steps: of sequences of one length.
            sources: as the attribute.
            capture: captures the model at another batch size.
            lengths: the model on sequences of other lengths.
            capture_lengths: captures it on sequences of other lengths.
            capture_loop: captures it in another loop at a batch; returns None where that cannot be captured.
            capture_execution: captures it for another way of execution.
            rounds: as the attribute.
            others: as the attribute.
        """
        self.base = steps[0]
        self.sources, self.rounds, self.others = sources, rounds, tuple(others)
        self._capture, self._capture_lengths, self._capture_loop = capture, capture_lengths, capture_loop
        self._capture_execution = capture_execution
        self.capture_card: Callable[[Any], CapturedModel] | None = None
        self._lengths = {each.tokens: each for each in lengths}
        self._steps = {step.part_size: step for step in steps}
        self._loops: dict[tuple[Loop, int], CapturedModel | None] = {}
        self._workloads: dict[tuple[int, int], CapturedWorkload] = {}
        self._line: Line | Difference | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the functions that capture, which are of this process, so that results can be pickled."""
        return {**self.__dict__, **{each: None for each in self.__dict__ if each.startswith(("_capture", "capture"))}}

    def workload(self, batch_size: int, rounds: int | None = None) -> CapturedWorkload:
        """Return what one GPU does in one iteration of micro-batches, by default as many as the model has.

        Raises:
            ScenarioError: the step of this batch size does not follow from what was captured.
            CaptureError: capturing it failed.
        """
        key = batch_size, rounds or self.rounds
        if key not in self._workloads:
            found = CapturedWorkload.of(self._step(batch_size), key[1])
            ranks = (found, *(each.workload(batch_size) for each in self.others))
            self._workloads[key] = replace(found, pipeline=ranks) if self.others else found
        return self._workloads[key]

    @property
    def original(self) -> "CapturedModel":
        """The model that captures for this one: itself, but on another card for which the same is captured."""
        return self

    @property
    def tokens(self) -> int:
        """Tokens of a sequence; 1 for an image."""
        return self.base.sample_elements

    @property
    def can_be_of_any_batch(self) -> bool:
        return self._capture is not None

    @property
    def can_be_of_any_length(self) -> bool:
        """Whether it reads sequences, and can be captured on others."""
        return self._capture_lengths is not None and self.base.sample == "sequence"

    @property
    def can_be_in_any_loop(self) -> bool:
        """Whether it may be captured in other loops."""
        return self._capture_loop is not None

    def in_loop(self, loop: Loop, batch_size: int | None = None) -> "CapturedModel | None":
        """Return the model in another loop, captured at its own or another batch; None where it cannot be captured."""
        key = loop, batch_size or self.base.part_size
        if key not in self._loops:
            self._loops[key] = None if self._capture_loop is None else self._capture_loop(*key)
        return self._loops[key]

    def executed(self, way: str) -> "CapturedModel":
        """Return the model for another way of execution.

        Raises:
            ScenarioError: it cannot be captured for that.
            CaptureError: capturing it failed.
        """
        if self._capture_execution is None:
            raise ScenarioError(f"{self.base.model}: execution: found {way!r}, expected a capture for that")
        return self._capture_execution(way)

    def on_card(self, server: Any) -> "CapturedModel":  # noqa: ANN401  # machines are defined above this package
        """Return the model as it is captured for the card of a server; as it is where it cannot be captured again."""
        return self if self.capture_card is None else self.capture_card(server)

    def at_tokens(self, tokens: int) -> "CapturedModel":
        """Return the model on sequences of another length.

        Raises:
            ScenarioError: it was not captured, and cannot be.
            CaptureError: capturing it failed.
        """
        (found,) = self.at_lengths((tokens,))
        return found

    def at_lengths(self, lengths: Sequence[int]) -> "tuple[CapturedModel, ...]":
        """Return the model on sequences of other lengths, captured together; it raises what `at_tokens` does."""
        known = {self.tokens: self, **self._lengths}
        missing = [each for each in lengths if each not in known]
        if missing and not self.can_be_of_any_length:
            found = listed([str(each) for each in sorted(known)])
            reason = f"was captured on sequences of {found} tokens, found {missing[0]}, expected a capture at that"
            if self.base.sample != "sequence":
                reason = "reads images, expected a model of sequences"
            raise ScenarioError(f"{self.base.model}: {reason}")
        if missing:
            assert self._capture_lengths is not None, "it can"
            captured = self._capture_lengths(missing)
            for asked, each in zip(missing, captured, strict=True):
                if each.tokens != asked:
                    found = f"the inputs have sequences of {each.tokens} tokens"
                    raise ScenarioError(f"{self.base.model}: {found}, expected {asked}, as asked for")
            self._lengths |= {each.tokens: each for each in captured}
            known |= self._lengths
        return tuple(known[each] for each in lengths)

    @property
    def compares_samples(self) -> bool:
        """Whether its loss compares the samples of a batch with one another, by captures at two batch sizes or more."""
        return any(has_pairs(self.base, each) for each in self._steps.values() if each is not self.base)

    @property
    def batches(self) -> str:
        """How steps at other batch sizes were made, in a sentence; empty where none was requested."""
        captured = listed([str(each) for each in sorted(self._steps)])
        match self._line:
            case Line(first, second, proof):
                proven = "" if proof is None else f"; a third capture, at {proof}, is what these two say"
                if apart := [str(each) for each in sorted(self._steps) if _LEAST <= each < first.part_size]:
                    proven += f"; not on it, and captured by itself: {listed(apart)}"
                return (
                    f"batches: extended from captures at {first.part_size} and {second.part_size}, between which all "
                    f"sizes grow linearly{proven}"
                )
            case Difference() as differs:
                return f"batches: captured at each of {captured}, for not all sizes grow linearly: {differs}"
            case _:
                return ""

    def find_line(self) -> Line | Difference:
        """Return the line on which its captures say that other batches are, or why there is none."""
        if self._line is None:
            self._line = self._first_line()
        return self._line

    def _step(self, batch_size: int) -> CapturedStep:
        if batch_size in self._steps:
            return self._steps[batch_size]
        line = self.find_line()
        extended = line.at_batch(batch_size * self.base.micro_batches) if isinstance(line, Line) else line
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
            captures = "in a scenario `step: [one.step.json, another.step.json]`, in Python inputs without batch="
            reason = f"so {batch_size} is not known; expected a capture at another batch as well, {captures}"
        else:
            reason = f"from which {batch_size} does not follow: {why}; expected a capture at {batch_size}"
        return ScenarioError(f"{self.base.model}: was captured at a batch of {batches}, {reason}")

    def _first_line(self) -> Line | Difference:
        """Return the line of the captures; of two at least where the model can be captured."""
        if self._capture is not None:
            low = max(_LEAST, self.base.part_size)
            for batch_size in (low, second_batch(low)):
                self._captured(batch_size, self._capture)
        return self._find_line()

    def _find_line(self) -> Line | Difference:
        """Return the line of all captures; where the model can be captured, small ones that differ may be left out."""
        steps = [step for _, step in sorted(self._steps.items())]
        if self._capture is None:
            return _line_of(steps)
        steps = [step for step in steps if step.part_size >= _LEAST]
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
    line = Line(first, second, others[-1].part_size if others else None)
    # Where whole steps of the two end, every size of a line is an integer.
    end = 2 * second.batch_size - first.batch_size
    ahead = line.at_batch(end)
    if isinstance(ahead, Difference):
        return ahead
    for other in others:
        extended = line.at_batch(other.batch_size)
        different = extended if isinstance(extended, Difference) else difference(extended, other)
        if different is not None:
            by_two = at_batch(first, second, end)
            return by_two if isinstance(by_two, Difference) else different
    return line
