"""Training with a plan and without."""

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

from calibration.capture.program import Arguments
from reports.capture.case import Case
from tests.apply.models import backward, loss
from vdnnsim.api.planning import Planned, PlanRequest, request_plan
from vdnnsim.errors import PlanError
from vdnnsim.planning import planner
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.optimizer_states import amounts
from vdnnsim.planning.orders import Orders
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies import registry
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.optimal import Optimal

_STEPS: Final = 3

Applied = Callable[[nn.Module], AbstractContextManager[Any]]


def without(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def put_all_states_on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `optimal(offload_optimizer=true)` plan with all states on the host, also where it need not."""
    planned = Optimal._planned  # noqa: SLF001 - a plan without them is one of two

    def with_states(policy: Optimal, setting: Setting, orders: Orders, effort: Effort, *_: object) -> TrainingPlan:
        if not orders.movable:
            raise PlanError("not asked for")
        return planned(policy, setting, orders, effort)

    monkeypatch.setattr(Optimal, "_planned", with_states)
    monkeypatch.setattr(Optimal, "_or_faster", lambda _policy, plan, *_: (plan, True))
    monkeypatch.setattr(planner, "amounts", lambda problem: amounts(problem)[-1:])


def requested(model: nn.Module, inputs: object, policy: str, **options: Any) -> PlanRequest:  # noqa: ANN401
    """Return the request of a plan as if the CPU were a card; options are of `request_plan`."""
    plain: dict[str, Any] = {
        "memory": None,
        "loss": loss,
        "precision": "float32",
        "optimizer": "sgd",
        "memory_model": "ideal",
    }
    return request_plan(model, inputs, hardware="rtx_4090", policy=policy, **(plain | options))


def request_of(case: Case, model: nn.Module, policy: str) -> PlanRequest:
    chosen: dict[str, Any] = {"loss": case.loss, "precision": case.precision.value, "optimizer": case.optimizer}
    return requested(model, case.make_inputs(), policy, **chosen)


def planned(case: Case, model: nn.Module, policy: str) -> Planned:
    return request_of(case, model, policy).planned()


def train(case: Case, model: nn.Module, batches: Sequence[Arguments], applied: Applied = without) -> list[Tensor]:
    """Return losses, gradients and buffers of each step of a copy of a model, and its weights at the end."""
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
    """Return the gradients of a copy of a model for each batch, with the same random numbers each time."""
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
    pairs = zip(ones, others, strict=False)
    return len(ones) == len(others) and all(torch.equal(*_bits(one, other)) for one, other in pairs)


def _bits(*tensors: Tensor) -> Sequence[Tensor]:
    # By their bytes: NaN is not equal to itself.
    return [each.contiguous().view(-1).view(torch.uint8) if each.numel() else each for each in tensors]


@dataclass(frozen=True)
class Outcome:
    """Three steps with a plan compared to three without.

    If `is_same`, losses, gradients, buffers and weights are equal bit by bit; if `is_moved`, each step offloaded and
    prefetched the planned bytes, in the order of the first.
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
        return self.is_same and self.is_moved and not self.departure


@lru_cache(maxsize=16)
def _without_a_plan(case: Case) -> tuple[nn.Module, PlanRequest, list[Arguments], list[Tensor]]:
    """Return a model, the request of its plans, its batches, and what training without a plan makes of them."""
    torch.manual_seed(0)
    model = case.make_model()
    batches = [case.make_inputs() for _ in range(_STEPS)]
    return model, request_of(case, model, "pytorch"), batches, train(case, model, batches)


def compare(case: Case, policy: str) -> Outcome:
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
