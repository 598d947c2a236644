"""A captured model at other batch sizes; `chain(n)` grows on a line, so what is extended is what would be captured.

The second part is of another card for which the same is captured.
"""

import pickle
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captured_steps import chain
from vdnnsim.dnn.captured_model import CapturedModel, at_batch
from vdnnsim.dnn.captured_on_card import CapturedOnCard, ModelsByCard
from vdnnsim.dnn.captured_sizes import Difference
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.errors import ScenarioError

SIZES = st.integers(1, 1000)


def with_storage(step: CapturedStep, number: int, nbytes: int) -> CapturedStep:
    storages = list(step.storages)
    storages[number] = msgspec.structs.replace(storages[number], nbytes=nbytes)
    return msgspec.structs.replace(step, storages=tuple(storages))


def squared(n: int) -> CapturedStep:
    """The chain, but for the map of its convolution, of n x n times 16 B; from 4 on it is no line through 2 and 4."""
    return with_storage(chain(n), 5, 16 * n * n)


class Captures:
    def __init__(self, step_of: Callable[[int], CapturedStep]) -> None:
        self._step_of = step_of
        self.asked: list[int] = []

    def __call__(self, batch_size: int) -> CapturedStep:
        self.asked.append(batch_size)
        return self._step_of(batch_size)


def test_one_capture_has_its_own_batch() -> None:
    step = chain(3)
    model = CapturedModel(step)
    assert model.workload(3).captured is step
    assert model.batches == ""
    with pytest.raises(ScenarioError, match="batch of 3, so 2 is not known; expected a capture at another"):
        model.workload(2)


@pytest.mark.parametrize("proof", [(), (chain(9),)])
def test_two_captures_are_extended_and_a_third_proves_the_line(proof: tuple[CapturedStep, ...]) -> None:
    model = CapturedModel(chain(2), chain(4), *proof)

    assert model.workload(6).captured == chain(6)
    assert model.workload(6) is model.workload(6)
    assert model.batches.startswith("batches: extended from captures at 2 and 4")
    assert ("a third capture, at 9" in model.batches) is bool(proof)


def test_a_third_capture_that_is_another_refutes_the_line() -> None:
    """The map of the convolution, storage 5, is 16, 64 and 144 B at 1, 2 and 3: on a line it would be 112 B at 3."""
    model = CapturedModel(squared(2), squared(1), squared(3))

    with pytest.raises(ScenarioError, match="batch of 2, 1 and 3, from which 6 does not follow"):
        model.workload(6)


@pytest.mark.parametrize(("first", "others"), [(1, [2, 4]), (2, [4]), (3, [6]), (4, [2]), (9, [4])])
def test_a_capturing_model_extends_two_captures(first: int, others: list[int]) -> None:
    """The first, and half of it, or twice where half is below 2; 1 is too small to tell."""
    captures = Captures(chain)
    model = CapturedModel(chain(first), capture=captures)
    assert model.workload(first).captured == chain(first)
    assert captures.asked == []
    assert [model.workload(each).captured for each in (5, 64)] == [chain(5), chain(64)]
    assert captures.asked == others


def test_a_model_that_is_not_linear_is_captured_at_each_batch() -> None:
    captures = Captures(squared)
    model = CapturedModel(squared(2), capture=captures)

    assert [model.workload(each).captured for each in (5, 7, 5)] == [squared(5), squared(7), squared(5)]
    assert captures.asked == [4, 5, 7]
    assert "captured at each of 2, 4, 5 and 7" in model.batches
    assert "storages[5].nbytes: 64 at a batch of 2, 256 at 4" in model.batches


