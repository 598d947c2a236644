"""Scripts to which no plan is applied, and the reason that is said."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from tests.apply.models import Network
from tests.apply.scripts import batch, classifier, losses, updated, watched, with_a_criterion
from tests.apply.training import alike
from vdnnsim.errors import PlanWarning


class _Squares(torch.autograd.Function):
    """A loss computed by NumPy."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:  # noqa: ANN401
        context.save_for_backward(values)
        return torch.as_tensor(values.detach().numpy().sum())

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        return gradient.expand_as(context.saved_tensors[0])


def _replaced(model: Network) -> Tensor:
    weights = {name: each * 1 for name, each in model.named_parameters()}
    result: Tensor = torch.func.functional_call(model, weights, (batch(),)).mean()
    return result


def _cached(model: Network) -> Tensor:
    with parametrize.cached():
        result: Tensor = model(batch()).mean()
    return result


def _nested(model: Network) -> Tensor:
    rows: Tensor = torch.nested.nested_tensor([batch(), batch()[:3]], layout=torch.jagged)
    return Tensor(model(rows).values()).mean()


def _checkpointed(model: Network) -> Tensor:
    return torch.as_tensor(checkpoint(model, batch(), use_reentrant=False)).mean()


@pytest.mark.parametrize(
    ("of", "make", "why"),
    [
        (lambda each: each(batch()).sum(0), classifier, "does not begin at a scalar"),
        (lambda each: each(batch().double()).mean(), lambda: classifier().double(), "its parameters are float64"),
        (lambda each: _Squares.apply(each(batch())), classifier, "how it is made was not seen"),  # type: ignore[no-untyped-call]
        (_replaced, classifier, "0.weight is a tensor in this call, as within torch.func.functional_call"),
        (_cached, classifier, "within torch.nn.utils.parametrize.cached()"),
        (_nested, lambda: nn.Linear(16, 4), "is given nested tensors"),
        (_checkpointed, classifier, "within hooks of saved tensors"),
        (lambda each: torch.vmap(each)(batch()).mean(), classifier, "within a transform of torch.func"),
    ],
)
def test_scripts_that_are_refused(of: Callable[[Network], Tensor], make: Callable[[], nn.Module], why: str) -> None:

    def step(model: nn.Module, _: object) -> Tensor:
        result = of(model)
        result.backward(torch.ones_like(result))  # type: ignore[no-untyped-call]
        return result

    with watched() as script, pytest.raises(SystemExit) as end:
        losses(step, make)
    assert end.value.code == 1
    (said,) = script.said
    assert said.startswith("no plan can be applied: ")
    assert why in said
    assert not script.plans


def test_a_later_call_whose_saved_tensors_others_have_is_without_the_plan() -> None:
    """The third of five steps is checkpointed by the script; the plan's hooks would outlast those of the checkpoint."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        steps.append(0)
        return updated(_checkpointed(model) if len(steps) == 3 else model(batch()).mean(), optimizer)

    steps: list[int] = []
    expected = losses(step, steps=5)
    steps.clear()
    with watched() as script, pytest.warns(PlanWarning, match="hooks of saved tensors.*runs without a plan"):
        found = losses(step, steps=5)
    assert alike(expected, found)
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3


def test_a_plan_that_does_not_fit_is_refused() -> None:
    with watched(memory="1 KiB") as script, pytest.raises(SystemExit):
        losses(with_a_criterion)
    assert script.said[0].startswith("no plan can be applied: save_on_cpu")
    assert script.script.missed == ""


@pytest.mark.parametrize(
    ("steps", "why"),
    [(0, ""), (1, "no second step"), (None, "no backward")],
)
def test_the_reason_why_no_plan_was_applied(steps: int | None, why: str) -> None:
    with watched() as script:
        if steps is None:
            classifier()(batch())
        else:
            losses(with_a_criterion, steps=steps)
        assert why in script.script.missed
        assert bool(why) is bool(script.script.missed)
