"""A loop with a plan, beside the same loop without."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from calibration.capture.program import Arguments
from tests.apply.models import backward, loss
from tests.capture_zoo.case import Case
from vdnnsim.api.planning import Planned, PlanRequest, request_plan
from vdnnsim.policies import registry

_STEPS: Final = 3

Applied = Callable[[nn.Module], AbstractContextManager[Any]]


def without(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def asked(case: Case, model: nn.Module, policy: str, memory: str | None = None) -> PlanRequest:
    """Return what is asked for where a model is planned as if the CPU were a card."""
    return request_plan(
        model,
        case.make_inputs(),
        hardware="rtx_4090",
        policy=policy,
        memory=memory,
        loss=case.loss,
        precision=case.precision.value,
        optimizer=case.optimizer,
        memory_model="ideal",
    )


def planned(case: Case, model: nn.Module, policy: str, memory: str | None = None) -> Planned:
    return asked(case, model, policy, memory).planned()


def train(case: Case, model: nn.Module, batches: Sequence[Arguments], applied: Applied = without) -> list[Tensor]:
    """Train a copy of a model; return every loss, gradient and buffer of each step, and the weights at the end."""
    torch.manual_seed(7)
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD([each for each in trained.parameters() if each.requires_grad], lr=1e-3)
    narrow = case.precision.autocast
    autocast = torch.autocast("cpu", getattr(torch, narrow.value)) if narrow else nullcontext()
    found: list[Tensor] = []
    for args, kwargs in batches:
        with applied(trained):
            with autocast:
                result = case.loss(trained(*args, **kwargs))
            backward(result)
        found.append(result.detach().clone())
        found += [each.grad.clone() for each in trained.parameters() if each.grad is not None]
        found += [each.clone() for each in trained.buffers()]
        optimizer.step()
        optimizer.zero_grad()
    return found + [each.detach() for each in trained.parameters()]


def gradients(model: nn.Module, *batches: Tensor, applied: Applied = without) -> list[Tensor]:
    """Return the gradients that a copy of a model has of each batch, with the same random numbers each time."""
    torch.manual_seed(1)
    trained = copy.deepcopy(model)
    found: list[Tensor] = []
    for batch in batches:
        with applied(trained):
            backward(loss(trained(batch)))
        found += [each.grad.clone() for each in trained.parameters() if each.grad is not None]
        trained.zero_grad()
    return found


def alike(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors are the same, to the bit."""
    pairs = zip(ones, others, strict=False)
    return len(ones) == len(others) and all(torch.equal(*_bits(one, other)) for one, other in pairs)


def _bits(*tensors: Tensor) -> Sequence[Tensor]:
    # By their bytes, for nothing that is not a number equals itself.
    return [each.contiguous().view(-1).view(torch.uint8) if each.numel() else each for each in tensors]


@dataclass(frozen=True)
class Outcome:
    """What three steps with a plan were, beside three without.

    Attributes:
        departure: where a step left what was captured.
        is_same: whether losses, gradients, buffers and weights are the same to the bit.
        is_moved: whether each step moved the planned bytes, there and back, in the order of the first.
        saves: tensors that autograd saves in a step.
        moved, remade: storages that are offloaded, and that are recomputed.
    """

    departure: str
    is_same: bool
    is_moved: bool
    saves: int
    moved: int
    remade: int
    offloaded_bytes: int

    @property
    def is_right(self) -> bool:
        """Whether all is as it should be."""
        return self.is_same and self.is_moved and not self.departure


@lru_cache(maxsize=16)
def _without_a_plan(case: Case) -> tuple[nn.Module, PlanRequest, list[Arguments], list[Tensor]]:
    """Return a model with what its plans are asked of, its batches, and what comes of them."""
    torch.manual_seed(0)
    model = case.make_model().train()
    batches = [case.make_inputs() for _ in range(_STEPS)]
    return model, asked(case, model, "pytorch"), batches, train(case, model, batches)


def compare(case: Case, policy: str) -> Outcome:
    """Train a model with a plan and without."""
    model, captured, batches, expected = _without_a_plan(case)
    made = replace(captured, policy=registry.resolve_policy(policy, registry.known_policies())).planned()
    found = train(case, model, batches, made.apply)
    schedule, logs = made.loop.schedule, made.loop.steps
    return Outcome(
        next((each.departure for each in logs if each.departure), ""),
        alike(expected, found),
        all(
            each.offloaded_bytes == each.fetched_bytes == schedule.offloaded_bytes and each.order == logs[0].order
            for each in logs
        ),
        len(schedule.tape.saves),
        len(schedule.offloaded),
        len(schedule.recomputed),
        schedule.offloaded_bytes,
    )
