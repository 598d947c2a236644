"""Steps that leave their plan, or seem to, have the gradients or the error of the plain loop."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from threading import Thread

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from tests.apply.models import MODELS, Network, backward, loss
from tests.apply.models import rows as batch
from tests.apply.training import alike, planned
from vdnnsim.api.planning import Planned, plan
from vdnnsim.errors import PlanWarning

CASE = MODELS["perceptron"]


@pytest.fixture(scope="module")
def model() -> Network:
    torch.manual_seed(0)
    return CASE.make_model()


@pytest.fixture(scope="module", params=["save_on_cpu", pytest.param("checkpoint", marks=pytest.mark.thorough)])
def shared(model: Network, request: pytest.FixtureRequest) -> Planned:
    return planned(CASE, model, request.param)


@pytest.fixture
def made(shared: Planned, model: Network) -> Iterator[Planned]:
    shared.loop._has_warned = shared.loop._has_told = False  # noqa: SLF001
    yield shared
    model.zero_grad()


def gradients(model: Network) -> list[Tensor]:
    found = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return found


def plain(model: nn.Module) -> None:
    backward(loss(model(batch())))


def fail(*_: object) -> None:
    raise ValueError("of the user")


def of_a_gradient_alone(model: nn.Module) -> None:
    given = batch().requires_grad_()
    (slope,) = torch.autograd.grad(loss(model(given)), given, create_graph=True)
    backward(slope.square().sum())


def of_two_models(model: nn.Module) -> None:
    other = copy.deepcopy(model)
    backward(loss(other(batch())) + loss(model(batch())))
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert another.grad is not None
        one.grad += another.grad


def of_another_type(model: nn.Module) -> None:
    model.double()
    backward(loss(model(batch().double())))
    for each in model.parameters():
        each.grad = None
    plain(model.float())


def with_another_loss(model: nn.Module) -> None:
    backward(loss(model(batch()).exp()))


def backward_in_another_thread(model: nn.Module) -> None:
    result = loss(model(batch()))
    thread = Thread(target=lambda: backward(result))
    thread.start()
    thread.join()


def saved_by_the_user(model: nn.Module) -> None:
    with torch.autograd.graph.save_on_cpu():
        plain(model)


def with_hooks(model: nn.Module) -> None:
    kept: list[Tensor] = []
    hooks = [each.register_forward_hook(lambda _, __, result: kept.append(result)) for each in model.modules()]
    hooks += [each.register_hook(lambda gradient: gradient * 2) for each in model.parameters()]  # type: ignore[no-untyped-call]
    plain(model)
    for each in hooks:
        each.remove()


def with_other_weights(model: nn.Module) -> None:
    weights = {name: each * 1.0 for name, each in model.named_parameters()}
    backward(loss(torch.func.functional_call(model, weights, (batch(),))))


def in_parts(model: nn.Module) -> None:
    """Compute one gradient, fail within backward, then compute all."""
    *_, first, last = model.parameters()
    result = loss(model(batch()))
    (slope,) = torch.autograd.grad(result, last, retain_graph=True)
    with first.register_hook(fail), pytest.raises(ValueError, match="of the user"):  # type: ignore[no-untyped-call]
        backward(result, retain_graph=True)
    model.zero_grad()
    backward(result)
    assert last.grad is not None
    last.grad += slope


DEPARTS = (of_a_gradient_alone, of_two_models, of_another_type, with_another_loss)
FOLLOWS = (backward_in_another_thread, saved_by_the_user, with_hooks, with_other_weights, in_parts)
"""Other batches, checkpoints, penalties, contexts, threads and evaluations are among drawn loops."""


@pytest.mark.parametrize("use", [*DEPARTS, *FOLLOWS])
def test_gradients_are_those_of_the_plain_loop(made: Planned, model: Network, use: Callable[[nn.Module], None]) -> None:
    torch.manual_seed(3)
    use(model)
    expected = gradients(model)
    torch.manual_seed(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with made.apply(model) as log:
            use(model)
    assert expected
    assert alike(expected, gradients(model))
    assert bool(log.departure) is (use in DEPARTS)
    assert len([each for each in said if "the plan of" in str(each.message)]) == (use in DEPARTS)
    with made.apply(model) as log:
        plain(model)
    assert not log.departure


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_departs(made: Planned, model: Network) -> None:
    torch.manual_seed(3)
    compiled: Network = torch.compile(model, backend="aot_eager")
    plain(compiled)
    expected = gradients(model)
    torch.manual_seed(3)
    with made.apply(model) as log:
        plain(compiled)
    assert alike(expected, gradients(model))
    assert log.departure or not made.loop.schedule.offloaded
    with made.apply(compiled) as log:
        plain(compiled)
    assert "torch.compile" in log.departure


def test_a_compiled_call_in_the_context_is_said_once(made: Planned, model: Network) -> None:
    compiled: Network = torch.compile(model, backend="eager")
    for warns in (True, False):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with made.apply(model) as log:
                plain(compiled)
        assert not log.departure
        assert any("is compiled by torch.compile" in str(each.message) for each in said) is warns


def test_transforms_of_functions_are_refused(made: Planned, model: Network) -> None:
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def of(weights: dict[str, Tensor]) -> Tensor:
        return loss(torch.func.functional_call(model, weights, (torch.ones(8, 16),)))

    with made.apply(model), pytest.raises(RuntimeError, match="saved tensor hooks"):
        torch.func.grad(of)(weights)


def test_a_step_within_another_departs(made: Planned, model: Network) -> None:
    torch.manual_seed(3)
    plain(model)
    expected = gradients(model)
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="opened within another"), made.apply(model), made.apply(model):
        plain(model)
    assert alike(expected, gradients(model))


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint", "pytorch"])
@pytest.mark.parametrize("writes_weights", [False, True])
def test_a_written_tensor_is_refused(policy: str, writes_weights: bool) -> None:  # noqa: FBT001
    """As PyTorch refuses it, by its shape, whose own check is off under hooks.

    Under checkpoints the product that GELU saves is recomputed before that, from what was written.
    """
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.Softplus()]
    model: Network = nn.Sequential(*layers, nn.Linear(16, 2))
    made = planned(CASE, model, policy)
    kept: list[Tensor] = [model[2].weight] if writes_weights else []
    model[1].register_forward_hook(lambda _, __, result: kept.append(result))
    with made.apply(model):
        result = loss(model(batch()))
        with torch.no_grad():
            kept[0].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as refused:
            backward(result)
    assert str(list(kept[0].shape)) in str(refused.value)


@pytest.mark.parametrize("way", ["foreach", "fused"])
def test_an_update_before_backward_is_refused(way: str) -> None:
    """What is recomputed would read the new weights; PyTorch itself counts no writes of a fused optimizer."""
    torch.manual_seed(0)
    model: Network = nn.Sequential(nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 2))
    made = planned(CASE, model, "checkpoint")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, **{way: True})
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    with made.apply(model):
        result = loss(model(batch()))
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(result)


class Marked(torch.autograd.Function):
    """Says that it writes a second tensor."""

    @staticmethod
    def forward(ctx: FunctionCtx, hidden: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        ctx.mark_dirty(shift)
        ctx.mark_non_differentiable(shift)
        return hidden.clone(), shift

    @staticmethod
    def backward(_: FunctionCtx, gradient: Tensor, __: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class Shifted(nn.Module):
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Linear(16, 64), nn.Linear(64, 64), nn.LayerNorm(64)
        self.register_buffer("shift", torch.ones(64))

    def forward(self, rows: Tensor) -> Tensor:
        hidden = functional.silu(self.norm(self.first(rows)), inplace=True)
        hidden.add_(self.shift)
        marked, _ = Marked.apply(hidden, self.shift)  # type: ignore[no-untyped-call]
        result: Tensor = self.last(hidden) + marked
        for _ in range(6):
            result = self.last(torch.tanh(result))
        return result


def test_what_a_later_operation_wrote_is_not_read() -> None:
    """SiLU in place saves a copy of its input, to be recomputed from it; the sum with `shift` writes the input later.

    The user's function marks `shift` as written, so the sum cannot be recomputed and the input is not released. Read as
    it is then, the copy would be that of the sum, and gradients wrong.
    """
    torch.manual_seed(0)
    model = Shifted()
    made = plan(model, batch(), hardware="rtx_4090", policy="checkpoint", loss=loss, optimizer="sgd")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"), made.apply(model):
        backward(loss(model(batch())))


@pytest.mark.parametrize(("policy", "has_hooks"), [("none", False), ("save_on_cpu", True)])
def test_a_plan_that_does_nothing_does_not_see_another_batch(model: Network, policy: str, has_hooks: bool) -> None:  # noqa: FBT001
    made = planned(CASE, model, policy)
    warned = pytest.warns(PlanWarning, match="was left") if has_hooks else nullcontext()
    with warned, made.apply(model):
        backward(loss(model(torch.cat((batch(), batch())))))
    model.zero_grad()


@pytest.mark.parametrize(("policy", "has_hooks"), [("none", False), ("save_on_cpu", True)])
def test_a_plan_that_does_nothing_leaves_steps_alone(model: Network, policy: str, has_hooks: bool) -> None:  # noqa: FBT001
    """Without a limit of memory there is nothing that its hooks would do; PyTorch knows whether there are some."""
    made = planned(CASE, model, policy)
    assert made.loop.schedule.is_idle is not has_hooks
    for _ in range(2):
        with made.apply(model):
            assert bool(torch._C._autograd._top_saved_tensors_default_hooks(False)) is has_hooks  # noqa: SLF001, FBT003
            plain(model)
    model.zero_grad()
