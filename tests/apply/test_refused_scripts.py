"""Scripts to which no plan is applied, and the reason that is said."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.apply.models import Network
from tests.apply.scripts import batch, classifier, losses, watched, with_a_criterion


class _Squares(torch.autograd.Function):
    """A loss computed by NumPy."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:  # noqa: ANN401
        context.save_for_backward(values)
        return torch.as_tensor(values.detach().numpy().sum())

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        return gradient.expand_as(context.saved_tensors[0])


@pytest.mark.parametrize(
    ("of", "make", "why"),
    [
        (lambda each: each(batch()).sum(0), classifier, "does not begin at a scalar"),
        (lambda each: each(batch().double()).mean(), lambda: classifier().double(), "its parameters are float64"),
        (lambda each: _Squares.apply(each(batch())), classifier, "how it is made was not seen"),  # type: ignore[no-untyped-call]
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
