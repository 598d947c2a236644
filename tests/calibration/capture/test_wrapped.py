"""Models that are wrapped already: refused with what to give instead."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import vdnnsim
from vdnnsim.errors import CaptureError


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7))


def sharded() -> nn.Module:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def compiled_in_place() -> nn.Module:
    model = net()
    model.compile()
    return model


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: nn.parallel.DistributedDataParallel(net()), "within, `model.module`"),
        (lambda: nn.Sequential(nn.DataParallel(net())), "within, `model.0.module`"),
        (sharded, "expected the model before `fully_shard`"),
    ],
)
def test_a_model_for_several_gpus_is_refused(make: Callable[[], nn.Module], why: str) -> None:
    model = make()
    for ask in (vdnnsim.capture, planned):
        with pytest.raises(CaptureError, match=why):
            ask(model, torch.ones(4, 3))


@pytest.mark.usefixtures("one_process")
def test_a_function_that_shards_its_model_is_refused() -> None:
    """Without memory PyTorch's own sharding fails before the model is there."""
    with pytest.raises(CaptureError, match="expected a model that is made without sharding it"):
        vdnnsim.capture(sharded, torch.ones(4, 3))


def planned(model: nn.Module, inputs: torch.Tensor) -> Any:  # noqa: ANN401  # as of the API
    return vdnnsim.plan(model, inputs, hardware="rtx_4090", policy="save_on_cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
@pytest.mark.parametrize("make", [lambda: torch.compile(net()), compiled_in_place])
def test_a_compiled_model_is_captured_eagerly_and_gets_no_plan(make: Callable[[], nn.Module]) -> None:
    step = vdnnsim.capture(make(), torch.ones(4, 3))
    assert [note for note in step.notes if "`--execution compiled`" in note] == [step.notes[0]]
    with pytest.raises(CaptureError, match=r"was compiled by torch\.compile"):
        planned(make(), torch.ones(4, 3))
