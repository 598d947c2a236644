"""One rank of several, captured alone.

A block of the model in `ranks` has 16 x 64 + 64 + 64 x 16 + 16 = 2,128 parameters, its head 16 x 8 + 8 = 136: in
float32 8,512 and 544 B, that four ranks divide without a rest.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import vdnnsim
from calibration.capture.blocks import blocks_of
from calibration.capture.capture import CaptureDevice, capture
from calibration.capture.parallel.world import rank_of
from calibration.capture.request import Request
from tests.calibration.capture.ranks import (
    CLASSES,
    HEADS,
    SAMPLES,
    WIDTH,
    Attention,
    Block,
    Decoder,
    Net,
    asked_of,
    program,
)
from tests.captured_steps import simulator
from tests.toy import ROOT
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Communicate
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import Precision

BLOCK, HEAD = 8512, 544
F, B = Phase.FORWARD, Phase.BACKWARD


def captured(layout: str, **others: object) -> CapturedStep:
    step = capture(program(layout, **others), CaptureDevice())  # type: ignore[arg-type]  # fields of a program
    check_captured_step(step, layout)
    return step


def collectives(step: CapturedStep, phase: Phase | None = None) -> list[Collective]:
    found = (each for each in step.operations if phase in (None, each.phase))
    return [each.collective for each in found if each.collective is not None]


def sizes(step: CapturedStep, phase: Phase) -> list[tuple[str, int]]:
    return [(each.kind.value, each.nbytes) for each in collectives(step, phase)]


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


def test_gradients_are_reduced_in_the_type_that_is_asked_for() -> None:
    """Of 2 B a number where it is narrow, whatever the weights are in."""
    for precision, word in ((Precision.AMP_BFLOAT16, "bfloat16"), (Precision.FLOAT32, "float16")):
        step = captured(f"fsdp=4,reduce={word}", precision=precision)
        found = {(kind, size) for kind, size in sizes(step, B) if kind == "reduce_scatter"}
        assert found == {("reduce_scatter", BLOCK // 2), ("reduce_scatter", HEAD // 2)}
    wide = captured("fsdp=4,reduce=float32", precision=Precision.BFLOAT16)
    assert ("all_gather", BLOCK // 2) in sizes(wide, F)
    assert ("reduce_scatter", BLOCK) in sizes(wide, B)


def order_of(step: CapturedStep, phase: Phase) -> str:
    """Return its gathers and products, each as a letter."""
    letters = {"c10d._allgather_base_.default": "g", "aten.addmm.default": "p", "aten.mm.default": "p"}
    return "".join(letters.get(each.name, "") for each in step.operations if each.phase is phase)


@pytest.mark.parametrize(
    ("layout", "forward", "backward"),
    [
        ("fsdp=4", "g gpp gpp gpp gpp p", "g pp g pppp g pppp g pppp ppp"),
        ("fsdp=4,prefetch=1", "g gg pp g pp g pp pp p", "g pp g pppp g pppp g pppp ppp"),
        ("fsdp=4,prefetch=2", "g ggg pp g pp pp pp p", "g pp gg pppp g pppp pppp ppp"),
    ],
)
def test_blocks_are_gathered_ahead(layout: str, forward: str, backward: str) -> None:
    """Of four blocks of two products, and a head. The root is gathered first.

    Then FSDP gathers a block as it begins; told to prefetch, the next one or two before the products of the first. In
    backward it gathers one ahead by itself, the root, before the products of the head, the last block. There a product
    of forward is two, but none is of the model's input.
    """
    step = captured(layout, make_model=Four)

    assert order_of(step, F) == forward.replace(" ", "")
    assert order_of(step, B) == backward.replace(" ", "")


def test_modules_of_so_many_parameters_are_units() -> None:
    """The layers of a block have 16 x 64 + 64 and 64 x 16 + 16 parameters, which stay with the block above the first.

    Above a block's 2,128 it is no unit either; a model of two with a shared head of 8 x 16, and a table for it, leaves
    that to the root, though it has enough.
    """
    wide, narrow = 4 * 1088, 4 * 1040

    assert sizes(captured("fsdp=4,wrap=1040"), F)[1:] == [("all_gather", each) for each in (wide, narrow) * 2]
    assert sizes(captured("fsdp=4,wrap=1041"), F) == [("all_gather", each) for each in (HEAD + 2 * narrow, wide, wide)]
    assert sizes(captured("fsdp=4,wrap=2k"), F)[1:] == [("all_gather", BLOCK)] * 2
    assert sizes(captured("fsdp=4,wrap=3k"), F) == [("all_gather", HEAD + 2 * BLOCK)]
    tied = captured(
        "fsdp=4,wrap=100", make_model=Planned, make_inputs=lambda: ((torch.zeros(2, 4, dtype=torch.int64),), {})
    )
    assert sizes(tied, F)[0] == ("all_gather", 4 * 8 * 16)


class Normed(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.norm(x))


class NormedNet(Net):
    """Blocks that begin with a normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Normed() for _ in range(2))


