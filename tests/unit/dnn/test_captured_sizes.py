"""Steps between captures on sequences of several lengths; those of batches are in `test_captured_model.py`."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captured_steps import chain, sequences
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_sizes import Difference, Quantity, difference, has_pairs, interpolated
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


def with_views(size: int, step: CapturedStep) -> CapturedStep:
    """Return a step whose first three operations read storage 5 as 4 x size, as size x 4 and as size x 2."""
    shapes = ((4, size), (size, 4), (size, 2))
    views = list(dict.fromkeys(shapes))
    tensors = (*step.tensors, *(Tensor(5, shape, "float32") for shape in views))
    operations = list(step.operations)
    for at, shape in enumerate(shapes):
        read = msgspec.structs.replace(operations[at].operands[0], memory=len(step.tensors) + views.index(shape))
        operands = (*operations[at].operands, read)
        operations[at] = msgspec.structs.replace(operations[at], operands=operands)
    return msgspec.structs.replace(step, tensors=tensors, operations=tuple(operations))


def used_alone(step: CapturedStep) -> CapturedStep:
    """Return a step whose tensors are numbered as operations first use them, as those of a capture are."""
    used = dict.fromkeys(operand.memory for each in step.operations for operand in each.operands)
    number = {each: at for at, each in enumerate(used)}
    operations = []
    for each in step.operations:
        operands = tuple(msgspec.structs.replace(one, memory=number[one.memory]) for one in each.operands)
        operations.append(msgspec.structs.replace(each, operands=operands))
    return msgspec.structs.replace(
        step, tensors=tuple(step.tensors[each] for each in used), operations=tuple(operations)
    )


def test_views_that_coincide_in_a_capture_are_two_elsewhere() -> None:
    """Of captures at 3, 4 and 5 tokens that at 4 has one view fewer; that at 6 follows all the same."""
    captures = {each: used_alone(with_views(each, sequences(each))) for each in (3, 4, 5, 6)}
    assert [len(captures[each].tensors) - len(captures[3].tensors) for each in (4, 5)] == [-1, 0]
    found = interpolated([captures[each] for each in (3, 4, 5)], Quantity.TOKENS, 6)
    assert found == captures[6]


def test_the_order_of_tensors_is_no_difference() -> None:
    """A step whose tensors are numbered from the last to the first is the same; one of 5 samples is another."""
    step = used_alone(chain(4))
    last = len(step.tensors) - 1
    operations = []
    for each in step.operations:
        operands = tuple(msgspec.structs.replace(one, memory=last - one.memory) for one in each.operands)
        operations.append(msgspec.structs.replace(each, operands=operands))
    turned = msgspec.structs.replace(step, tensors=step.tensors[::-1], operations=tuple(operations))
    assert difference(turned, step) is None
    assert difference(turned, used_alone(chain(5))) is not None


def test_views_that_coincide_are_no_pairs() -> None:
    """At a batch of 4 the views 4 x 4 and 4 x 4 are one, at 8 they are two: no tensor has two dimensions that grow.

    By their numbers the view 4 x 2 at 4 would be 8 x 4 at 8. One of 4 x 4 that is of 8 x 8 at twice the batch has.
    """
    small, large = (used_alone(with_views(each, chain(each))) for each in (4, 8))
    assert not has_pairs(small, large)
    assert not has_pairs(large, small)

    def square(batch_size: int) -> CapturedStep:
        step = chain(batch_size)
        shaped = msgspec.structs.replace(step.tensors[-1], shape=(batch_size, batch_size))
        return used_alone(msgspec.structs.replace(step, tensors=(*step.tensors[:-1], shaped)))

    assert has_pairs(square(4), square(8))


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
