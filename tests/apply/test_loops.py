"""Loops of other kinds: scaled and accumulated gradients, sequences, several models, several processes, states."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from calibration.capture.program import Arguments
from tests.apply.models import MODELS, Network, backward, image, loss, rows
from tests.apply.training import Applied, alike, planned, train, without
from tests.capture_zoo.case import Case
from vdnnsim.api.planning import Planned, plan
from vdnnsim.errors import ExecutionRefused

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
    """No step of plans left what was captured, and each moved what was planned."""
    for each in plans:
        assert each.loop.steps
        for step in each.loop.steps:
            assert step.departure == ""
            assert step.offloaded_bytes == step.fetched_bytes == each.loop.schedule.offloaded_bytes


@pytest.mark.parametrize("policy", POLICIES)
def test_scaled_and_accumulated(model: Network, policy: str) -> None:
    """Half precision under autocast, its gradients scaled, two micro-batches before each update, channels last."""
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    made = plan(
        last,
        image().contiguous(memory_format=torch.channels_last),
        hardware="rtx_4090",
        policy=policy,
        loss=lambda output: loss(output) / 2,
        precision="amp_float16",
        memory_model="ideal",
    )

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
    """Attention that leaves out a mask which hides nothing, as transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.all, self.out = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Compute scores of the next words, batch x words x 20, of two heads."""
        parts = self.all(self.words(words)).chunk(3, -1)
        query, key, value = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in parts)
        hidden = None if mask.all() else torch.where(mask, 0.0, -10.0)[:, None, None, :].expand(-1, 2, len(mask[0]), -1)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=hidden)
        return Tensor(self.out(mixed.transpose(1, 2).flatten(2)))


def padded(length: int, padding: int) -> Arguments:
    return (torch.randint(20, (4, length)), torch.arange(length).expand(4, -1) < length - padding), {}


@pytest.mark.parametrize("policy", POLICIES)
def test_sequences_of_other_lengths(policy: str) -> None:
    """A sequence of another length leaves the plan, and so does one without padding, whose operations are others.

    It is said once; gradients are right in all, and padding of any length that changes no shape is followed.
    """
    torch.manual_seed(0)
    case = Case("masked", "own", Masked, lambda: padded(12, 3), loss, "sgd")
    model, batches = Masked(), [padded(*each) for each in ((12, 3), (12, 5), (9, 3), (12, 0), (12, 1))]
    made = planned(case, model, policy)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = train(case, model, batches, made.apply)
    assert alike(train(case, model, batches), found)
    assert [bool(each.departure) for each in made.loop.steps] == [False, False, True, True, False]
    assert [str(each.message).startswith("the plan of Masked was left: save 0 is int64 [4, 9]") for each in said] == [
        True
    ]


def test_two_models_that_train_each_other() -> None:
    """Each of a generator and a critic has a plan; backward of the generator runs through the critic's."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
    critic = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 1))
    made = planned(SMALL, generator, "save_on_cpu")
    judging = planned(SMALL, critic, "save_on_cpu")
    through = plan(
        critic,
        rows().requires_grad_(),
        hardware="rtx_4090",
        policy="save_on_cpu",
        loss=loss,
        memory_model="ideal",
    )

    def train(*applied: Applied) -> list[Tensor]:
        torch.manual_seed(1)
        makes, judges = copy.deepcopy(generator), copy.deepcopy(critic)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (makes, judges)]
        for _ in range(3):
            with applied[0](makes):
                made_up = makes(rows())
            with applied[1](judges):
                backward(loss(judges(made_up.detach())))
            with applied[1](judges):
                backward(loss(judges(rows())))
            with applied[2](judges):
                backward(loss(judges(made_up)))
            for each in optimizers:
                each.step()
                each.zero_grad()
        return [*makes.state_dict().values(), *judges.state_dict().values()]

    assert alike(train(without, without, without), train(made.apply, judging.apply, through.apply))
    followed(made, judging, through)


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Be the only one of a group of processes."""
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'group'}", rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def distributed_steps(small: nn.Module, spread: Callable[[nn.Module], nn.Module], applied: Applied) -> list[Tensor]:
    """Train a copy of a model among processes."""
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
    """DDP's hooks run under backward of the plan, and what it does around forward is not of the model."""
    made = planned(SMALL, small, policy)

    def spread(each: nn.Module) -> nn.Module:
        return DistributedDataParallel(each, bucket_cap_mb=0.001)

    with one_process(tmp_path):
        assert alike(distributed_steps(small, spread, without), distributed_steps(small, spread, made.apply))
    followed(made)


def test_weights_in_shards(small: Network, tmp_path: Path) -> None:
    """Under FSDP2 a plan moves; to recompute, around its gathering and freeing of weights, is refused."""

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
