"""What leaves the plan is right without it, or refused as PyTorch refuses it, and said once."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.apply.models import MODELS, Network, backward, loss
from tests.apply.test_live import planned
from vdnnsim.live import Planned

CASE = MODELS["perceptron"]


@pytest.fixture(scope="module")
def model() -> Network:
    torch.manual_seed(0)
    return CASE.make()


@pytest.fixture(scope="module")
def made(model: Network) -> Planned:
    return planned(CASE, model, "save_on_cpu")


def gradients(model: Network) -> list[Tensor]:
    """Return and drop the gradients of a model."""
    found = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return found


def alike(made: Planned, model: Network, use: Callable[[nn.Module], None], *, departs: str) -> None:
    """Hold what a use leaves behind with the plan to what it does without."""
    torch.manual_seed(3)
    use(model)
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    torch.manual_seed(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with made.apply(model) as log:
            use(model)
        found = gradients(model)
    assert len(expected) == len(found) > 0
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert departs in log.departure
    assert len(said) == bool(departs)


def test_another_batch(made: Planned, model: Network) -> None:
    batch = torch.randn(5, 16)
    alike(made, model, lambda each: backward(loss(each(batch))), departs="expected float32 [8, 16]")


def test_two_steps_in_one_context(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        for _ in range(2):
            backward(loss(each(torch.randn(8, 16))))

    alike(made, model, use, departs="more is saved")


def test_a_new_branch(made: Planned, model: Network) -> None:
    alike(made, model, lambda each: backward(loss(each(torch.randn(8, 16)).exp())), departs="save")


def test_evaluation_within(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        with torch.no_grad():
            each(torch.ones(3, 16))
        backward(loss(each(torch.randn(8, 16))))

    alike(made, model, use, departs="")


def test_backward_twice(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        result = loss(each(torch.randn(8, 16)))
        backward(result, retain_graph=True)
        backward(result)

    alike(made, model, use, departs="")


def test_double_backward(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        batch = torch.randn(8, 16, requires_grad=True)
        (slope,) = torch.autograd.grad(loss(each(batch)), batch, create_graph=True)
        backward(slope.square().sum())

    alike(made, model, use, departs="save")


def test_backward_outside(made: Planned, model: Network) -> None:
    batch = torch.randn(8, 16)
    backward(loss(model(batch)))
    expected = gradients(model)
    with made.apply(model):
        result = loss(model(batch))
    backward(result)
    assert all(torch.equal(one, other) for one, other in zip(expected, gradients(model), strict=True))


def test_two_graphs_at_once(made: Planned, model: Network) -> None:
    """The second step must not write over what the first has in pinned memory."""
    batches = torch.randn(8, 16), torch.randn(8, 16)
    for batch in batches:
        backward(loss(model(batch)))
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    with made.apply(model):
        first = loss(model(batches[0]))
    with pytest.warns(UserWarning, match="the step before still has what it needs"), made.apply(model):
        second = loss(model(batches[1]))
    backward(first)
    backward(second)
    assert all(torch.equal(one, other) for one, other in zip(expected, gradients(model), strict=True))


def test_a_step_dropped_without_backward(made: Planned, model: Network) -> None:
    with made.apply(model):
        loss(model(torch.randn(8, 16)))
    with made.apply(model) as log:
        backward(loss(model(torch.randn(8, 16))))
    gradients(model)
    assert not log.departure


def test_a_failure_in_forward(made: Planned, model: Network) -> None:
    def fail(each: nn.Module) -> None:
        with made.apply(each):
            each(torch.randn(8, 16))
            raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        fail(model)
    alike(made, model, lambda each: backward(loss(each(torch.randn(8, 16)))), departs="")


def test_one_context_in_another(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        with made.apply(each):
            backward(loss(each(torch.randn(8, 16))))

    torch.manual_seed(3)
    backward(loss(model(torch.randn(8, 16))))
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="opened within another"), made.apply(model):
        use(model)
    assert all(torch.equal(one, other) for one, other in zip(expected, gradients(model), strict=True))


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint", "pytorch"])
def test_what_was_written_over_is_refused(policy: str) -> None:
    """As PyTorch does, whose own check is off where hooks keep what is saved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 2))
    plan = planned(CASE, model, policy)
    kept: list[Tensor] = []
    model[1].register_forward_hook(lambda _, __, result: kept.append(result))
    made = copy.copy(plan)
    with made.apply(model):
        result = loss(model(torch.randn(8, 16)))
        with torch.no_grad():
            kept[0].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(result)


def test_weights_changed_before_backward(made: Planned, model: Network) -> None:
    with made.apply(model):
        result = loss(model(torch.randn(8, 16)))
        with torch.no_grad():
            model[2].weight.mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(result)
    model.zero_grad()
