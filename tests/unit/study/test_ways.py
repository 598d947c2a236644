"""Ways that are tried so that a captured model fits: segments that grow, micro-batches, other loops, other cards."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.answers import MIB, TYPES, answered, asked, blocks_of, of, with_storage
from tests.captured_ranks import sharded
from tests.captured_steps import Recording, X, Y, chain
from tests.machines import shipped_profile
from tests.trained_steps import linear
from vdnnsim.analysis.answer import Change, Way
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Module
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.dnn.workload import Mode
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import resolve_policy
from vdnnsim.report.document import Code
from vdnnsim.report.markdown import page
from vdnnsim.report.tables.answer import first_line
from vdnnsim.report.tables.changed_loops import how_to
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.study.answer import _Asking
from vdnnsim.study.answer_replays import AnswerReplays, held_bytes
from vdnnsim.study.less_work import micro_batches
from vdnnsim.study.replay_budget import CAPTURED, ReplayBudget
from vdnnsim.units import Precision


def paired(n: int) -> CapturedStep:
    """Return the chain with a view of all pairs of its images."""
    step = chain(n)
    pairs = msgspec.structs.replace(step.tensors[-1], shape=(n, n))
    return msgspec.structs.replace(step, tensors=(*step.tensors[:-1], pairs))


def test_micro_batches_of_samples_that_are_compared_come_behind_all_that_compute_the_same() -> None:
    """Half of 20,000 images has a quarter of their pairs; in 1.5 times what it takes it is the fastest that fits."""
    half = run_scenario(asked(CapturedModel(paired(10_000)), 64 * MIB)).results[0].metrics.allocated_bytes
    result, made = answered(asked(CapturedModel(paired(20_000), paired(10_000)), half * 3 // 2))
    (way,) = of(made, Change.MICRO_BATCHES)
    others = [each for each in made.ways if each.fits and each.change is Change.POLICY]
    assert way.fits
    assert others
    assert way.samples_per_s > others[0].samples_per_s
    assert made.ranked.index(way) > max(map(made.ranked.index, others))
    assert "`fewer pairs`" in page(blocks_of(result))
    assert not CapturedModel(chain(20), chain(10)).compares_samples


def with_gaps() -> CapturedStep:
    """Return a step whose 20 MiB in a segment that was of 40 keep it, and no other 40 are there beside the first 12.

    So segments are 12 + 40 + 40 = 92 MiB; one that grows has 12 + 20 + 40 = 72, in parts of 20.
    """
    note = Recording("gaps", 1, ["a", "b", "c", "d"])
    first, kept, part, last = (
        note.memory(name, BufferKind.FEATURE_MAP, (megabytes, 2**18), held=name == "last")
        for name, megabytes in (("first", 40), ("kept", 12), ("part", 20), ("last", 40))
    )
    note.run("a", "a", Phase.FORWARD, writes=[(Y, first)])
    note.run("b", "b", Phase.FORWARD, reads=[(X, first)], writes=[(Y, kept)])
    note.run("c", "c", Phase.FORWARD, reads=[(X, kept)], writes=[(Y, part)])
    note.run("d", "d", Phase.FORWARD, reads=[(X, part), (X, kept)], writes=[(Y, last)])
    return note.step(Mode.INFERENCE)


def test_expandable_segments_are_tried_against_pieces() -> None:
    """In 84 MiB, which is less than 92."""
    model = CapturedModel(with_gaps())
    result, made = answered(replace(asked(model, 84 * MIB), memory_model=MemoryModel.PYTORCH))
    before, after = of(made, Change.POLICY)
    assert (before.in_pieces, before.fits, after.fits, after.held_bytes) == (True, False, True, 80 * MIB)
    commands = [each.text for each in blocks_of(result) if isinstance(each, Code)]
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py  # your script" in commands
    assert any("no free piece is large enough" in str(each) for each in blocks_of(result))


def test_expandable_segments_are_tried_in_another_loop() -> None:
    """Whose step is the same; with budget for its capture and replay alone, not so far."""
    model = CapturedModel(with_gaps(), capture_loop=lambda *_: CapturedModel(with_gaps()))
    scenario = replace(asked(model, 84 * MIB), memory_model=MemoryModel.PYTORCH)
    result, loop = run_scenario(scenario), Loop(checkpointing="full")
    assert first_line(result).startswith(
        "Does not fit into 84.0 MiB: pytorch(p) needs 92.0 MiB, of which 72.0 MiB are allocated."
    )
    for operations, tried in ((1000, [(True, False, False), (False, True, False)]), (0, [(False, False, True)])):
        asking = _Asking(AnswerReplays.begin(scenario, result, TYPES, ReplayBudget(operations)))
        found = asking.done
        for way in asking._in_loop(loop):  # noqa: SLF001
            found.append(way)
        assert [(way.in_pieces, way.fits, way.untried) for way in found] == tried
        assert [way.expandable for way in found] == [False, True][: len(found)]
    words = msgspec.structs.replace(found[0], expandable=True, loop=Loop(optimizer="adamw_fused"))
    assert how_to(result, words).endswith(
        "\n# run by: PYTORCH_ALLOC_CONF=expandable_segments:True python train.py  # your script"
    )
    planned = msgspec.structs.replace(found[0], expandable=True, loop=Loop(), policy="memonger(p)")
    assert how_to(result, planned) == (
        "PYTORCH_ALLOC_CONF=expandable_segments:True "
        f"vdnnsim apply --policy 'memonger(p)' --hardware {planned.hardware} -- python train.py  # your script"
    )


@pytest.mark.parametrize(("more", "tried"), [(1.05, [(1, False), (2, True)]), (1.2, [(1, False)])])
def test_micro_batches_that_nearly_fit_are_tried_in_segments_that_grow(
    more: float, tried: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four samples: parts of two, which take 5 % more than there is; not if it were 20 %. One at a time fits."""
    scenario = replace(asked(CapturedModel(chain(4), chain(2)), MIB), memory_model=MemoryModel.PYTORCH)
    asking = _Asking(AnswerReplays.begin(scenario, run_scenario(scenario), TYPES, ReplayBudget()))

    def divided(replays: AnswerReplays, name: str, parts: int) -> Way:
        held = MIB // 2 if parts == 4 else int(more * MIB)
        way = replays.untried(name, replays.scenario, Change.MICRO_BATCHES)
        return msgspec.structs.replace(way, batch_size=4 // parts, iteration_s=1.0, held_bytes=held, reason="")

    monkeypatch.setattr(AnswerReplays, "divided", divided)
    whole = asking.replays.untried("pytorch", scenario)
    asking.done.append(msgspec.structs.replace(whole, held_bytes=2 * MIB, reason=""))
    monkeypatch.setattr("vdnnsim.study.less_work.estimated_bytes", lambda *_: 0)
    found = list(micro_batches(asking.replays, asking.done, "pytorch"))
    assert [(way.batch_size, way.expandable) for way in found] == tried


def test_checkpoints_of_blocks_are_tried_in_micro_batches_where_nothing_fits() -> None:
    """Of the whole batch, in a loop whose step is the same as without it; a way that fits leaves them out.

    The loop is captured and replayed in either case, micro-batches with budget for a second capture.
    """
    model, loop = CapturedModel(chain(20_000), chain(10_000)), Loop(checkpointing="full")
    scenario = asked(CapturedModel(chain(20_000), chain(10_000), capture_loop=lambda *_: model), MIB)
    result = run_scenario(scenario)
    step = len(chain().operations)
    for operations, has_fitting, found in (
        (100 * step, False, [False, True]),
        (100 * step, True, [False]),
        ((CAPTURED + 1) * step, False, [False, False]),
    ):
        asking = _Asking(AnswerReplays.begin(scenario, result, TYPES, ReplayBudget(operations)))
        if has_fitting:
            whole = asking.replays.without_limit.plain("pytorch")
            asking.done.append(msgspec.structs.replace(whole, held_bytes=1))
        ways = []
        for way in asking._in_loop(loop):  # noqa: SLF001
            ways.append(way)
            asking.done.append(way)
        assert [way.fits for way in ways] == found
        assert all((way.loop, way.batch_size * way.rounds) == (loop, 20_000) for way in ways)
        assert [way.change for way in ways] == [Change.POLICY, Change.MICRO_BATCHES][: len(ways)]


@pytest.mark.parametrize(("mib", "are_checkpointed"), [(36, [False, True]), (35, [True, False])])
def test_a_fused_update_is_tried_before_checkpoints_where_the_rest_fits(mib: int, are_checkpointed: list[bool]) -> None:
    """Backward takes 32.3 MiB; of 36 MiB 33.0 are left without 5 % for peaks and 4 % for gaps, of 35 only 32.1."""
    container = Module("layers", "torch.nn.modules.container.ModuleList")
    blocks = (Module(f"layers.{at}", "x.Layer") for at in range(2))
    layers = (Module(f"layers.{at}.fc", "x.Linear") for at in range(2))
    step = msgspec.structs.replace(linear(), modules=(container, *blocks, *layers), precision=Precision.AMP_BFLOAT16)
    storages = (
        msgspec.structs.replace(each, name="layers.0.fc.weight") if each.kind is BufferKind.WEIGHTS else each
        for each in step.storages
    )
    step, asked_for = msgspec.structs.replace(step, storages=tuple(storages)), list[Loop]()
    answered(asked(CapturedModel(step, capture_loop=lambda loop, _: asked_for.append(loop)), mib * MIB))
    kinds = [bool(each.checkpointing) for each in asked_for if each.is_exact and not each.in_backward]
    assert kinds == are_checkpointed


def test_micro_batches_that_an_estimate_rules_out_are_tried_behind_policies() -> None:
    """Weights leave 20 B of what surely fits, less than the maps of an image; still they are a row."""
    kind, nbytes = BufferKind.WEIGHTS, int(MIB / 1.05) - held_bytes(chain(2)) - 20
    model = CapturedModel(*(with_storage(chain(batch), kind, nbytes) for batch in (20_000, 10_000)))
    _, made = answered(asked(model, MIB))
    (copies,) = of(made, Change.POLICY, "save_on_cpu(p)")
    (way,) = of(made, Change.MICRO_BATCHES)
    assert (way.fits, way.batch_size) == (False, 1)
    assert made.ways.index(way) > made.ways.index(copies)


def test_other_batches_of_one_capture_have_a_reason() -> None:
    """The other policies are rows all the same."""
    _, made = answered(asked(CapturedModel(chain(20_000)), MIB))
    (way,) = of(made, Change.MICRO_BATCHES)
    assert "was captured at a batch of 20000" in way.reason
    assert of(made, Change.BATCH) == []
    assert len(made.ways) > 8


def test_no_batch_helps_against_weights_and_states() -> None:
    """Weights of 32 MiB do not fit into 8 MiB; the next larger card that is shipped holds them."""
    step = with_storage(chain(4), BufferKind.WEIGHTS, 32 * MIB)
    _, made = answered(asked(CapturedModel(step), 8 * MIB))
    assert [way.change for way in made.ways] == [Change.POLICY, Change.CARD]
    assert made.notes[1].startswith(
        "No smaller batch helps in the loop as it is: 32.0 MiB of parameters and 12 B of their gradients"
    )
    # Autocast would leave weights as they are.
    assert len(made.notes) == 2


def test_states_on_the_host_are_tried_where_the_rest_fits() -> None:
    step = with_storage(chain(4), BufferKind.OPTIMIZER_STATE, 32 * MIB)
    _, made = answered(asked(CapturedModel(step), 8 * MIB))
    assert [way.policy for way in made.ways][-1].startswith("optimal(offload_optimizer")
    assert made.notes[2].startswith("Not tried: an optimizer without states, `--optimizer sgd`: 24 B")


@pytest.mark.parametrize(("gib", "found"), [(35, ["a100_40gb"]), (1000, [])])
def test_the_smallest_card_that_fits_is_tried(gib: int, found: Sequence[str]) -> None:
    """A step of 35 GiB of weights: the smallest shipped card with more is that of 40 GB, for a V100 has 31.7."""
    step = with_storage(chain(4), BufferKind.WEIGHTS, gib * 2**30)
    _, made = answered(asked(CapturedModel(step), 24 * 2**30))
    assert [way.hardware for way in of(made, Change.CARD)] == found


@pytest.mark.parametrize(("operations", "is_tried"), [(15_000, True), (12_900, False)])
def test_a_search_on_a_larger_card_counts_as_one(operations: int, is_tried: bool) -> None:  # noqa: FBT001 - a case
    """It counts 15,000 operations, 2,000 of which may be beyond: all else takes less than 100, and a part fits."""
    _, made = answered(asked(CapturedModel(chain(20_000), chain(10_000)), MIB, "optimal"), ReplayBudget(operations))
    (found,) = of(made, Change.CARD, "optimal")
    assert (found.fits, found.untried) == (is_tried, not is_tried)
    assert any(way.fits for way in of(made, Change.MICRO_BATCHES, "checkpoint(p)"))


def test_a_rank_is_tried_on_cards_with_links_to_the_others() -> None:
    """A rank of eight has weights of 100 GiB, more than an H100 holds; of machines with eight linked GPUs H200 do."""
    of_all = msgspec.structs.replace(sharded(), ranks=8, parallel="fsdp=8")
    first = msgspec.structs.replace(of_all.storages[0], nbytes=100 * 2**30)
    model = CapturedModel(msgspec.structs.replace(of_all, storages=(first, *of_all.storages[1:])))
    scenario = scenario_of(model, "x", shipped_profile("h100_x8"), (resolve_policy("pytorch", TYPES),))
    _, made = answered(replace(scenario, memory_model=MemoryModel.IDEAL))
    assert [way.hardware for way in of(made, Change.CARD)] == ["h200_x8"]
