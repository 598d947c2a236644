"""Steps between captures on sequences of several lengths; those of batches are in `test_captured_model.py`."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captured_steps import chain, sequences
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_sizes import Difference, Quantity, difference, interpolated
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.step import Tensor
from vdnnsim.errors import ScenarioError


def between(lengths: Sequence[int], wanted: int) -> CapturedStep | Difference:
    return interpolated([sequences(each) for each in lengths], Quantity.TOKENS, wanted)


@given(st.lists(st.integers(1, 500), min_size=3, max_size=3, unique=True), st.integers(1, 5000))
def test_a_parabola_through_three_lengths_is_the_capture(lengths: list[int], wanted: int) -> None:
    """A map of 16 t bytes and one of 8 t t."""
    assert between(lengths, wanted) == sequences(wanted)


def test_cubes_shrinking_sizes_and_fractions_are_refused() -> None:
    """Through 1, 8 and 27 there is a parabola, of 58 at 4 where 64 is captured; through 9, 4 and 1 one that shrinks.

    Through 1, 2 and 4 at 1, 2 and 3 there is t (t - 1) / 2 + 1, 1.375 at 1.5: of twice these lengths at 3.
    """

    def of(sizes: Sequence[int], wanted: int, factor: int = 1) -> CapturedStep | Difference:
        steps = [sequences(factor * (at + 1), square=size) for at, size in enumerate(sizes)]
        return interpolated(steps, Quantity.TOKENS, wanted)

    cubic = of([1, 8, 27], 4)
    assert isinstance(cubic, CapturedStep)
    assert str(difference(cubic, sequences(4, square=64))).startswith("storages[6]: is another in a capture at a batch")
    assert "which is no parabola" in str(of([9, 4, 1], 4))
    assert "1 at 2 tokens, 2 at 4, 4 at 6, which is no parabola" in str(of([1, 2, 4], 3, factor=2))
    assert "sample_elements: found 3 twice" in str(between([3, 3, 4], 5))


def test_views_that_coincide_at_one_length_are_one_there() -> None:
    """4 x t and t x 4 of storage 5 are the same at 4 tokens; its operation reads both, elsewhere."""

    def viewed(tokens: int) -> CapturedStep:
        step = sequences(tokens)
        shapes = dict.fromkeys(((4, tokens), (tokens, 4)))
        tensors = (*step.tensors, *(Tensor(5, shape, "float32") for shape in shapes))
        first, *others = step.operations
        read = [msgspec.structs.replace(first.operands[0], memory=len(step.tensors) + at) for at in range(len(shapes))]
        first = msgspec.structs.replace(first, operands=(*first.operands, *read))
        return msgspec.structs.replace(step, tensors=tensors, operations=(first, *others))

    found = interpolated([viewed(each) for each in (2, 3, 5)], Quantity.TOKENS, 4)
    assert found == viewed(4)


def test_a_model_is_captured_on_sequences_of_other_lengths() -> None:
    asked: list[int] = []

    def capture(lengths: Sequence[int]) -> list[CapturedModel]:
        asked.extend(lengths)
        return [CapturedModel(sequences(each)) for each in lengths]

    model = CapturedModel(sequences(8), lengths=[CapturedModel(sequences(16))], capture_lengths=capture)
    assert model.at_tokens(8) is model
    assert [each.tokens for each in model.at_lengths((16, 4, 32, 8))] == [16, 4, 32, 8]
    assert asked == [4, 32]
    assert model.at_tokens(4).workload(2).captured == sequences(4)
    assert asked == [4, 32]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (CapturedModel(sequences(8), lengths=[CapturedModel(sequences(4))]), "on sequences of 4 and 8 tokens, found 5"),
        (CapturedModel(sequences(8), capture_lengths=lambda _: [CapturedModel(sequences(6))]), "have sequences of 6"),
        (CapturedModel(chain(2), capture_lengths=lambda _: []), "reads images, expected a model of sequences"),
    ],
)
def test_a_length_that_cannot_be_captured_is_refused(model: CapturedModel, why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        model.at_tokens(5)
