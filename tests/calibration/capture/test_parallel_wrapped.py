"""Models that the user has wrapped already, captured as those that are wrapped here."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.calibration.capture.ranks import (
    HEAD,
    Block,
    F,
    Net,
    captured,
    collectives,
)
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


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
