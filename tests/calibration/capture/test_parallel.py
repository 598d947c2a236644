"""One rank of several, captured alone.

A block of the model in `ranks` has 16 x 64 + 64 + 64 x 16 + 16 = 2,128 parameters, its head 16 x 8 + 8 = 136: in
float32 8,512 and 544 B, that four ranks divide without a rest.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch import distributed, nn

from calibration.capture.blocks import blocks_of
from calibration.capture.capture import capture
from calibration.capture.parallel.world import rank_of
from calibration.capture.program import CaptureDevice
from calibration.capture.request import Request
from tests.calibration.capture.ranks import (
    BLOCK,
    HEAD,
    SAMPLES,
    B,
    Block,
    F,
    Net,
    asked_of,
    captured,
    collectives,
    program,
    sizes,
)
from tests.captured_steps import simulator
from tests.toy import ROOT
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import CaptureError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Communicate
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import Precision


def test_fsdp_gathers_each_block_before_it_runs_and_reduces_behind_it() -> None:
    """In forward the root, whose head runs last, and both blocks; in backward the blocks again, the next one ahead.

    The second block is reduced behind its backward, then the root, whose hook runs at the end, and the first block.
    """
    step = captured("fsdp=4")

    assert (step.parallel, step.ranks, step.parameters) == ("fsdp=4", 4, 2 * 2128 + 136)
    assert sizes(step, F) == [("all_gather", each) for each in (HEAD, BLOCK, BLOCK)]
    assert sizes(step, B) == [
        *[("all_gather", BLOCK)] * 2,
        ("reduce_scatter", BLOCK),
        ("reduce_scatter", HEAD),
        ("reduce_scatter", BLOCK),
    ]
    assert {(each.ranks, each.stride, each.element_type) for each in collectives(step)} == {(4, 1, "float32")}
    # All of them, and the copies into their buffers, run beside kernels, and no kernel does.
    aside = {each.name for each in step.operations if each.aside}
    assert aside == {
        "aten.empty.memory_format",
        "fsdp.all_gather_copy_in.default",
        "c10d._allgather_base_.default",
        "c10d._reduce_scatter_base_.default",
    }


def test_a_rank_holds_a_quarter_of_weights_gradients_and_states() -> None:
    """All sizes divide by four: a quarter of 4,392 parameters in float32, twice as much of AdamW's states."""
    step = captured("fsdp=4")
    quarter = 4392 // 4 * 4
    given = Counter[BufferKind]()
    for each in step.storages:
        given[each.kind] += each.nbytes * each.given
    update = next(position for position, each in enumerate(step.operations) if each.phase is Phase.UPDATE)
    gradients = {
        step.tensors[each.memory].storage
        for operation in step.operations[update:]
        for each in operation.operands
        if step.storages[step.tensors[each.memory].storage].kind is BufferKind.WEIGHT_GRADIENT
    }

    assert given[BufferKind.WEIGHTS] == quarter
    assert given[BufferKind.OPTIMIZER_STATE] == 2 * quarter
    assert sum(step.storages[each].nbytes for each in gradients) == quarter
    assert all(each.kind is BufferKind.WEIGHTS for each in step.storages if each.name.startswith("weights"))


def test_gathered_weights_are_freed_after_a_block_unless_they_stay() -> None:
    """Of four tensors of a block each is gathered once in forward, and again in backward, or with `zero2` only once."""
    freed, kept = captured("fsdp=4"), captured("zero2=4")

    def gathered(step: CapturedStep) -> int:
        return sum(
            each.kind is BufferKind.WEIGHTS and not each.given and not each.name.startswith("empty")
            for each in step.storages
        )

    assert gathered(freed) == 2 + 2 * 4 + 2 * 4
    assert gathered(kept) == 2 + 2 * 4
    assert sizes(kept, B) == [("reduce_scatter", each) for each in (BLOCK, HEAD, BLOCK)]


