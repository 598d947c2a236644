"""Units of FSDP, how far ahead they are gathered, types for gradients; models that are wrapped already."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import distribute_module
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.calibration.capture.ranks import (
    BLOCK,
    HEAD,
    WIDTH,
    B,
    Block,
    F,
    Four,
    Net,
    Planned,
    captured,
    collectives,
    sizes,
)
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


def test_gradients_are_reduced_in_the_type_that_is_asked_for() -> None:
    """Of 2 B a number where it is narrow, whatever the weights are in."""
    for precision, word in ((Precision.AMP_BFLOAT16, "bfloat16"), (Precision.FLOAT32, "float16")):
        step = captured(f"fsdp=4,reduce={word}", precision=precision)
        found = {(kind, size) for kind, size in sizes(step, B) if kind == "reduce_scatter"}
        assert found == {("reduce_scatter", BLOCK // 2), ("reduce_scatter", HEAD // 2)}
    wide = captured("fsdp=4,reduce=float32", precision=Precision.BFLOAT16)
    assert ("all_gather", BLOCK // 2) in sizes(wide, F)
    assert ("reduce_scatter", BLOCK) in sizes(wide, B)


def test_ddp_reduces_a_narrow_copy_of_a_bucket_which_is_copied_back_beside_kernels() -> None:
    """Of 17,568 B in float32 half is summed, as hooks that compress gradients do it; the buckets stay as they are."""
    step = captured("ddp=4,reduce=bfloat16")

    assert collectives(step) == [Collective(CollectiveKind.ALL_REDUCE, 2 * BLOCK // 2 + HEAD // 2, "bfloat16", ranks=4)]
    assert [each.name for each in step.operations if each.aside] == ["c10d.allreduce_.default", "aten.copy_.default"]
    (bucket,) = (each for each in step.storages if each.name == "bucket of gradients")
    assert bucket.nbytes == 2 * BLOCK + HEAD


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


def by_fsdp(ranks: int = 4, offload: OffloadPolicy | None = None) -> nn.Module:
    model, mesh = Net(), init_device_mesh("cuda", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, offload_policy=offload or OffloadPolicy())
    fully_shard(model, mesh=mesh, offload_policy=offload or OffloadPolicy())
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


def split_in_part(*, given: bool = False) -> nn.Module:
    """Its first block is split, its norms and head are not; or what is given to the model is not."""
    model, mesh = Net(), init_device_mesh("cuda", (4,))
    parallelize_module(model.blocks[0], mesh, {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
    return distribute_module(model, mesh) if given else model


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (by_fsdp, "fsdp=4"),
        # Its shards are pinned by default, which without CUDA none can be.
        (partial(by_fsdp, offload=CPUOffloadPolicy()), "fsdp=4,offload=cpu"),
        (lambda: DistributedDataParallel(Net()), "ddp=4"),
    ],
)
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
        (
            split_in_part,
            {"optimizer": "adamw"},
            "expected --optimizer adamw_for_loop, in training foreach=False",
        ),
        (partial(split_in_part, given=True), {}, "expected both as DTensors: inputs by PrepareModuleInput"),
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
