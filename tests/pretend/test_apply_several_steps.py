"""Several steps of a plan alive on a pretended GPU: no copy disturbs another of a slot that they share."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.calibration.executor.races import find_races
from tests.pretend import test_apply_races
from tests.pretend.test_apply import loss

pytestmark = [pytest.mark.pretend, pytest.mark.filterwarnings("ignore:the plan of")]


def test_slots_are_taken_while_copies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step takes the slots of a forward that is dropped, and of losses once their one backward is done.

    Copies end late, so those of the former step still run then. Of nine steps the second and third of three losses and
    the second of two depart: six leave, and without the two that are dropped four come back.
    """

    def steps(
        model: nn.Module, batch: Tensor, count: int, applied: Callable[[nn.Module], AbstractContextManager[Any]]
    ) -> None:
        def forward() -> Tensor:
            with applied(model):
                return loss(model(torch.zeros_like(batch, device="cuda")))

        def backward(result: Tensor) -> None:
            result.backward()  # type: ignore[no-untyped-call]

        forward()
        forward()
        losses = [forward() for _ in range(3)]
        backward(torch.stack(losses).sum())
        losses.clear()
        first = forward()
        second = forward()
        backward(second)
        backward(first)
        for _ in range(count):
            backward(forward())

    monkeypatch.setattr(test_apply_races, "train", steps)
    watch, offloaded_bytes = test_apply_races.watched("convolutional", monkeypatch)
    assert watch.copied_bytes == (6 + 4) * offloaded_bytes > 0
    assert find_races(watch.operations, watch.touches) == []
