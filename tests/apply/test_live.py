"""A loop with a plan computes, to the bit, what it computes without, and moves exactly what was planned."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.apply.models import MODELS, Case, Network, backward, loss
from vdnnsim.api.live import Planned, plan


def planned(case: Case, model: Network, policy: str, memory: str | None = None) -> Planned:
    """Plan a model as if the CPU were a card."""
    return plan(
        model,
        case.inputs(),
        hardware="rtx_4090",
        policy=policy,
        memory=memory,
        loss=loss,
        precision=case.precision,
        optimizer="sgd",
        memory_model="ideal",
    )


def run(
    case: Case, model: Network, batches: list[Tensor], applied: Callable[[nn.Module], AbstractContextManager[Any]]
) -> list[Tensor]:
    """Train three steps; return every loss, gradient, buffer and parameter."""
    torch.manual_seed(7)
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD([each for each in trained.parameters() if each.requires_grad], lr=0.1)
    found = []
    for batch in batches:
        with applied(trained):
            narrow = case.precision != "float32"
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                result = loss(trained(batch))
            backward(result)
        found.append(result.detach().clone())
        found += [each.grad.clone() for each in trained.parameters() if each.grad is not None]
        found += [each.clone() for each in trained.buffers()]
        optimizer.step()
        optimizer.zero_grad()
    return found + [each.detach() for each in trained.parameters()]


COMPUTED_AGAIN = {"convolutional", "residual", "in place", "saved between", "gru", "attention", "autocast"}
"""Models whose checkpoints differ in kind; those of the others are tried in the thorough run."""
CASES = [
    *((name, "save_on_cpu") for name in MODELS),
    *(
        pytest.param(name, "checkpoint", marks=() if name in COMPUTED_AGAIN else pytest.mark.thorough)
        for name in MODELS
    ),
]


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_a_plan_changes_no_bit(name: str, policy: str) -> None:
    """Losses, gradients, buffers and weights of three steps are the same; planned bytes are moved, there and back."""
    case = MODELS[name]
    torch.manual_seed(0)
    model = case.make()
    batches = [case.inputs() for _ in range(3)]
    made = planned(case, model, policy)
    expected = run(case, model, batches, lambda _: nullcontext())
    found = run(case, model, batches, made.apply)
    assert len(expected) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    agenda = made.loop.agenda
    for step in made.loop.steps:
        assert not step.departure
        assert (step.offloaded_bytes, step.fetched_bytes) == (agenda.offloaded_bytes, agenda.offloaded_bytes)
        assert step.order == made.loop.steps[0].order
    if policy == "save_on_cpu":
        assert agenda.offloaded_bytes > 0
