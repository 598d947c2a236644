"""Scripts that are watched as `vdnnsim apply` does, and small ones to watch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from calibration.apply.script import Script
from tests.apply.models import backward
from vdnnsim.api.planning import Planned
from vdnnsim.api.script import ScriptPlan, planned_beside

Step = Callable[[nn.Module, torch.optim.Optimizer], Tensor]


class Watched:
    """A script with hooks, the lines that it printed and its plans."""

    def __init__(self, policy: str, memory: str | None, *, real: bool) -> None:
        self._real = real
        self.said: list[str] = []
        self.plans: list[Planned] = []
        self.asked: list[dict[str, Any]] = []
        self.script = Script(partial(self._plan, policy, memory), self.said.append)

    def _plan(self, policy: str, memory: str | None, model: nn.Module, inputs: Any, **asked: Any) -> ScriptPlan:  # noqa: ANN401
        self.asked.append(asked)
        chosen: dict[str, Any] = {"policy": policy, "memory": memory, "hardware": "rtx_4090", "memory_model": "ideal"}
        made = planned_beside(model, inputs, real=self._real, **chosen, **asked)
        self.plans.append(made.planned)
        return made


@contextmanager
def watched(policy: str = "save_on_cpu", memory: str | None = None, *, real: bool = False) -> Iterator[Watched]:
    found = Watched(policy, memory, real=real)
    found.script.watch()
    try:
        yield found
    finally:
        found.script.leave()


def classifier() -> nn.Module:
    parts = [nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(32, 4))


def batch() -> Tensor:
    return torch.randn(8, 16)


def labels() -> Tensor:
    return torch.randint(4, (8,))


def updated(result: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    backward(result)
    optimizer.step()
    optimizer.zero_grad()
    return result


def with_a_criterion(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    result: Tensor = nn.CrossEntropyLoss()(model(batch()), labels())
    return updated(result, optimizer)


def losses(step: Step, make: Callable[[], nn.Module] = classifier, steps: int = 4) -> list[Tensor]:
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found = [step(model, optimizer).detach().clone() for _ in range(steps)]
    return found + [each.detach() for each in (*model.parameters(), *model.buffers())]