def test_a_third_capture_tells_a_line_that_is_negative_at_0() -> None:
    """Of a batch that was sliced to 4 of the 6 B of each sample the storage has 6 n - 2 B: 10, 22, 28 B at 2, 4 and 5.

    By two captures it could be one that grows with the square; the capture at 5 is on the line, so 64 has 382 B.
    """

    def sliced(n: int) -> CapturedStep:
        return with_storage(chain(n), 9, 6 * n - 2)

    captures = Captures(sliced)
    model = CapturedModel(sliced(2), capture=captures)

    assert [model.workload(each).captured for each in (5, 64, 1)] == [sliced(5), sliced(64), sliced(1)]
    assert captures.asked == [4, 5]
    assert "a third capture, at 5" in model.batches
    assert isinstance(at_batch(sliced(2), sliced(4), 5), Difference)


def test_a_small_batch_that_differs_is_left_out_of_the_line() -> None:
    """At 2 it says another number of parameters; 4 and 9 make a line, which a capture at 20 proves."""

    def step_of(n: int) -> CapturedStep:
        return chain(n) if n != 2 else msgspec.structs.replace(chain(2), parameters=7)

    captures = Captures(step_of)
    model = CapturedModel(step_of(2), capture=captures)

    assert [model.workload(each).captured for each in (9, 20, 2)] == [chain(9), chain(20), step_of(2)]
    assert captures.asked == [4, 9, 20]
    assert "captures at 4 and 9" in model.batches
    assert model.batches.endswith("captured by itself: 2")


@given(SIZES, SIZES, SIZES)
def test_an_interpolated_step_equals_the_capture(first: int, second: int, wanted: int) -> None:
    """Every size of the chain is so much for an image and so much for all."""
    if first != second:
        assert at_batch(chain(first), chain(second), wanted) == chain(wanted)


@given(st.integers(0, 50), st.integers(0, 50), SIZES, SIZES, SIZES)
def test_a_size_on_a_line_is_extended_and_its_square_is_not(
    each: int, constant: int, first: int, second: int, wanted: int
) -> None:
    """Storage 9 of a n + b bytes becomes a w + b; of n n bytes it would be negative at 0, for -n m lies there."""
    if first == second:
        return
    steps = [with_storage(chain(n), 9, each * n + constant) for n in (first, second, wanted)]
    assert at_batch(steps[0], steps[1], wanted) == steps[2]
    squares = [with_storage(chain(n), 9, n * n) for n in (first, second)]
    found = at_batch(squares[0], squares[1], wanted)
    assert isinstance(found, Difference)
    assert found.place == "storages[9].nbytes"


def test_sizes_that_are_no_integers_or_shrink_are_refused() -> None:
    """5 B at 2 and 8 B at 4 grow by 3 for 2: 11 B at 6, and nothing at 5. Notes are those of the first."""
    low = msgspec.structs.replace(with_storage(chain(2), 9, 5), notes=("two images",))
    high = with_storage(chain(4), 9, 8)
    assert at_batch(low, high, 6) == msgspec.structs.replace(with_storage(chain(6), 9, 11), notes=("two images",))
    assert str(at_batch(low, high, 5)).startswith("storages[9].nbytes: 5 at a batch of 2, 8 at 4")
    # A size that shrinks as the batch grows is refused.
    assert isinstance(at_batch(with_storage(chain(2), 9, 8), with_storage(chain(4), 9, 4), 3), Difference)
    assert isinstance(at_batch(with_storage(chain(4), 9, 4), with_storage(chain(2), 9, 8), 3), Difference)


def test_the_first_difference_that_is_no_size_is_named() -> None:
    low, high = chain(2), chain(4)
    other = msgspec.structs.replace(high.operations[2], name="aten.gelu.default")
    operations = (*high.operations[:2], other, *high.operations[3:])
    found = [
        at_batch(low, msgspec.structs.replace(high, operations=operations), 8),
        at_batch(low, msgspec.structs.replace(high, operations=high.operations[:-1]), 8),
        at_batch(low, msgspec.structs.replace(high, parameters=4), 8),
        at_batch(low, low, 8),
    ]
    assert [str(each) for each in found] == [
        "operations[2].name: 'aten.relu_.default' at a batch of 2, 'aten.gelu.default' at 4",
        "operations: 18 at a batch of 2, 17 at 4",
        "parameters: 3 at a batch of 2, 4 at 4",
        "batch_size: found 2 twice, expected others",
    ]