def test_mixed_precision_gathers_narrow_weights_and_reduces_wide_gradients() -> None:
    """Without autocast: products take bfloat16, and gradients are widened as they are copied to be reduced."""
    step = captured("fsdp=4", precision=Precision.AMP_BFLOAT16)

    gathers = [each for each in collectives(step) if each.kind is CollectiveKind.ALL_GATHER]
    reductions = [each for each in collectives(step) if each.kind is CollectiveKind.REDUCE_SCATTER]
    assert {(each.nbytes, each.element_type) for each in gathers} == {(BLOCK // 2, "bfloat16"), (HEAD // 2, "bfloat16")}
    assert {(each.nbytes, each.element_type) for each in reductions} == {(BLOCK, "float32"), (HEAD, "float32")}
    assert {each.element_type for each in step.operations if "addmm" in each.name} == {"bfloat16"}


def test_copies_of_a_sharded_model_sum_their_shards_over_the_others() -> None:
    """A block is reduced over two neighbours, then its half over the two that are two ranks apart."""
    step = captured("hsdp=2x2")

    found = [(each.kind.value, each.nbytes, each.ranks, each.stride) for each in collectives(step, B)]
    assert found[2:4] == [("reduce_scatter", BLOCK, 2, 1), ("all_reduce", BLOCK // 2, 2, 2)]


def test_what_does_not_divide_is_padded() -> None:
    """Of 16 or 64 rows three ranks hold 6 or 22: a block of 3 x (22 x 16 + 22 + 6 x 64 + 6) numbers is gathered."""
    step = captured("fsdp=3")

    assert sizes(step, F)[1] == ("all_gather", 4 * 3 * (22 * 16 + 22 + 6 * 64 + 6))


def test_a_capture_leaves_no_process_group_behind() -> None:
    """Nor what PyTorch writes before tracebacks in a process that has a rank."""
    before = sys.excepthook
    captured("fsdp=2")

    assert not distributed.is_initialized()
    assert sys.excepthook is before
    assert capture(program(""), CaptureDevice()).ranks == 1


def test_a_process_of_another_world_is_refused() -> None:
    with rank_of(2), pytest.raises(CaptureError, match="found 4 ranks, but this process is one of 2"):
        capture(program("fsdp=4"), CaptureDevice())


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("fsdp=2", {"real": True}, "--parallel: found with real tensors"),
        ("ddp=2", {"compiled": True}, "--parallel: found ddp=2, compiled, expected fsdp=N"),
        ("fsdp=2,tp=2", {"compiled": True}, "--parallel: found fsdp=2,tp=2, compiled"),
        ("pp=2,fsdp=2", {"compiled": True}, "--parallel: found pp=2,fsdp=2, compiled"),
    ],
)
def test_real_tensors_and_compiled_stages_have_no_ranks(layout: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        Request(model="timm:resnet18", batch_size=1, parallel=layout, **changes).check()


def test_blocks_are_the_equal_modules_of_the_list_with_the_most_parameters() -> None:
    """Two stages of two and three blocks count together; the parts of a block, and modules alone, do not."""
    stages = nn.Sequential(nn.Sequential(Block(), Block()), nn.ReLU(), nn.Sequential(Block(), Block(), Block()))
    heads = nn.ModuleList(nn.Linear(2, 2) for _ in range(8))

    assert len(blocks_of(nn.ModuleDict({"stages": stages, "heads": heads}))) == 5
    assert len(blocks_of(Net())) == 2
    assert blocks_of(nn.Linear(2, 2)) == []


def test_ddp_reduces_a_bucket_beside_backward() -> None:
    """All 17,568 B of gradients fit into the first bucket of 1 MiB, a second copy of them that lives throughout."""
    step = captured("ddp=4")

    (reduction,) = collectives(step)
    assert reduction == Collective(CollectiveKind.ALL_REDUCE, 17568, "float32", ranks=4)
    assert [each.name for each in step.operations if each.aside] == ["c10d.allreduce_.default"]
    (bucket,) = (each for each in step.storages if each.name == "bucket of gradients")
    assert (bucket.nbytes, bucket.kind, bucket.given) == (17568, BufferKind.WEIGHT_GRADIENT, True)
    assert step.modules[0].path == ""
    assert "blocks.0.wide.weight" in {each.name for each in step.storages}


def test_zero1_keeps_states_of_its_own_parameters_and_sends_these() -> None:
    """Of two ranks the first has two of four matrices of 1,024 numbers, then 128 of the head, 16 of 32, and 8.

    The largest first, each to the rank with the least so far: 128 to the first, 64 twice to the second, 16 to each, and
    8 to the first, which makes 2,200. Every parameter is sent after the update by the rank that has it.
    """
    step = captured("zero1=2")

    states = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)
    assert states == 2 * 4 * 2200
    sent = collectives(step, Phase.UPDATE)
    assert {each.kind for each in sent} == {CollectiveKind.BROADCAST}
    assert sum(each.nbytes for each in sent) == 17568


@pytest.mark.parametrize("layout", ["ddp=4", "zero1=4", "fsdp=4", "hsdp=2x2", "tp=2", "fsdp=2,tp=2", "pp=2,tp=2"])
def test_plans_of_ranks_keep_the_contract(layout: str) -> None:
    """Whatever runs beside kernels is ordered with them."""
    machine = simulator(capture(asked_of(layout, 0), CaptureDevice()))

    check_plan(machine.completed((PyTorch().plan(machine.setting()),))[0])


def test_shards_on_the_host_are_copied_before_each_gather_and_gradients_back() -> None:
    """In float32, whose shards of four ranks are a quarter; the host updates, and the GPU holds none between steps.

    Two blocks and the head are copied before forward, and the blocks again before backward but the last, which keeps
    its weights. Of a weight of 1,024 B the update reads and writes each state, as AdamW in lists of tensors does.
    """
    step = captured("fsdp=4,offload=cpu")

    kinds = Counter((each.kind, phase) for phase in Phase for each in collectives(step, phase))
    shards = 4 + 4 + 2
    gathered = kinds[CollectiveKind.ALL_GATHER, B]
    assert kinds[CollectiveKind.FROM_HOST, F] == kinds[CollectiveKind.TO_HOST, B] == shards
    assert kinds[CollectiveKind.FROM_HOST, B] == 4 * gathered
    copied = sum(each.nbytes for each in collectives(step) if each.kind is CollectiveKind.TO_HOST)
    assert copied == (2 * BLOCK + HEAD) // 4
    updates = [each for each in step.operations if each.phase is Phase.UPDATE]
    assert {each.collective and each.collective.kind for each in updates} == {CollectiveKind.ON_HOST}
    moved = sum(each.nbytes for each in collectives(step, Phase.UPDATE))
    assert 7 * copied < moved < 30 * copied
    held = {each.kind for each in step.storages if each.given and not each.on_host}
    assert held == {BufferKind.FEATURE_MAP}
    assert any("OMP_NUM_THREADS" in each for each in step.notes)


@pytest.mark.parametrize(("layout", "kind"), [("fsdp=4", "reduce_scatter"), ("ddp=4", "all_reduce")])
def test_gradients_are_reduced_with_each_micro_batch_or_the_last_alone(layout: str, kind: str) -> None:
    """Two blocks and a head of FSDP are three reductions, a bucket of DDP one.

    Until it reduces, FSDP holds the gradients of whole weights, 17,568 B, and not those of a fourth. A replay runs all
    three micro-batches as they were captured.
    """
    each = captured(layout, accumulate=3)
    last = captured(f"{layout},sync=last", accumulate=3)
    at_once = 3 if layout == "fsdp=4" else 1
    for step, rounds in ((each, 3), (last, 1)):
        assert sum(found.kind.value == kind for found in collectives(step)) == at_once * rounds
    assert (each.batch_size, last.batch_size, last.micro_batches) == (SAMPLES, 3 * SAMPLES, 3)
    if layout == "fsdp=4":
        assert last.peak_live_bytes > each.peak_live_bytes
    plan = simulator(last).planned(PyTorch()).plans[0]
    check_plan(plan)
    replayed = [each.collective for each in plan.operations if isinstance(each, Communicate) and each.collective]
    assert sorted(each.nbytes for each in replayed) == sorted(each.nbytes for each in collectives(last))


def test_one_micro_batch_is_the_last() -> None:
    with pytest.raises(CaptureError, match="with one micro-batch, expected --accumulate from 2 on"):
        captured("fsdp=4,sync=last")


@pytest.mark.parametrize(
    "asked",
    [{"accumulate": 2}, {"in_backward": True}, {"precision": Precision.AMP_FLOAT16}],
    ids=lambda each: next(iter(each)),
)
def test_what_reads_gradients_on_the_host_in_backward_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(CaptureError, match=r"found fsdp=4,offload=cpu with .* expected one of the two"):
        captured("fsdp=4,offload=cpu", **asked)


@pytest.mark.parametrize(
    "layouts",
    [
        ("ddp=2,tp=2", "pp=2,ddp=2"),
        pytest.param(
            ("fsdp=2,prefetch=1", "tp=2", "fsdp=2,tp=2", "hsdp=2x2", "pp=2,fsdp=2", "pp=2,tp=2"),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_processes_over_gloo_run_the_captured_collectives(layouts: tuple[str, ...], tmp_path: Path) -> None:
    """Two or four of them, of which those of one stage do the same as its captured rank."""
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.calibration.capture.ranks", str(tmp_path), *layouts],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    expected = []
    for layout in map(parse_layout, layouts):
        positions = range(layout.pipeline)
        stages = [capture(asked_of(layout.text, at * layout.ranks_of_stage), CaptureDevice()) for at in positions]
        expected.append([collectives(each) for each in stages for _ in range(layout.ranks_of_stage)])

    found = msgspec.json.decode(started.communicate(timeout=120)[0], type=list[list[list[Collective]]])

    assert found == expected
