"""What is tried in other loops for a captured model that does not fit."""

from dataclasses import replace

import msgspec
import pytest

from tests.answers import answered, asked, blocks_of
from tests.captured_steps import chain
from tests.machines import shipped_profile
from tests.nested import changed
from tests.trained_steps import MIB, blocks, linear
from vdnnsim.analysis.answer import Answer, Change, Way
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep, ProgramText
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.document import Code
from vdnnsim.report.tables.answer import _results, answer_notes, progress_row, sentences
from vdnnsim.report.tables.changed_loops import how_to
from vdnnsim.report.tables.training_script import script_begin
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.units import GIB, Precision

NARROW = "adamw8bit"
AUTOCAST = Precision.AMP_BFLOAT16


def in_loop(loop: Loop, _batch_size: int) -> CapturedModel:
    return CapturedModel(linear(loop.optimizer or "adamw", in_backward=bool(loop.in_backward)))


def test_an_update_that_does_not_fit_is_done_otherwise() -> None:
    """In 40 / 1.05 = 38 MiB: 8 + 16 + 8 of weights, states and gradients, and a root of 8, which fused has not.

    No policy and no smaller batch is tried in the loop as it is; updates in backward are tried last.
    """
    result, made = answered(asked(CapturedModel(linear(), capture_loop=in_loop), 40 * MIB))
    assert [(way.policy, str(way.loop), way.fits) for way in made.ways if way.change is not Change.CARD] == [
        ("pytorch(p)", "", False),
        ("pytorch(p)", "adamw_fused", True),
        ("pytorch(p)", NARROW, True),
        ("pytorch(p)", "adamw_fused, amp_bfloat16", True),
        ("pytorch(p)", f"{NARROW}, amp_bfloat16", True),
        ("pytorch(p)", "adamw_fused in backward", True),
    ]
    ranks = [str(way.loop) for way in made.ranked if way.fits]
    assert {"adamw_fused", "adamw_fused in backward"} <= set(ranks)
    assert any("temporaries" in each and "No smaller batch helps" in each for each in made.notes)
    assert any("40.0 MiB are live: " in each and "16.0 MiB of states of adamw" in each for each in made.notes)
    assert "Not tried: several GPUs, `vdnnsim.parallel(step, 'rtx_4090_x8')` of a step at a batch of 1" in made.notes
    codes = [how_to(result, way) for way in made.ranked]
    begin = "# before the loop:\noptimizer = torch.optim.AdamW(model.parameters(), fused=True)\n# each step:\n"
    assert any(each.startswith(begin) for each in codes)
    assert any("register_post_accumulate_grad_hook(update)" in each for each in codes)
    assert any("adamw_fused in backward" in progress_row(way) for way in made.ways)
    assert any("with adamw_fused" in each for each in sentences(result))


def test_several_gpus_are_tried_by_a_command_with_the_options_of_the_question() -> None:
    """Of a model that it finds, which was captured by its name; micro-batches are those of the workload."""
    program = ProgramText(model="linear()", options="--lora 16")
    model = CapturedModel(msgspec.structs.replace(linear(), program=program), capture_loop=in_loop, rounds=2)
    scenario = replace(asked(model, 40 * MIB), workload=model.workload(1))
    _, made = answered(scenario)
    command = "vdnnsim parallel linear --batch 1 --accumulate 2 --lora 16 --hardware rtx_4090_x8"
    assert f"Not tried: several GPUs, `{command}`" in made.notes


def test_loops_that_cannot_be_captured_are_named() -> None:
    _, made = answered(asked(CapturedModel(linear()), 40 * MIB))
    assert any("`--optimizer adamw_fused --in-backward`" in each for each in made.notes)


def test_a_loss_that_cannot_be_cut_leaves_the_other_loops() -> None:
    """Logits of 256 KiB for each of 20 tokens are much of 64 MiB; the first capture with slices fails."""

    def captured(loop: Loop, batch_size: int) -> CapturedModel | None:
        return None if loop.loss_chunks else in_loop(loop, batch_size)

    _, made = answered(asked(CapturedModel(linear(tokens=20), capture_loop=captured), 64 * MIB))
    tried = {str(way.loop) for way in made.ways}
    assert {"adamw_fused in backward", NARROW} <= tried
    assert not any(way.loop.loss_chunks for way in made.ways)


