"""A captured model at other batch sizes; `chain(n)` grows on a line, so what is extended is what would be captured."""

from collections.abc import Callable

import msgspec
import pytest

from tests.captured_steps import chain
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import ScenarioError


def squared(n: int) -> CapturedStep:
    """The chain, but for the map of its convolution, of n x n times 16 B; from 4 on it is no line through 2 and 4."""
    step = chain(n)
    storages = list(step.storages)
    storages[5] = msgspec.structs.replace(storages[5], nbytes=16 * n * n)
    return msgspec.structs.replace(step, storages=tuple(storages))


class Captures:
    """Captures by a function, and notes at which batches."""

    def __init__(self, step_of: Callable[[int], CapturedStep]) -> None:
        self._step_of = step_of
        self.asked: list[int] = []

    def __call__(self, batch_size: int) -> CapturedStep:
        self.asked.append(batch_size)
        return self._step_of(batch_size)


def test_its_own_batch_is_as_it_was_captured() -> None:
    step = chain(3)
    model = CapturedModel(step)

    assert model.workload(3).captured is step
    assert model.batches == ""


@pytest.mark.parametrize("wanted", [1, 3, 7, 1000])
def test_two_captures_are_extended_to_any_batch(wanted: int) -> None:
    model = CapturedModel(chain(2), chain(4))

    assert model.workload(wanted).captured == chain(wanted)
    assert model.workload(wanted) is model.workload(wanted)
    assert model.batches == "batches: extended from captures at 2 and 4, between which all sizes grow on a line"


def test_a_third_capture_proves_the_line() -> None:
    model = CapturedModel(chain(2), chain(4), chain(9))

    assert model.workload(6).captured == chain(6)
    assert model.batches.endswith("grow on a line; a third capture, at 9, is what these two say")


def test_a_third_capture_that_is_another_refutes_the_line() -> None:
    """The map of the convolution, storage 5, is 16, 64 and 144 B at 1, 2 and 3: on a line it would be 112 B at 3."""
    model = CapturedModel(squared(2), squared(1), squared(3))

    with pytest.raises(ScenarioError) as refused:
        model.workload(6)
    assert str(refused.value).startswith("chain: was captured at a batch of 2, 1 and 3, found 6, which does not follow")


def test_one_capture_has_one_batch() -> None:
    with pytest.raises(ScenarioError) as refused:
        CapturedModel(chain(2)).workload(3)
    assert str(refused.value) == (
        "chain: was captured at a batch of 2, found 3, expected a second capture of it at another batch: "
        "step: [one.step.json, another.step.json]"
    )


def test_who_can_capture_takes_three_and_extends_them() -> None:
    """At twice and three times the first, which is 1 here, too small to tell: so at 2, 4 and 6."""
    captures = Captures(chain)
    model = CapturedModel(chain(1), capture=captures)

    assert model.workload(1).captured == chain(1)
    assert captures.asked == []
    assert [model.workload(each).captured for each in (5, 64)] == [chain(5), chain(64)]
    assert captures.asked == [2, 4, 6]
    assert model.batches.startswith("batches: extended from captures at 2 and 4, ")
    assert model.batches.endswith("; a third capture, at 6, is what these two say")


def test_what_is_no_line_is_captured_at_each_batch() -> None:
    captures = Captures(squared)
    model = CapturedModel(squared(2), capture=captures)

    assert [model.workload(each).captured for each in (5, 7, 5)] == [squared(5), squared(7), squared(5)]
    assert captures.asked == [4, 6, 5, 7]
    assert model.batches == (
        "batches: captured at each of 2, 4, 5, 6 and 7, for not all sizes grow on a line: storages[5].nbytes: "
        "64 at a batch of 2, 256 at 4, which is no line through the batch"
    )


def test_a_small_batch_that_is_a_case_apart_is_left_out_of_the_line() -> None:
    """At 2 it says another number of parameters; 4 and 6 make a line, which a capture at 9 proves."""

    def step_of(n: int) -> CapturedStep:
        return chain(n) if n != 2 else msgspec.structs.replace(chain(2), parameters=7)

    captures = Captures(step_of)
    model = CapturedModel(step_of(2), capture=captures)

    assert [model.workload(each).captured for each in (9, 20, 2)] == [chain(9), chain(20), step_of(2)]
    assert captures.asked == [4, 6, 9]
    assert model.batches == (
        "batches: extended from captures at 4 and 6, between which all sizes grow on a line; a third capture, at 9, is "
        "what these two say; not on it, and captured by itself: 2"
    )
