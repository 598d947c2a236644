"""Checkpoints of each block where they have no room for the whole batch: captured as micro-batches at once."""

from dataclasses import replace as in_model

import pytest
from msgspec.structs import replace

from tests.answers import TYPES, answered, asked, of
from tests.trained_steps import MIB, blocks
from vdnnsim.analysis.answer import Change, Way
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.study.answer import _Asking
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.replay_budget import CAPTURED, ReplayBudget


def model(captured: list[tuple[Loop, int]]) -> CapturedModel:
    def in_loop(loop: Loop, batch_size: int) -> CapturedModel:
        captured.append((loop, batch_size))
        return CapturedModel(blocks(batch_size, checkpointed=True))

    return CapturedModel(blocks(16), capture=blocks, capture_loop=in_loop)


CHECKPOINTS = Loop(checkpointing="full")


@pytest.mark.parametrize(("mib", "batch_size", "fits"), [(56, 2, True), (20, 1, False), (212, 16, False)])
def test_the_largest_part_with_room_is_captured_or_a_single_sample(mib: int, batch_size: int, fits: bool) -> None:  # noqa: FBT001 - of the table
    """Of 56 MiB 53.3 are sure, 51.2 of them without gaps; beside 16 of weights and gradients 256 / 8 fit, not / 4.

    In parts of two 16 + 16 of inputs, 16 of a block with its gradients, and 2 of a gradient are live: 50. Of 20 MiB 2.3
    are left, less than the 16 of a sample. Of 212 MiB 201.9 are sure: more than the 200 that the whole batch takes at
    the least, so that is captured. Without checkpoints a sample takes more than 40.
    """
    captured: list[tuple[Loop, int]] = []
    _, made = answered(asked(model(captured), mib * MIB))
    assert captured[0] == (CHECKPOINTS, batch_size)
    change = Change.POLICY if batch_size == 16 else Change.MICRO_BATCHES
    way = next(way for way in of(made, change) if way.loop == CHECKPOINTS)
    assert (way.batch_size, way.rounds, way.fits) == (batch_size, 16 // batch_size, fits)


def test_a_micro_batch_with_checkpoints_is_captured_within_a_capture_and_two_replays() -> None:
    """Without budget it is a way that was not tried; where something fits there is none."""
    captured: list[tuple[Loop, int]] = []
    scenario = asked(model(captured), 56 * MIB)
    result, operations = run_scenario(scenario), len(blocks(16).operations)
    for budget, has_fitting, tried in (
        ((CAPTURED + 2) * operations, False, [True]),
        (0, False, [False]),
        (0, True, []),
    ):
        asking = _Asking(AnswerReplays.begin(scenario, result, TYPES, ReplayBudget(budget)))
        if has_fitting:
            whole = asking.replays.without_limit.plain("pytorch")
            asking.done.append(replace(whole, held_bytes=1))
        assert [not way.untried for way in asking._in_loop(CHECKPOINTS)] == tried  # noqa: SLF001


def test_a_loop_in_bfloat16_has_half_of_what_is_held() -> None:
    """Of 12 MiB 11.4 are sure, less than the 16 of weights and gradients in float32; in bfloat16 2.9 are left of them.

    So a single sample is captured there, and none in the loop with autocast.
    """
    captured: list[tuple[Loop, int]] = []
    scenario = asked(model(captured), 12 * MIB)
    asking = _Asking(AnswerReplays.begin(scenario, run_scenario(scenario), TYPES, ReplayBudget()))
    narrow = replace(CHECKPOINTS, precision="bfloat16")
    for loop in (CHECKPOINTS, narrow):
        list(asking._in_loop(loop))  # noqa: SLF001
    assert captured == [(narrow, 1)]


def test_what_holds_least_is_tried_before_other_loops_while_nothing_fits() -> None:
    """A sample with checkpoints takes 33 MiB, and the whole batch keeps 648, so that no plain loop of it fits in 20.

    So the last exact loop comes next, with and without checkpoints, with policies in it and a search. In 56 MiB two
    samples fit with checkpoints, and other loops are tried in turn.
    """
    leanest = Loop(optimizer="sgd_fused", in_backward=True)
    captured: list[tuple[Loop, int]] = []
    _, made = answered(asked(model(captured), 20 * MIB))
    assert captured[1:3] == [(replace(leanest, checkpointing="full"), 16), (leanest, 16)]
    policies = ["pytorch(p)", "checkpoint(p)", "save_on_cpu(p)"]
    of_loops = [way for way in made.ways if way.loop.changes][1:]
    assert [way.policy for way in of_loops if way.loop == replace(leanest, checkpointing="full")] == policies
    assert [way.policy for way in of_loops[3:7]] == [*policies, "optimal"]
    assert {way.loop for way in of_loops[3:7]} == {leanest}
    _, made = answered(asked(model([]), 56 * MIB))
    assert not any(way.loop.checkpointing and way.loop.in_backward for way in made.ways)


def test_a_loop_that_was_tried_as_a_whole_is_no_second_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single sample takes 33 MiB with checkpoints, of 20, and is captured whole; policies in that loop follow."""
    fused = Loop(optimizer="sgd_fused")
    checkpointed = replace(fused, checkpointing="full")
    monkeypatch.setattr("vdnnsim.study.answer.lighter_loops", lambda *_: (fused, checkpointed))
    single = CapturedModel(blocks(1), capture=blocks, capture_loop=model([]).in_loop)
    _, made = answered(asked(single, 20 * MIB))
    ways = [(way.change, way.policy, way.loop) for way in made.ways]
    assert len(set(ways)) == len(ways)
    assert [policy for _, policy, loop in ways if loop == checkpointed] == [
        "pytorch(p)",
        "checkpoint(p)",
        "save_on_cpu(p)",
    ]


def test_a_micro_batch_that_lacks_pieces_is_tried_in_segments_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyTorch's allocator has bytes enough and no piece that is large enough."""
    scenario = in_model(asked(model([]), 56 * MIB), memory_model=MemoryModel.PYTORCH)
    asking = _Asking(AnswerReplays.begin(scenario, run_scenario(scenario), TYPES, ReplayBudget()))

    def divided(replays: AnswerReplays, name: str, parts: int) -> Way:
        return replace(replays.untried_parts(name, parts), in_pieces=True, untried=False, reason="")

    monkeypatch.setattr(AnswerReplays, "divided", divided)
    assert [way.expandable for way in asking._in_loop(CHECKPOINTS)] == [False, True]  # noqa: SLF001


@pytest.mark.parametrize(("mib", "size", "larger"), [(120, 2, 4), (200, 2, 4), (450, 8, None)])
def test_larger_micro_batches_than_fit_in_a_plain_loop_are_searched(mib: int, size: int, larger: int | None) -> None:
    """Samples take some 40 MiB beside 16 of weights and gradients: in 120 MiB two fit, in 450 eight, of sixteen.

    Four fit in 120 with a search, and in less time. A search of twice eight is one of the whole batch.
    """
    _, made = answered(asked(CapturedModel(blocks(16), capture=blocks), mib * MIB))
    plain, *searched = (*of(made, Change.MICRO_BATCHES), *of(made, Change.MICRO_BATCHES, "optimal"))
    assert (plain.batch_size, plain.fits) == (size, True)
    assert [(way.batch_size, way.fits, way.is_applied) for way in searched] == [(larger, True, True)] * bool(larger)
    assert all(way.iteration_s < plain.iteration_s for way in searched)
