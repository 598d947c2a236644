"""Models whose forward reads values, captured with real tensors."""

import gc
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import Function
from torch.nn import functional

import vdnnsim
from calibration.apply.user_state import protecting_user_tensors
from calibration.capture.outside_tensors import existing
from calibration.capture.program import Arguments
from reports.capture.case import Case
from tests.apply.models import Network, backward, loss
from tests.apply.scripts import watched
from tests.apply.training import alike, requested, train
from vdnnsim.api.planning import Planned
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
    return requested(model, batch, "save_on_cpu", loss=of, real=real).planned()


def batches() -> list[Tensor]:
    """Return five, of which the third takes the other branch."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 16, generator=generator) + (-1 if at == 2 else 1) for at in range(5)]


def test_what_a_capture_with_real_tensors_may_write() -> None:
    with pytest.raises(CaptureError, match="real=True"):
        planned(Routed(), batches()[0], real=False)
    # A capture may write to its own tensors.
    with protecting_user_tensors(CPU):
        made = torch.zeros(3).add_(1)
        made.grad = torch.ones(3)
    assert made.sum().item() == 3
    # A loss that writes to a users tensor is refused.
    total = torch.zeros(())

    def summed(output: Tensor) -> Tensor:
        total.add_(output.detach().sum())
        return loss(output)

    with pytest.raises(CaptureError, match="that is neither the model's nor"):
        planned(Routed(), batches()[0], of=summed)
    assert total.item() == 0


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("model", "right"),
    [
        (Routed, "is for `vdnnsim"),
        ("resnet18", "is for `vdnnsim"),
        (partial(nn.LazyLinear, 4), "expected one of which forward has run"),
    ],
)
@pytest.mark.parametrize("real", [False, True])
def test_a_plan_is_of_the_module_that_the_loop_trains(model: Any, right: str, real: bool) -> None:  # noqa: ANN401, FBT001 - whatever a user gives
    made = model() if isinstance(model, partial) else model
    with pytest.raises(CaptureError, match=right):
        vdnnsim.plan(made, batches()[0], hardware="rtx_4090", real=real)


def test_steps_follow_the_plan_on_the_captured_branch() -> None:
    model = Routed()
    inputs: list[Arguments] = [((each,), {}) for each in batches()]
    case = Case("routed", "own", Routed, lambda: inputs[0], loss, "sgd")
    made = planned(model, batches()[0])
    with pytest.warns(UserWarning, match="the plan of Routed was left") as said:
        found = train(case, model, inputs, made.apply)
    assert alike(train(case, model, inputs), found)
    assert len(said) == 1
    assert [bool(each.departure) for each in made.loop.steps] == [False, False, True, False, False]
    offloaded = [each.offloaded_bytes for each in made.loop.steps if not each.departure]
    assert offloaded == [made.loop.schedule.offloaded_bytes] * 4
    assert offloaded[0] > 0


def test_a_capture_changes_nothing() -> None:
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
    assert alike(before, after)
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize(("has_gradients", "real"), [(False, True), (True, True), (False, False), (True, False)])
def test_a_loss_that_trains_another_model_is_refused(has_gradients: bool, real: bool) -> None:  # noqa: FBT001
    other = nn.Linear(4, 1)
    if has_gradients:
        for each in other.parameters():
            each.grad = torch.ones_like(each)
    with pytest.raises(CaptureError, match=r"a tensor of shape .* the model's"):
        planned(nn.Linear(16, 4), batches()[0], real=real, of=lambda output: other(output).mean())
    found = [each.grad for each in other.parameters()]
    assert all(each is None if not has_gradients else bool((each == 1).all()) for each in found)  # type: ignore[union-attr]


@pytest.mark.parametrize("real", [False, True])
def test_a_layer_that_is_reached_beside_the_copy_of_a_model_is_refused(real: bool) -> None:  # noqa: FBT001
    """A capture runs a copy; a method that was kept is of the original, which would get the gradients of the copy."""
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
    kept = model[1].forward
    model[1].forward = lambda hidden: kept(hidden)  # noqa: PLW0108 - a copy would have a bound method of its own
    with pytest.raises(CaptureError, match=r"1\.(weight|bias) gets a gradient"):
        planned(model, batches()[0], real=real)
    assert all(each.grad is None for each in model.parameters())


def test_a_view_that_may_not_be_used_is_no_reason_to_refuse() -> None:
    """Made without gradients, of a tensor that was written with them since: PyTorch refuses to say of what it is."""
    base = torch.zeros(4)
    with torch.no_grad():
        view = base[:2]
    base[:2] = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        assert view.is_leaf
    assert planned(nn.Linear(16, 4), batches()[0], real=False).loop.schedule.tape.saves


def test_a_model_computes_with_nothing_that_a_capture_left_without_values() -> None:
    """A cached random table is made by the first forward: without values in a capture, with values before it."""

    @cache
    def table() -> Tensor:
        return torch.randn(4)

    class Shifted(nn.Linear):
        def forward(self, batch: Tensor) -> Tensor:
            return super().forward(batch).tanh() + table()

    model = Shifted(16, 4)
    plan = partial(vdnnsim.plan, model, batches()[0], hardware="rtx_4090", loss=loss, policy="checkpoint")
    with pytest.raises(CaptureError, match="without values, which forward or a hook kept"), plan().apply(model):
        model(batches()[0])
    table.cache_clear()
    expected = model(batches()[0])
    with plan().apply(model):
        assert torch.equal(model(batches()[0]), expected)


def test_what_forward_and_a_hook_write_anew_hinders_no_plan() -> None:
    """A result that no loss takes is kept on the model, and a hook keeps another, which the loss does take."""

    class Kept(nn.Sequential):
        def forward(self, batch: Tensor) -> Tensor:
            self.aside = self[1](batch)
            return torch.as_tensor(self[0](batch))

    model, found = Kept(nn.Linear(16, 4), nn.Linear(16, 2)), dict[str, Tensor]()
    model[0].register_forward_hook(lambda _module, _inputs, output: found.update(output=output))

    def of(output: Tensor) -> Tensor:
        return loss(output) + loss(found["output"])

    before = len(existing(FakeTensor))
    plan = planned(model, batches()[0], real=False, of=of)
    with plan.apply(model) as log:
        backward(of(model(batches()[0])))
    assert not log.departure
    gc.collect()
    assert len(existing(FakeTensor)) == before


class HalvedByNumpy(Function):
    """Halves its input in place, past PyTorch's operations."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
        values = hidden.detach().numpy()
        values *= 0.5
        ctx.mark_dirty(hidden)
        return hidden

    @staticmethod
    def backward(_: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401
        """Derive half of it."""
        return slopes[0] * 0.5


class Halving(nn.Module):
    """What is halved is read by an operation, then saved by the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.between, self.last = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, batch: Tensor) -> Tensor:
        halved = HalvedByNumpy.apply(self.first(batch) * 1.5)  # type: ignore[no-untyped-call]
        hidden = torch.tanh(self.between(halved.sin()))
        result: Tensor = self.last(functional.gelu(hidden))
        return result


@pytest.mark.parametrize("policy", ["checkpoint", "save_on_cpu"])
def test_what_numpy_wrote_is_neither_recomputed_nor_moved(policy: str) -> None:
    """No operation of forward makes the halves: recomputed from its product, the sine would have the wrong input."""
    model = Halving()
    made = requested(model, batches()[0], policy, real=True).planned()
    inputs: list[Arguments] = [((each,), {}) for each in batches()]
    case = Case("halving", "own", Halving, lambda: inputs[0], loss, "sgd")
    assert alike(train(case, model, inputs), train(case, model, inputs, made.apply))
    assert not any(each.departure for each in made.loop.steps)
    assert all(each.order for each in made.loop.steps)


def routed_step(model: Network, optimizer: torch.optim.Optimizer) -> Tensor:
    target = torch.randint(4, (8,))
    result = functional.cross_entropy(model(torch.randn(8, 16).abs()), target)
    backward(result)
    optimizer.step()
    optimizer.zero_grad()
    return result


def test_a_script_is_captured_with_real_tensors() -> None:

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        model = Routed()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        found = [routed_step(model, optimizer).detach() for _ in range(4)]
        return found + [each.detach() for each in (*model.parameters(), *model.buffers())]

    expected = run()
    with watched(real=True) as script:
        found = run()
    assert alike(expected, found)
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3
