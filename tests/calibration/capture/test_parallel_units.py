"""Units of FSDP: which modules they are, and how far ahead they are gathered; types in which gradients are reduced."""

import pytest
import torch
from torch import nn

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