ADA = (8, 9)


def step(batch_size: int, capability: tuple[int, int] = (8, 0)) -> CapturedStep:
    return msgspec.structs.replace(chain(batch_size), device="cuda {}.{}".format(*capability))


def test_other_batches_loops_and_lengths_are_captured_once_for_both() -> None:
    """Batches of 4 and 2 are, and the loop at 4; 8 follows from them, on both cards."""
    captured: list[int | Loop] = []

    def capture(batch_size: int) -> CapturedStep:
        captured.append(batch_size)
        return step(batch_size)

    def in_loop(loop: Loop, _batch_size: int) -> CapturedModel:
        captured.append(loop)
        return CapturedModel(step(4))

    original = CapturedModel(
        step(4),
        capture=capture,
        capture_loop=in_loop,
        capture_lengths=lambda lengths: [CapturedModel(step(4)) for _ in lengths],
    )
    there = CapturedOnCard(CapturedOnCard(original, (8, 6)), ADA)
    assert there.original is original is original.original
    for batch_size, rounds in ((8, 1), (8, 1), (2, 2)):
        workload = there.workload(batch_size, rounds)
        assert workload == CapturedWorkload.of(step(batch_size, ADA), rounds)
        assert workload is there.workload(batch_size, rounds)
        assert workload.step is original.workload(batch_size, rounds).step
    loop = Loop(checkpointing="full")
    in_other = there.in_loop(loop)
    assert in_other is there.in_loop(loop)
    assert in_other is not None
    assert (in_other.base, in_other.original) == (step(4, ADA), original.in_loop(loop))
    assert captured == [2, loop]
    assert [each.base.compute_capability for each in there.at_lengths([1])] == [ADA]
    assert (there.batches, there.compares_samples) == (original.batches, False)
    assert there.find_line() is original.find_line()
    assert (there.can_be_of_any_batch, there.can_be_in_any_loop, there.can_be_of_any_length) == (True, True, False)


def test_a_loop_that_cannot_be_captured_cannot_on_the_other_card() -> None:
    there = CapturedOnCard(CapturedModel(step(4), capture_loop=lambda *_: None), ADA)
    assert there.in_loop(Loop(checkpointing="full")) is None


def test_a_model_without_a_capture_for_another_execution_says_so() -> None:
    with pytest.raises(ScenarioError, match=r"execution: found 'compiled', expected a capture for that"):
        CapturedModel(step(4)).executed("compiled")


def test_it_can_be_pickled() -> None:
    """Without what captures, as the model that it is of."""
    there = CapturedOnCard(CapturedModel(step(4), step(2), capture=step), ADA)
    again = pickle.loads(pickle.dumps(there))  # noqa: S301 - of this test
    assert again.workload(8) == there.workload(8)
    assert not again.can_be_of_any_batch


def test_a_model_is_captured_once_for_all_cards_alike() -> None:
    """Of an RTX 4090 and an L4, whose major version is that of an A100; an H100 has a capture of its own."""
    captured: list[tuple[int, int]] = []

    def capture(capability: tuple[int, int]) -> CapturedModel:
        captured.append(capability)
        return CapturedModel(step(4, capability))

    first = CapturedModel(step(4, ADA))
    models = ModelsByCard(first, ADA, capture, lambda _, one, other: one[0] == other[0])
    assert models.of(ADA) is first
    assert [models.of(each).base.compute_capability for each in ((8, 0), (9, 0), (9, 1))] == [(8, 0), (9, 0), (9, 1)]
    assert models.of((8, 0)).original is first
    assert models.of((9, 1)).original is models.of((9, 0))
    assert models.of((9, 1)) is models.of((9, 1))
    assert captured == [(9, 0)]
