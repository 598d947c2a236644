"""A captured model on another card for which the same is captured."""

import pickle

import msgspec

from tests.captured_steps import chain
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_on_card import CapturedOnCard, ModelsByCard
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.training_loops import Loop

ADA = (8, 9)


def step(batch_size: int, capability: tuple[int, int] = (8, 0)) -> CapturedStep:
    return msgspec.structs.replace(chain(batch_size), device="cuda {}.{}".format(*capability))


def test_other_batches_loops_and_lengths_are_captured_once_for_both() -> None:
    """Batches of 4 and 2 are, and the loop at 4; 8 follows from them, on both cards."""
    captured: list[int | Loop] = []

    def capture(batch_size: int) -> CapturedStep:
        captured.append(batch_size)
        return step(batch_size)

    def in_loop(loop: Loop) -> CapturedModel:
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
    there = CapturedOnCard(CapturedModel(step(4), capture_loop=lambda _: None), ADA)
    assert there.in_loop(Loop(checkpointing="full")) is None


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
