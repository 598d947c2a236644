"""Models whose forward looks into values, captured with real tensors: planned where they go the captured way."""

import copy
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from calibration.apply.user_state import protecting_user_tensors
from tests.apply.models import Network, backward, loss
from tests.apply.test_script import watched
from vdnnsim.api.planning import Planned, plan
from vdnnsim.errors import CaptureError

CPU = torch.device("cpu")


class Routed(nn.Module):
    """One of two branches, by the sign of the mean of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.1))
        self.above = nn.Sequential(nn.Linear(32, 32), nn.GELU())
        self.below = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32))
        self.last = nn.Linear(32, 4)

    def forward(self, batch: Tensor) -> Tensor:
        hidden = self.first(batch)
        hidden = self.above(hidden) if batch.mean() > 0 else self.below(hidden)
        result: Tensor = self.last(hidden)
        return result


def planned(model: nn.Module, batch: Tensor, *, real: bool = True, of: Callable[[Tensor], Tensor] = loss) -> Planned:
    return plan(model, batch, hardware="rtx_4090", policy="save_on_cpu", loss=of, memory_model="ideal", real=real)


def batches() -> list[Tensor]:
    """Return five, of which the third goes the other way."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 16, generator=generator) + (-1 if at == 2 else 1) for at in range(5)]


def train(model: nn.Module, made: Planned | None) -> list[Tensor]:
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = []
    for batch in batches():
        with nullcontext() if made is None else made.apply(model):
            result = loss(model(batch))
            backward(result)
        found.append(result.detach())
        optimizer.step()
        optimizer.zero_grad()
    return found + [each.detach() for each in (*model.parameters(), *model.buffers())]


def test_without_real_tensors_it_is_refused_with_what_would_do() -> None:
    with pytest.raises(CaptureError, match="real=True"):
        planned(Routed(), batches()[0], real=False)


def test_steps_go_by_plan_where_they_go_the_captured_way() -> None:
    """To the bit as without a plan, the third too, which goes the other way and is left alone with one warning."""
    model = Routed()
    expected = train(copy.deepcopy(model), None)
    made = planned(model, batches()[0])
    with pytest.warns(UserWarning, match="the plan of Routed was left") as said:
        found = train(model, made)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert len(said) == 1
    assert [bool(each.departure) for each in made.loop.steps] == [False, False, True, False, False]
    offloaded = [each.offloaded_bytes for each in made.loop.steps if not each.departure]
    assert offloaded == [made.loop.schedule.offloaded_bytes] * 4
    assert offloaded[0] > 0


def test_a_capture_leaves_everything_as_it_was() -> None:
    """Weights, statistics, gradients, the batch that the model writes to, and the next random number."""

    class Writing(Routed):
        def forward(self, batch: Tensor) -> Tensor:
            batch.mul_(2)
            return super().forward(batch)

    model, batch = Writing(), batches()[0]
    before = [each.detach().clone() for each in (*model.parameters(), *model.buffers(), batch)]
    torch.manual_seed(3)
    expected = torch.rand(())
    torch.manual_seed(3)
    planned(model, batch)
    assert torch.equal(torch.rand(()), expected)
    after = (*model.parameters(), *model.buffers(), batch)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(each.grad is None for each in model.parameters())


def test_a_loss_that_writes_to_what_is_the_users_is_refused() -> None:
    """A sum over all steps would count two more."""
    total = torch.zeros(())

    def summed(output: Tensor) -> Tensor:
        total.add_(output.detach().sum())
        return loss(output)

    with pytest.raises(CaptureError, match="that is neither the model's nor"):
        planned(Routed(), batches()[0], of=summed)
    assert total.item() == 0


@pytest.mark.parametrize("has_gradients", [False, True])
def test_a_loss_that_trains_another_model_is_refused(has_gradients: bool) -> None:  # noqa: FBT001
    """The other one's gradients are as they were: none, or ones."""
    other = nn.Linear(4, 1)
    if has_gradients:
        for each in other.parameters():
            each.grad = torch.ones_like(each)
    with pytest.raises(CaptureError, match=r"neither the model's|none of the model's"):
        planned(Routed(), batches()[0], of=lambda output: other(output).mean())
    found = [each.grad for each in other.parameters()]
    assert all(each is None if not has_gradients else bool((each == 1).all()) for each in found)  # type: ignore[union-attr]


def test_a_capture_may_write_to_its_own_tensors() -> None:
    with protecting_user_tensors(CPU):
        made = torch.zeros(3).add_(1)
        made.grad = torch.ones(3)
    assert made.sum().item() == 3


def routed_step(model: Network, optimizer: torch.optim.Optimizer) -> Tensor:
    target = torch.randint(4, (8,))
    result = functional.cross_entropy(model(torch.randn(8, 16).abs()), target)
    backward(result)
    optimizer.step()
    optimizer.zero_grad()
    return result


def test_a_script_is_captured_with_real_tensors() -> None:
    """Its labels and its batch are copied for that; steps are to the bit as without."""

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        model = Routed()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        found = [routed_step(model, optimizer).detach() for _ in range(4)]
        return found + [each.detach() for each in (*model.parameters(), *model.buffers())]

    expected = run()
    with watched(real=True) as script:
        found = run()
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3