def test_a_sequence_for_which_nothing_else_fits_is_cut() -> None:
    """Of 400 tokens logits, logarithms and their gradients take 200 MiB, of 100 tokens 50, beside 32 MiB; 96 fit."""

    def of(tokens: int) -> CapturedModel:
        step = msgspec.structs.replace(
            linear("adamw_fused", tokens=tokens), sample="sequence", sample_elements=tokens, precision=AUTOCAST
        )
        return CapturedModel(step, capture_lengths=lambda lengths: [of(each) for each in lengths])

    result, made = answered(asked(of(400), 96 * MIB))
    (way,) = (way for way in made.ways if way.change is Change.SEQUENCE)
    assert (way.tokens, way.fits, way.policy) == (100, True, "pytorch(p)")
    assert any("batch[:, :100]" in each.text for each in blocks_of(result) if isinstance(each, Code))
    assert any("sequences of 100 tokens" in each for each in sentences(result))


def test_each_way_says_how_its_results_differ() -> None:
    """Chunks, a fused update and micro-batches add in another order; checkpoints and copies run the same kernels.

    The chain has batch normalization, so that its micro-batches differ by more.
    """
    result = run_scenario(asked(CapturedModel(chain(4)), MIB // 256))
    layers = tuple(each for each in result.workload.graph.layers if each.kind is not LayerKind.BN)
    graph = replace(result.workload.graph, layers=layers)
    plain = replace(result, workload=replace(result.workload, graph=graph))
    for change, loop, said in (
        (Change.POLICY, Loop(), ""),
        (Change.POLICY, Loop(checkpointing="full"), ""),
        (Change.POLICY, Loop(param_groups=8), ""),
        (Change.POLICY, Loop(optimizer="adamw_fused"), "last bits"),
        (Change.POLICY, Loop(loss_chunks=4), "last bits"),
        (Change.MICRO_BATCHES, Loop(), "last bits"),
        (Change.CARD, Loop(), "last bits"),
        (Change.MICRO_BATCHES, Loop(precision="amp_bfloat16"), "rounded"),
        (Change.BATCH, Loop(), "of another batch"),
    ):
        way = Way(change=change, policy="x", loop=loop, batch_size=4, hardware="x", memory_bytes=MIB, iteration_s=1.0)
        assert _results(plain, way) == said
        assert ("`last bits`: " in str(answer_notes(replace(plain, answer=Answer((way,)))))) is (said == "last bits")
    parts = Way(change=Change.MICRO_BATCHES, policy="x", batch_size=4, hardware="x", memory_bytes=MIB)
    assert _results(result, parts) == "normalized in parts"
    narrow = msgspec.structs.replace(parts, loop=Loop(precision="amp_float16"))
    assert _results(result, narrow) == "normalized in parts, rounded"


def test_another_autocast_is_tried_in_micro_batches_where_the_whole_has_no_room() -> None:
    """In it 16 samples take 728 MiB as without, of which one has room in 100 / 1.05."""
    step = msgspec.structs.replace(blocks(16), precision=AUTOCAST, device="cuda 7.5")

    def in_float16(batch_size: int) -> CapturedStep:
        return msgspec.structs.replace(step_at(batch_size), precision=Precision.AMP_FLOAT16)

    def step_at(batch_size: int) -> CapturedStep:
        return msgspec.structs.replace(blocks(batch_size), precision=AUTOCAST, device="cuda 7.5")

    def other_loop(loop: Loop, batch_size: int) -> CapturedModel | None:
        return CapturedModel(in_float16(batch_size), capture=in_float16) if loop.precision else None

    result, made = answered(asked(CapturedModel(step, capture=step_at, capture_loop=other_loop), 100 * MIB))
    ways = [way for way in made.ways if way.loop == Loop(precision="amp_float16") and way.policy == "pytorch(p)"]
    assert [(way.rounds, way.fits) for way in ways] == [(1, False), (16, True)]
    lines = how_to(result, ways[1])
    assert 'torch.autocast("cuda", torch.float16)' in lines
    assert "bfloat16" not in lines
    assert "scaler.scale((loss_of(" in lines
    lines = how_to(result, msgspec.structs.replace(ways[1], loop=Loop(precision="bfloat16")))
    assert 'model.to("cuda", torch.bfloat16)' in lines
    assert "autocast" not in lines
    assert "scaler" not in lines


def test_autocast_of_a_step_in_float32_is_tried_in_micro_batches_too() -> None:
    """In 100 / 1.05 MiB one sample of 728 / 16 fits; the whole batch is faster than 16 of them, narrow as well."""

    def narrow(batch_size: int) -> CapturedStep:
        return msgspec.structs.replace(blocks(batch_size), precision=AUTOCAST)

    def other_loop(loop: Loop, batch_size: int) -> CapturedModel | None:
        return CapturedModel(narrow(batch_size), capture=narrow) if loop.precision and not loop.in_backward else None

    _, made = answered(asked(CapturedModel(blocks(16), capture=blocks, capture_loop=other_loop), 100 * MIB))
    ways = [way for way in made.ways if way.loop.precision and way.policy == "pytorch(p)"]
    assert (Change.MICRO_BATCHES, True) in [(way.change, way.fits) for way in ways]


@pytest.mark.parametrize(("memory_bytes", "on_host"), [(GIB, False), (1, True)])
def test_a_model_whose_weights_have_no_room_is_made_on_the_host(memory_bytes: int, *, on_host: bool) -> None:
    """From where the lines of a way move it in narrower types."""
    step = msgspec.structs.replace(blocks(2), program=ProgramText((), "Net()", batch="ids"))
    result, _ = answered(asked(CapturedModel(step), GIB))
    gpu = replace(result.server.gpu, memory_bytes=memory_bytes)
    begin = script_begin(replace(result, server=replace(result.server, gpu=gpu)))
    assert ('\nmodel = Net()\nwith torch.device("cuda"):\n    batch = ids' in begin) is on_host
    assert 'model.to("cuda")' not in begin


def test_what_apply_refuses_of_a_rank_is_not_tried() -> None:
    """Of one that FSDP shards what recomputes and searches is for `apply`; copies of a plain loop remain.

    Two of four ranks train the same 20,000 samples, of which each has 10,000.
    """
    said = {"ranks": 4, "parallel": "fsdp=2,tp=2", "program": ProgramText(model="chain", options="--lora 16")}

    def rank(n: int, *, is_sharded: bool) -> CapturedStep:
        step = msgspec.structs.replace(chain(n), **said)
        name = "fsdp.all_gather_copy_in" if is_sharded else step.operations[0].name
        first = msgspec.structs.replace(step.operations[0], name=name)
        return msgspec.structs.replace(step, operations=(first, *step.operations[1:]))

    def ways(*, is_sharded: bool) -> Answer:
        steps = [rank(n, is_sharded=is_sharded) for n in (20_000, 10_000)]
        model = CapturedModel(*steps, capture_loop=lambda *_: CapturedModel(steps[0]))
        profile = changed(shipped_profile("rtx_4090_x8"), "server.gpu", memory_bytes=MIB, context_bytes=0)
        scenario = replace(scenario_of(model, "x", profile, (PyTorch(),)), memory_model=MemoryModel.IDEAL)
        return answered(scenario)[1]

    whole, sharded = ways(is_sharded=False), ways(is_sharded=True)
    policies = ({way.policy for way in each.ways if way.is_applied} for each in (whole, sharded))
    assert [{"checkpoint(p)", "save_on_cpu(p)"} <= each for each in policies] == [True, False]
    assert not any(way.is_applied for way in sharded.ways)
    assert any(way.policy == "save_on_cpu(p)" for way in sharded.ways)
    command = "vdnnsim parallel chain --batch 10000 --gpus 4 --lora 16 --hardware rtx_4090_x8"
    assert f"Not tried: other layouts, `{command}`" in whole.notes
