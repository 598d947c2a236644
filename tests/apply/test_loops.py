"""Loops with scaled and accumulated gradients, sequences, several models, compiled ones, DDP and FSDP."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from calibration.capture.program import Arguments
from reports.capture.case import Case
from tests.apply.models import MODELS, Network, backward, image, loss, rows
from tests.apply.training import Applied, alike, planned, requested, train, without
from vdnnsim.api.planning import Planned
from vdnnsim.errors import CaptureError, ExecutionRefused

CASE, SMALL = MODELS["convolutional"], MODELS["perceptron"]
POLICIES = ["save_on_cpu", pytest.param("checkpoint", marks=pytest.mark.thorough)]


@pytest.fixture(scope="module")
def model() -> Network:
    torch.manual_seed(0)
    return CASE.make_model()


@pytest.fixture(scope="module")
def small() -> Network:
    torch.manual_seed(0)
    return SMALL.make_model()


def followed(*plans: Planned) -> None:
    for each in plans:
        assert each.loop.steps
        for step in each.loop.steps:
            assert step.departure == ""
            assert step.offloaded_bytes == step.fetched_bytes == each.loop.schedule.offloaded_bytes


@pytest.mark.parametrize("policy", POLICIES)
def test_scaled_and_accumulated(model: Network, policy: str) -> None:
    """Float16 under autocast with a scaler, two micro-batches before each update, channels last."""
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    given = image().contiguous(memory_format=torch.channels_last)
    options: dict[str, Any] = {"loss": lambda output: loss(output) / 2, "precision": "amp_float16"}
    made = requested(last, given, policy, **options).planned()

    def train(applied: Applied) -> list[Tensor]:
        torch.manual_seed(1)
        trained = copy.deepcopy(last)
        optimizer = torch.optim.AdamW(trained.parameters())
        scaler = torch.amp.GradScaler("cpu")
        found: list[Tensor] = []
        for micro in range(6):
            batch = image().contiguous(memory_format=torch.channels_last)
            with applied(trained):
                with torch.autocast("cpu", torch.float16):
                    result = loss(trained(batch)) / 2
                backward(scaler.scale(result))
            found += [result.detach(), *(each.grad.clone() for each in trained.parameters() if each.grad is not None)]
            if micro % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        return [*found, *trained.state_dict().values()]

    assert alike(train(without), train(made.apply))
    followed(made)


class Masked(nn.Module):
    """Attention that drops a mask of all True, as transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.all, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        parts = self.all(self.words(words)).chunk(3, -1)
        query, key, value = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in parts)
        hidden = None if mask.all() else torch.where(mask, 0.0, -10.0)[:, None, None, :].expand(-1, 2, len(mask[0]), -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        return Tensor(self.out(mixed.transpose(1, 2).flatten(2)))


def padded(length: int, padding: int) -> Arguments:
    return (torch.randint(20, (4, length)), torch.arange(length).expand(4, -1) < length - padding), {}


@pytest.mark.parametrize("policy", POLICIES)
def test_sequences_of_other_lengths(policy: str) -> None:
    """Another length leaves the plan, and so does no padding, which dispatches other operations; one warning."""
    torch.manual_seed(0)
    case = Case("masked", "own", Masked, lambda: padded(12, 3), loss, "sgd")
    model, batches = Masked(), [padded(*each) for each in ((12, 3), (12, 5), (9, 3), (12, 0), (12, 1))]
    made = planned(case, model, policy)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = train(case, model, batches, made.apply)
    assert alike(train(case, model, batches), found)
    assert [bool(each.departure) for each in made.loop.steps] == [False, False, True, True, False]
    (message,) = (str(each.message) for each in said)
    assert message.startswith("the plan of Masked was left: save 0 is int64 [4, 9]")


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'group'}", rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def distributed_steps(small: nn.Module, spread: Callable[[nn.Module], nn.Module], applied: Applied) -> list[Tensor]:
    torch.manual_seed(1)
    trained = spread(copy.deepcopy(small))
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for _ in range(3):
        with applied(trained):
            backward(loss(trained(rows())))
        optimizer.step()
        optimizer.zero_grad()
    return [each.full_tensor() if hasattr(each, "full_tensor") else each for each in trained.state_dict().values()]


@pytest.mark.parametrize("policy", ["checkpoint", pytest.param("save_on_cpu", marks=pytest.mark.thorough)])
def test_gradients_reduced_in_buckets(small: Network, policy: str, tmp_path: Path) -> None:
    made = planned(SMALL, small, policy)

    def spread(each: nn.Module) -> nn.Module:
        return DistributedDataParallel(each, bucket_cap_mb=0.001)

    with one_process(tmp_path):
        assert alike(distributed_steps(small, spread, without), distributed_steps(small, spread, made.apply))
    followed(made)


def test_weights_in_shards(small: Network, tmp_path: Path) -> None:
    """Under FSDP2 a plan may offload; recomputation, around its gathered weights, is refused."""

    def spread(each: nn.Module) -> nn.Module:
        mesh = init_device_mesh("cpu", (1,))
        for part in each.children():
            if [*part.parameters()]:
                fully_shard(part, mesh=mesh)
        fully_shard(each, mesh=mesh)
        return each

    made, again = planned(SMALL, small, "save_on_cpu"), planned(SMALL, small, "checkpoint")
    with one_process(tmp_path):
        assert alike(distributed_steps(small, spread, without), distributed_steps(small, spread, made.apply))
        with pytest.raises(ExecutionRefused, match="recomputes what FSDP gathers weights for"):
            distributed_steps(small, spread, again.apply)
    followed(made)


# Of a hook that PyTorch keeps in a dictionary of its own after it was removed.
@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_model_that_runs_eagerly_is_planned_and_follows() -> None:
    compiled: Network = torch.compile(SMALL.make_model(), backend="eager")
    with pytest.raises(CaptureError, match=r"was compiled by torch\.compile, .*set_stance"):
        requested(compiled, rows(), "checkpoint")
    with torch.compiler.set_stance("force_eager"):
        eager = requested(compiled, rows(), "checkpoint").planned()
        with eager.apply(compiled) as log:
            backward(loss(compiled(rows())))
    assert "recompute" in dict(log.order)
    assert not log.departure
