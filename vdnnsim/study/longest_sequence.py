"""The longest sequence that fits, by policy, at the batch of a scenario; the search is that of `largest_batch`.

A captured model that can be captured anew is captured at three shorter lengths, together; the search is among lengths
that follow from these (`vdnnsim.dnn.captured_sizes`), if its own does. What it finds, and what is a step longer, is
captured as well, and the search is repeated with that until it finds the same.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_sizes import Difference, Quantity, difference, interpolated, without_efforts
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import CaptureError, StudyError
from vdnnsim.planning.deadline import NEVER, TimeLimit
from vdnnsim.scenario.read import MOST_TOKENS
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import LargestBatch, Simulators, Sizes, largest_sizes, surely_largest

_STEP: Final = 64
"""Tokens between lengths that are tried; kernels pad shorter steps."""
_FEWEST: Final = 8
"""Of these steps in a sequence, so that three shorter lengths can be told apart."""


class LongestSequences(NamedTuple):
    """The longest sequences, by policy.

    Attributes:
        surely: those that fit even if peaks are too low by as much as they may be; empty unless of a captured model.
        source: how steps of other lengths were made.
    """

    found: tuple[LargestBatch, ...]
    surely: tuple[LargestBatch, ...]
    source: str


def longest_sequences(scenario: Scenario, limit: TimeLimit | None = None) -> LongestSequences:
    """Return the longest sequence under every policy of a scenario.

    Lengths are multiples of 64 tokens, but around short sequences. The limit is of all policies together, and once more
    of those that surely fit.

    Raises:
        StudyError: the workload has no sequences.
        PolicyError: no policy has a plan.
    """
    lengths, costs = _Lengths(scenario), ServerCosts(scenario.server)
    step, deadlines = lengths.step, [NEVER if limit is None else limit.begin()]
    while True:
        sizes = Sizes(lambda size: lengths[size * step], lengths.tokens // step, lengths.most // step, by_batch=False)
        simulators = Simulators(scenario, costs, sizes)
        found = largest_sizes(simulators, deadlines[0])
        if limit is not None and len(deadlines) == 1:
            deadlines.append(limit.begin())
        surely = () if scenario.captured is None else surely_largest(simulators, found, deadlines[-1])
        answers, sure = (tuple(_with_tokens(each, scenario, step) for each in some) for some in (found, surely))
        ends = [tokens for each in answers for tokens in (each.size, each.size + step)]
        if not lengths.capture([*ends, *(each.size for each in sure)]):
            return LongestSequences(answers, sure, lengths.source)


def _with_tokens(found: LargestBatch, scenario: Scenario, step: int) -> LargestBatch:
    return replace(
        found,
        batch_size=scenario.workload.batch_size,
        tokens=found.batch_size * step,
        untried=found.untried and found.untried * step,
    )


class _Lengths:
    """Workloads of a scenario by tokens of their sequences.

    Attributes:
        source: how captured models of other lengths were made, in a sentence; empty for others.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._model = scenario, scenario.captured
        self.tokens = sample_of(scenario.workload.graph).tokens
        if self._model is not None and self._model.base.sample == "sequence":
            self.tokens = self._model.tokens
        name = scenario.workload.graph.name
        if not self.tokens:
            raise StudyError(f"{name}: reads no sequences of tokens, expected a model that does")
        if self._model is not None and not self._model.can_be_of_any_length:
            other = "expected --model, in Python a model by name or FILE.py:NAME"
            raise StudyError(f"{name}: cannot be captured on sequences of other lengths, {other}")
        self.step = _STEP if self.tokens >= _STEP * _FEWEST else 1
        self.source = ""
        self.most = MOST_TOKENS
        self._models: dict[int, CapturedModel] = {}
        self._interpolated: dict[int, CapturedModel] = {}
        # From which others are interpolated; none where they cannot be.
        self._between: list[CapturedModel] | None = None

    def __getitem__(self, tokens: int) -> Workload:
        """Return the workload on sequences of so many tokens, with the scenario's batch."""
        if self._model is None:
            return self._scenario.at_tokens(tokens).workload
        return self._of(self._model, tokens).workload(self._scenario.workload.part_size)

    def capture(self, lengths: Iterable[int]) -> bool:
        """Capture lengths that were interpolated; return whether there was one.

        Where the model takes none of these, as beyond the last of its positions, no longer ones are tried from then on.
        """
        found = sorted({each for each in lengths if each in self._interpolated})
        if self._model is None or not found:
            return False
        try:
            self._models |= zip(found, self._model.at_lengths(found), strict=True)
        except CaptureError as failure:
            self.most = self._longest_taken(self._model, found[-1])
            self.source = f"tokens: the model takes {self.most} at most: {failure}"
            found = [each for each in self._interpolated if each > self.most]
        for each in found:
            del self._interpolated[each]
        return True

    def _longest_taken(self, model: CapturedModel, beyond: int) -> int:
        """Return the longest sequence between the scenario's and one beyond it with which the model can be captured."""
        taken, refused = self.tokens // self.step, -(-beyond // self.step)
        while refused - taken > 1:
            middle = (taken + refused) // 2
            try:
                model.at_tokens(middle * self.step)
            except CaptureError:
                refused = middle
            else:
                taken = middle
        return taken * self.step

    def _of(self, model: CapturedModel, tokens: int) -> CapturedModel:
        if self._between is None:
            self._between = self._captured(model)
        if self._between and tokens != model.tokens and tokens not in self._models and tokens % self.step == 0:
            if tokens not in self._interpolated:
                found = _interpolated(self._between, tokens)
                if isinstance(found, Difference):
                    return model.at_tokens(tokens)
                self._interpolated[tokens] = found
            return self._interpolated[tokens]
        return model.at_tokens(tokens)

    def _captured(self, model: CapturedModel) -> list[CapturedModel]:
        """Capture three shorter lengths; none is returned where the scenario's own does not follow from them."""
        if self.tokens < _FEWEST:
            return []
        quarter = self.tokens // (4 * self.step) * self.step
        shorter = [part * quarter - self.step for part in (1, 2, 3)]
        found = list(model.at_lengths([each or self.step for each in shorter]))
        own = _interpolated(found, self.tokens)
        differs = own if isinstance(own, Difference) else difference(*map(without_efforts, (own.base, model.base)))
        if differs is not None:
            self.source = f"tokens: captured at each length, for they do not grow on a parabola: {differs}"
            return []
        captured = ", ".join(str(each.tokens) for each in found)
        self.source = (
            f"tokens: searched among lengths that follow from captures at {captured} and {self.tokens}, between which "
            "memory grows on a parabola; what was found is captured"
        )
        return found


def _interpolated(models: list[CapturedModel], tokens: int) -> CapturedModel | Difference:
    found = list[CapturedModel]()
    for ranks in zip(*((each, *each.others) for each in models), strict=True):
        step = interpolated([each.base for each in ranks], Quantity.TOKENS, tokens)
        if isinstance(step, Difference):
            return step
        check_captured_step(step, f"{step.model} at {tokens} tokens")
        found.append(CapturedModel(step))
    first, *others = found
    return CapturedModel(first.base, sources=models[0].sources, rounds=models[0].rounds, others=others)