def test_units_within_units_are_gathered_ahead_in_the_order_in_which_they_run() -> None:
    """A block keeps 1,040 numbers of its second layer and 32 of its normalization beside a unit, its first layer.

    In backward the first layer of the second block keeps its weights no more than others, so that all are gathered.
    """
    step = captured("fsdp=4,wrap=1050,prefetch=1", make_model=NormedNet)
    rest, wide = 4 * (1040 + 32), 4 * 1088

    assert [size for _, size in sizes(step, F)[1:]] == [rest, wide, rest, wide]
    assert [size for kind, size in sizes(step, B) if kind == "all_gather"] == [rest, wide, rest, wide]


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
    captured("fsdp=2")

    assert not distributed.is_initialized()
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


def test_split_layers_gather_tokens_before_a_pair_and_scatter_them_behind_it() -> None:
    """Activations of 2 x 512 tokens and 16 features take 65,536 B in float32, one number of each token 4,096 B.

    The rows of the embedding are summed, then each rank takes its tokens. Of logits that are split by class the loss
    sums the maximum, the sum of exponentials, and the number of each token's own class. Behind backward the tokens of
    all are gathered for the embeddings. Gradients of five normalizations, of 64 B each and of its own tokens on each
    rank, are summed in each of three operators of AdamW that read them.
    """
    step = captured("tp=2")
    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    pair = [gather, scatter]

    assert sizes(step, F) == [("all_reduce", 65536), *pair * 4, gather, *[("all_reduce", 4096)] * 3]
    assert sizes(step, B) == [scatter, *pair * 4, gather]
    assert sizes(step, Phase.UPDATE) == [("all_reduce", 64)] * (5 * 2 * 3)
    assert {(each.ranks, each.stride) for each in collectives(step)} == {(2, 1)}
    assert not any(each.aside for each in step.operations)


def test_casts_of_split_logits_are_operations() -> None:
    """The loss casts 2 x 512 x 4 logits to float32 and back within DTensor, where autograd does not decompose `to`."""
    step = captured("fsdp=2,tp=2", precision=Precision.AMP_BFLOAT16)

    logits = 2 * 512 * 4
    casts = (each for each in step.operations if each.phase is F and each.name == "aten._to_copy.default")
    made = [step.storages[step.tensors[each.operands[-1].memory].storage].nbytes for each in casts]
    assert made[-3:-1] == [4 * logits, 2 * logits]
    assert {each.element_type for each in step.storages if each.constant} == {"int64"}, "labels alone"


def test_without_sequence_parallelism_all_ranks_have_all_tokens_between_pairs() -> None:
    """A pair sums its result in forward, and the gradient of its input in backward; so does the head."""
    step = captured("tp=2,sp=never")

    assert sizes(step, F) == [("all_reduce", 65536)] * 5 + [("all_reduce", 4096)] * 3
    assert sizes(step, B) == [("all_reduce", 65536)] * 5
    assert sizes(step, Phase.UPDATE) == []


