"""The step of a batch size of those of two others."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.captured_steps import chain
from vdnnsim.dnn.captured_model import Difference, at_batch
from vdnnsim.dnn.captured_step import CapturedStep

SIZES = st.integers(1, 1000)


def with_storage(step: CapturedStep, number: int, nbytes: int) -> CapturedStep:
    storages = list(step.storages)
    storages[number] = msgspec.structs.replace(storages[number], nbytes=nbytes)
    return msgspec.structs.replace(step, storages=tuple(storages))


@given(SIZES, SIZES, SIZES)
def test_what_grows_on_a_line_is_what_would_have_been_captured(first: int, second: int, wanted: int) -> None:
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


def test_what_is_no_whole_number_at_a_batch_is_refused_there_alone() -> None:
    """5 B at 2 and 8 B at 4 grow by 3 for 2: 11 B at 6, and nothing at 5."""
    low, high = with_storage(chain(2), 9, 5), with_storage(chain(4), 9, 8)
    assert at_batch(low, high, 6) == with_storage(chain(6), 9, 11)
    assert str(at_batch(low, high, 5)) == (
        "storages[9].nbytes: 5 at a batch of 2, 8 at 4, which is no line through the batch"
    )


def test_what_shrinks_as_the_batch_grows_is_refused() -> None:
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
        "batch_size: found 2 in both, expected two batch sizes",
    ]


def test_notes_are_those_of_the_first() -> None:
    low = msgspec.structs.replace(chain(2), notes=("two images",))
    assert at_batch(low, chain(4), 8) == msgspec.structs.replace(chain(8), notes=("two images",))