def test_ranks_of_split_layers_are_neighbours_and_shards_are_apart() -> None:
    """Under `fsdp=4,tp=2` ranks 0 and 1 have a layer together, of whose halves ranks 0, 2, 4 and 6 have a quarter each.

    A layer has 12 x 16 x 16 + 64 numbers in split matrices and biases, and 16 + 4 x 16 in others, in float32. A rank
    holds, with the embeddings of 8 x 16 and 512 x 16, the last normalization and the head, all of it but for padding.
    """
    step = captured("fsdp=4,tp=2")
    split, whole = 12 * 16 * 16 + 64, 16 + 4 * 16
    rest_split, rest_whole = 2 * 8 * 16, 512 * 16 + 32

    shards = {(each.kind.value, each.nbytes) for each in collectives(step) if (each.ranks, each.stride) == (4, 2)}
    layer, rest = 4 * (split // 2 + whole), 4 * (rest_split // 2 + rest_whole)
    assert shards == {(kind, size) for kind in ("all_gather", "reduce_scatter") for size in (layer, rest)}
    assert {(each.ranks, each.stride) for each in collectives(step)} == {(2, 1), (4, 2)}
    given = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
    assert given == (2 * layer + rest) // 4
    assert step.parameters == 2 * (split + whole) + rest_split + rest_whole


def test_checkpoints_gather_tokens_again() -> None:
    """Backward of a layer repeats its two gathers, and the scatter of attention, behind which the rest reads."""
    step = captured("tp=2", checkpointing="full")

    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    again = [gather, scatter, gather]
    layer = [*again, scatter, gather, scatter]
    assert sizes(step, B) == [scatter, gather, *layer, gather, *layer, gather]
    names = [each.name for each in step.operations if each.phase is B and each.name.startswith("_c10d")]
    assert len(names) == 2 + 2 * 7


class Planned(nn.Module):
    """A block whose plan is stated, in a model whose embedding and head have one weight."""

    tp_plan: ClassVar[dict[str, str]] = {
        "blocks.*.wide": "colwise",
        "blocks.*.narrow": "rowwise",
        "table": "embedding_rowwise",
        "head": "colwise_gather_output",
    }

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, WIDTH), nn.Linear(WIDTH, 8, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head.weight = self.table.weight

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.table(numbers)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


def test_a_model_says_how_it_is_split() -> None:
    """Of 8 x 16 numbers of the tied weight a rank has a half, of a block's 2,128 all but 16 of the second bias."""
    step = captured("tp=2,sp=never", make_model=Planned)

    given = [each for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS]
    assert sum(each.nbytes for each in given) == 4 * (8 * 16 // 2 + 2 * ((2128 - 16) // 2 + 16))
    assert [each.name for each in given].count("table.weight") == 1
    assert step.parameters == 8 * 16 + 2 * 2128


class Gathered(Decoder):
    """Attention as of Phi-3 in transformers, on whole heads, and a head that is split by columns."""

    tp_plan: ClassVar[dict[str, str]] = {
        **{f"layers.*.attention.{each}_proj": "colwise_gather_output" for each in "qkv"},
        "layers.*.attention.o_proj": "rowwise_split_input",
        "head": "colwise",
    }


def test_columns_that_are_gathered_and_rows_of_a_whole_input() -> None:
    """Attention gathers its input, and then queries, keys and values; all of 65,536 B, as what its rows scatter.

    An MLP that the plan does not name is whole, on the tokens of the rank. The embedding is whole, too. In backward
    gradients of the scatter are gathered, and those of the input of rows, of queries, keys and values, each split by
    heads.
    """
    step = captured("tp=2", make_model=Gathered)

    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    assert sizes(step, F) == [*[*[gather] * 4, scatter] * 2, gather, *[("all_reduce", 4096)] * 3]
    assert sizes(step, B) == [scatter, *[gather, gather, scatter] * 2, gather]


def test_copies_of_split_layers_sum_their_parts() -> None:
    """Half of what is split, and all else, in one bucket of ranks two apart; with ZeRO-1 each parameter is then sent.

    A layer has 12 x 16 x 16 + 64 numbers in split matrices and biases, and 16 + 4 x 16 in others; the embedding and the
    head 8 x 16, positions 512 x 16, and the last normalization 32. Gradients of normalizations are summed over the
    tokens of neighbours before.
    """
    held = 4 * (2 * ((12 * 16 * 16 + 64) // 2 + 80) + 2 * 8 * 16 // 2 + 512 * 16 + 32)
    for layout in ("ddp=2,tp=2", "zero1=2,tp=2"):
        step = captured(layout)
        apart = [each for each in collectives(step) if each.stride == 2]
        assert apart[0] == Collective(CollectiveKind.ALL_REDUCE, held, "float32", 2, 2)
        assert sum(each.nbytes for each in apart[1:]) == (held if "zero1" in layout else 0)
        assert sizes(step, B).count(("all_reduce", 64)) == 5 * 2
        assert step.parameters == 2 * (12 * 16 * 16 + 64 + 80) + 2 * 8 * 16 + 512 * 16 + 32
        given = (each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
        assert sum(given) == held


class Headless(Decoder):
    """A decoder whose output layer is not split."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = self.head
        del self.head

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.embedding(numbers)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.classes(self.norm(x))
        return logits


def test_without_a_split_head_ranks_have_all_tokens_behind_the_blocks() -> None:
    """They gather 65,536 B behind the last; its gradient is already there, and that of the tokens is gathered again.

    The embedding is whole as well, for no split head has as many rows. Gradients of normalizations are summed within
    layers alone.
    """
    step = captured("tp=2", make_model=Headless)

    pair = [("all_gather", 65536), ("reduce_scatter", 65536)]
    assert sizes(step, F) == [*pair * 4, ("all_gather", 65536)]
    assert sizes(step, B) == [*pair * 4, ("all_gather", 65536)]
    assert sizes(step, Phase.UPDATE) == [("all_reduce", 64)] * (4 * 2 * 3)


class ThreeHeads(Decoder):
    """A decoder with a configuration as of transformers."""

    config = SimpleNamespace(num_attention_heads=3)


class Packed(Decoder):
    """Attention of PyTorch, whose three matrices are one parameter."""

    tp_plan: ClassVar[dict[str, str]] = {"layers.*.mlp.fc1": "colwise", "layers.*.mlp.fc2": "rowwise"}

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.attention = nn.MultiheadAttention(WIDTH, 2)


def with_heads(model: type[Decoder], heads: int) -> nn.Module:
    made = model()
    for each in made.modules():
        if isinstance(each, Attention):
            each.num_heads = heads
    return made


def test_attention_that_counts_its_heads_has_those_of_a_rank() -> None:
    """Of eight heads four: the same operators as where the number of heads is left open."""
    counted = captured("tp=2", make_model=partial(with_heads, Decoder, HEADS))

    assert [each.name for each in counted.operations] == [each.name for each in captured("tp=2").operations]


class Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.dense(x)
        return y


class Layered(nn.Module):
    """An MLP of a layer as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.intermediate, self.output = Dense(WIDTH, 4 * WIDTH), Dense(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.output(torch.relu(self.intermediate(x)))
        return y


class Positioned(nn.Module):
    """Holds positions beside the layer before its blocks, as a vision transformer does."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(1, 4, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.patches(x) + self.positions
        return y


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.layers = Positioned(), nn.ModuleList(Layered() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("data", ["", "ddp=2,", "fsdp=2,"])
def test_layers_are_named_by_their_owners_and_parameters_beside_modules_are_whole(data: str) -> None:
    """Of 2 x 4 x 16 numbers in float32 each pair gathers its tokens and scatters its result; all are gathered at last.

    A rank has half of two matrices of 1,024 numbers and of 64 biases of each layer, the other 16 biases, and all of
    16 x 16 + 16 + 4 x 16 before the layers; as a shard half of that, but all of the positions, which are one row.
    """
    step = captured(f"{data}tp=2", make_model=Encoder, make_inputs=lambda: ((torch.randn(2, 4, WIDTH),), {}))

    split = [(each.kind.value, each.nbytes) for each in collectives(step, F) if each.stride == 1]
    assert split == [*[("all_gather", 512), ("reduce_scatter", 512)] * 2, ("all_gather", 512)]
    held = 4 * (2 * ((2 * 1024 + 64) // 2 + 16) + 16 * 16 + 16 + 4 * 16)
    given = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
    assert given == ((held + 4 * 4 * 16) // 2 if "fsdp" in data else held)


def test_a_block_that_is_split_itself_gathers_its_input() -> None:
    """2 x 4 x 16 numbers in float32; its result is scattered, and all tokens are gathered for the head."""
    step = captured("tp=2", make_model=Planned, make_inputs=lambda: ((torch.zeros(2, 4, dtype=torch.int64),), {}))

    pair = [("all_gather", 512), ("reduce_scatter", 512)]
    assert sizes(step, F)[:6] == [("all_reduce", 512), *pair * 2, ("all_gather", 512)]


class Onesided(Net):
    """Blocks with layers that are split by columns alone."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.fc1 = block.wide
            block.up = block.narrow
            del block.wide, block.narrow


class FixedHeads(Decoder):
    """Says how it is split, and has all heads on each rank."""

    tp_plan: ClassVar[dict[str, str]] = {
        **{f"layers.*.attention.{each}_proj": "colwise" for each in "qkv"},
        "layers.*.attention.o_proj": "rowwise",
    }


@pytest.mark.parametrize(
    ("layout", "model", "message"),
    [
        ("tp=2", Net, "blocks.0.wide: nothing says how it is split; expected layers of nn.Linear named q_proj"),
        ("tp=2", Onesided, "blocks.0: nothing says how it is split"),
        ("tp=16", Decoder, "head: has 8 outputs, expected a multiple of tp=16"),
        (
            "tp=3",
            lambda: Decoder(24, 9),
            "gets a tensor of 2x512x24, expected samples x tokens x features with a multiple",
        ),
        ("tp=2", Packed, "layers.0.attention: holds in_proj_weight, in_proj_bias beside modules"),
        ("ddp=2,tp=2,sp=never", Planned, "head.weight: is shared with another module"),
        ("tp=2", partial(with_heads, FixedHeads, HEADS), "under tp=2 a rank has some of the heads, expected -1"),
        ("tp=2", partial(with_heads, Decoder, 3), "layers.0.attention: num_heads is 3, expected a multiple of tp=2"),
        ("tp=2", ThreeHeads, "ThreeHeads: num_attention_heads is 3, expected a multiple of tp=2"),
        ("tp=2", lambda: nn.Linear(4, 4), "Linear has neither a `tp_plan` nor a list of equal blocks"),
        (
            "tp=2",
            lambda: planned({"blocks.*.wide": "moe_tp_experts"}),
            "tp_plan says 'moe_tp_experts', expected one of colwise",
        ),
        (
            "tp=2",
            lambda: planned({"blocks.*": "colwise"}),
            "blocks.0: is a Block, expected an nn.Linear or nn.Embedding",
        ),
        ("tp=2", lambda: planned({"head.weight": "colwise"}), "head.weight: tp_plan splits a parameter"),
        ("tp=2", lambda: planned(["wide"]), "tp_plan of Planned is a list, expected a dictionary"),
    ],
)
def test_a_model_that_cannot_be_split_is_refused(layout: str, model: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(CaptureError, match=re.escape(message)):
        captured(layout, make_model=model)


def planned(plan: object) -> nn.Module:
    model = Planned()
    model.tp_plan = plan  # type: ignore[misc, assignment]  # of any kind, as a user may write
    return model


def by_fsdp(ranks: int = 4) -> nn.Module:
    model, mesh = Net(), init_device_mesh("cuda", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def routed() -> nn.Module:
    """Its first block hands on as many tokens as its router says."""
    model = by_fsdp()
    first = next(each for each in model.modules() if isinstance(each, Block))
    first.register_forward_hook(lambda _, __, y: y * float(y.detach().argmax(-1).sum()))
    return model


def by_hand() -> nn.Module:
    """Return a model on two times two GPUs, with split blocks, which are sharded in bfloat16."""
    model, mesh = Net(), init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    return model


@pytest.mark.parametrize(("make", "layout"), [(by_fsdp, "fsdp=4"), (lambda: DistributedDataParallel(Net()), "ddp=4")])
def test_a_wrapped_model_is_captured_as_one_in_the_same_layout(make: Callable[[], nn.Module], layout: str) -> None:
    found, expected = captured("ranks=4", make_model=make), captured(layout)

    assert (found.parallel, found.ranks) == ("ranks=4", 4)
    assert collectives(found) == collectives(expected)
    assert found.peak_live_bytes == expected.peak_live_bytes
    assert [each.name for each in found.operations] == [each.name for each in expected.operations]


def test_a_model_that_is_wrapped_twice_over_a_mesh() -> None:
    """Narrow's result of 6 x 16 numbers in bfloat16 is summed over neighbours, weights are gathered from two apart.

    Of a block a rank of `tp` has half of two matrices of 1,024 numbers and of the first bias of 64, and all 16 of the
    second.
    """
    step = captured("ranks=4", make_model=by_hand, precision=Precision.AMP_BFLOAT16)

    assert {(each.kind.value, each.nbytes) for each in collectives(step) if each.stride == 1} == {("all_reduce", 192)}
    gathered = {each.nbytes for each in collectives(step, F) if each.stride == 2}
    assert gathered == {2 * (1024 + 32 + 16), HEAD // 2}
    assert {each.element_type for each in step.operations if "addmm" in each.name} == {"bfloat16"}


@pytest.mark.parametrize(
    ("make", "asked", "message"),
    [
        (Net, {}, "ranks=4: Net is not wrapped, expected a function that calls fully_shard"),
        (by_hand, {}, "--precision: found float32, expected amp_bfloat16"),
        (by_fsdp, {"lora": 2}, "lora: found with ranks=4, expected it in the function"),
        (lambda: nn.DataParallel(Net()), {}, "found DataParallel or FSDP1"),
        (routed, {}, "looks into computed values.*of experts equal shares"),
        (lambda: init_device_mesh("cuda", (8,)), {}, "than default world size 4.* expected --parallel ranks=N"),
        (partial(by_fsdp, 2), {}, "found ranks=4 for a model on a mesh of 2, expected ranks=2, or a mesh of 4"),
    ],
)
def test_a_wrapped_model_that_does_not_fit_is_refused(
    make: Callable[[], nn.Module], asked: dict[str, object], message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        captured("ranks=4", make_model=make, **asked)


def test_a_wrapped_model_has_no_second_layout() -> None:
    with pytest.raises(CaptureError, match="with --parallel ranks=N"):
        captured("fsdp=4", make_model=by_fsdp)


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


class Four(Net):
    """Four blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks.extend(Block() for _ in range(2))


def stage(layout: str, position: int, **others: object) -> CapturedStep:
    return captured(layout, position=position, accumulate=4, **others)


def test_stages_run_forward_and_backward_in_the_order_of_1f1b() -> None:
    """Each has one of two blocks, and the last the head. Activations of 6 x 16 numbers are sent.

    The first runs two forwards ahead; it sends the second result as it asks for the first gradient, and so on. The last
    runs backward of each micro-batch at once.
    """
    first, last = stage("pp=2", 0), stage("pp=2", 1)

    assert [(each.parameters, each.batch_size, each.position) for each in (first, last)] == [
        (2128, 24, 0),
        (2128 + 136, 24, 1),
    ]
    send, receive = "send", "receive"
    assert [each.kind.value for each in collectives(first)] == [send, *[send, receive] * 3, receive]
    assert [each.kind.value for each in collectives(last)] == [receive, *[send, receive] * 3, send]
    assert {(each.nbytes, each.ranks, each.stride) for each in collectives(first)} == {(6 * 16 * 4, 2, 1)}
    assert {(each.nbytes, each.ranks, each.stride) for each in collectives(last)} == {(6 * 16 * 4, 2, -1)}
    ran = [(phase, len(list(same))) for phase, same in groupby(each.phase for each in last.operations)]
    assert [phase for phase, _ in ran] == [F, B] * 4 + [Phase.UPDATE]


def test_a_first_stage_keeps_what_is_saved_of_two_micro_batches() -> None:
    """Of each the wide activation of 6 x 64 numbers, before and behind the function between, and none of four."""
    first = stage("pp=2", 0)

    wide = [each for each in first.storages if each.nbytes == 6 * 64 * 4 and each.kind is BufferKind.FEATURE_MAP]
    starts = Counter(next(iter(each.name.split())) for each in wide)
    assert starts["relu"] == 4
    of_relu = [number for number, each in enumerate(first.storages) if each in wide and each.name.startswith("relu")]
    ends = [first.storages[number].freed_after or 0 for number in of_relu]
    begins = [first.first_use[number] for number in of_relu]
    live = [sum(begin <= at <= end for begin, end in zip(begins, ends, strict=True)) for at in range(max(ends))]
    assert max(live) == 2


def test_interleaved_stages_of_a_rank_exchange_each_activation() -> None:
    """Of four stages the first rank has the first and the third, between which the second rank has one."""
    first = stage("pp=2,interleave=2", 0, make_model=Four)

    assert first.parameters == 2 * 2128
    assert Counter(each.kind.value for each in collectives(first)) == {"send": 3 * 4, "receive": 3 * 4}


def test_shards_of_a_stage_are_reduced_once() -> None:
    """Behind the last micro-batch; the ranks of a stage are neighbours, those of the other two apart."""
    step = stage("pp=2,fsdp=2", 1, precision=Precision.AMP_BFLOAT16, checkpointing="full")

    found = Counter((each.kind.value, each.stride) for each in collectives(step))
    assert found["reduce_scatter", 1] == 2
    assert (found["receive", -2], found["send", -2]) == (4, 4)
    assert {each.nbytes for each in collectives(step) if each.kind is CollectiveKind.SEND} == {6 * 16 * 2}


@pytest.mark.parametrize("layout", ["pp=2,ddp=2", "pp=2,zero1=2"])
def test_copies_of_a_stage_sum_their_gradients_once(layout: str) -> None:
    """Behind the last micro-batch, in one bucket of a block; with ZeRO-1 each parameter is then sent by its rank."""
    step = stage(layout, 0)

    found = [each for each in collectives(step) if not each.is_point_to_point]
    assert found[0] == Collective(CollectiveKind.ALL_REDUCE, BLOCK, "float32", ranks=2)
    sent = [each.nbytes for each in found[1:] if each.kind is CollectiveKind.BROADCAST]
    assert sum(sent) == (BLOCK if "zero1" in layout else 0)
    assert len(found) == 1 + len(sent)


def test_stages_of_split_layers_send_the_tokens_of_a_rank() -> None:
    """Half of 65,536 B; later stages sum no embedding, but what the loss sums over classes."""
    first, last = stage("pp=2,tp=2", 0), stage("pp=2,tp=2", 1)

    for step, stride in ((first, 2), (last, -2)):
        sent = {(each.nbytes, each.stride) for each in collectives(step) if each.is_point_to_point}
        assert sent == {(32768, stride)}
    summed = [
        Counter(each.nbytes for each in collectives(step, F) if each.kind is CollectiveKind.ALL_REDUCE)
        for step in (first, last)
    ]
    assert summed == [{65536: 4}, {4096: 3 * 4}]


@pytest.mark.parametrize(
    ("layout", "nbytes", "stride"), [("pp=3", 512, 2), ("pp=2,fsdp=2", 256, 2), ("pp=2,tp=2,sp=never", 256, 2)]
)
def test_first_and_last_stage_sum_the_gradient_of_a_weight_that_both_have(
    layout: str, nbytes: int, stride: int
) -> None:
    """8 x 16 numbers in float32, of which a shard, or a rank of split layers, has half; last of the collectives."""

    def model() -> nn.Module:
        made = Planned()
        made.blocks.append(Block())
        return made

    stages = parse_layout(layout).pipeline
    for position in range(stages):
        step = stage(
            layout, position, make_model=model, make_inputs=lambda: ((torch.zeros(2, 4, dtype=torch.int64),), {})
        )
        has_both = position in (0, stages - 1)
        of_both = Collective(CollectiveKind.ALL_REDUCE, nbytes, "float32", 2, stride)
        assert (collectives(step, B)[-1] == of_both) is has_both


class Half(nn.Module):
    """A block of `Net`, with the head behind the last."""

    def __init__(self, *, is_last: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.head = nn.Linear(WIDTH, CLASSES) if is_last else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        head: torch.Tensor = self.head(x)
        return head


def scheduled(*, names: tuple[str, str] = ("pp", "dp"), knows_shapes: bool = True) -> object:
    """Return the schedule of a stage in a process of two times two ranks, as a user's script makes it."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=names)
    position = mesh["pp"].get_local_rank()
    part = Half(is_last=position == 1)
    for each in (part.blocks[0], part):
        fully_shard(each, mesh=mesh["dp"])
    given, made = (torch.empty(SAMPLES, width, device="meta") for width in (WIDTH, CLASSES if position else WIDTH))
    shapes: dict[str, Any] = (
        {"input_args": given.requires_grad_(), "output_args": made.requires_grad_()} if knows_shapes else {}
    )
    stage = PipelineStage(part, position, 2, torch.device("cuda"), group=mesh["pp"].get_group(), **shapes)
    return Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)


def of_stages(make: object, layout: str, **others: Any) -> CapturedStep:  # noqa: ANN401 - words of a capture
    words: dict[str, Any] = {"loss": lambda y: y.float().sum(), "accumulate": 4, "parallel": layout}
    return vdnnsim.capture(make, torch.randn(SAMPLES, WIDTH), **(words | others))


@pytest.mark.parametrize("position", [0, 1])
def test_a_schedule_of_the_user_is_captured_as_the_same_stages(position: int) -> None:
    found = of_stages(scheduled, "ranks=4,pp=2", position=position)
    expected = of_stages(Net, "pp=2,fsdp=2", position=position)

    assert (found.ranks, found.pipeline, found.position) == (4, 2, position)
    assert collectives(found) == collectives(expected)
    assert found.peak_live_bytes == expected.peak_live_bytes


@pytest.mark.parametrize(
    ("make", "layout", "asked", "message"),
    [
        (Net, "ranks=4,pp=2", {}, "found Net, expected a function that returns a schedule"),
        (scheduled, "ranks=4,pp=2", {"accumulate": 2}, "found 2 micro-batches, expected 4"),
        (scheduled, "ranks=4", {}, "found a schedule of stages, expected ranks=4,pp=M"),
        (scheduled, "fsdp=4", {}, "found a schedule of pipeline stages, expected --parallel ranks=N,pp=M"),
        (partial(scheduled, names=("dp", "pp")), "ranks=4,pp=2", {"position": 1}, "expected stages along the first"),
        (partial(scheduled, knows_shapes=False), "ranks=4,pp=2", {"position": 1}, "stage 1 without shapes, expected"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(
    make: object, layout: str, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        of_stages(make, layout, **asked)


def bare() -> nn.Module:
    model = Net()
    model.scale = nn.Parameter(torch.ones(1))
    return model


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"layout": "pp=4"}, "Net has 2 equal blocks, expected at least 4"),
        ({"accumulate": 1}, "accumulate: found 1 with pp=2, expected at least 2 micro-batches"),
        (
            {"layout": "pp=2,interleave=2", "make_model": Four, "accumulate": 5},
            "accumulate: found 5 micro-batches in pp=2,interleave=2: .* multiple of the number of rounds",
        ),
        ({"make_model": lambda: nn.Linear(16, 8)}, "Linear runs no list of equal blocks"),
        ({"make_model": bare}, "Net: holds scale beside its blocks"),
        ({"mode": Mode.INFERENCE}, "found pp=2 with inference"),
        ({"precision": Precision.AMP_FLOAT16}, "found pp=2 with a gradient scaler"),
        ({"loss_chunks": 2}, "loss_chunks: found with pp=2"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        captured(**{"layout": "pp=2", "accumulate": 4, **asked})  # type: ignore[arg-type]  # fields of a program


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
