"""Several steps of a plan alive on a pretended GPU: no copy disturbs another of a slot that they share."""

import pytest
import torch
from torch import Tensor

from reports.promises import loss
from tests.pretend.test_apply_races import copied_bytes, hazards, planned_to_move
from tests.pretend.watch import watched

pytestmark = [pytest.mark.pretend, pytest.mark.filterwarnings("ignore:the plan of", "ignore:PyTorch has reserved")]


def test_slots_are_taken_while_copies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next step reuses the slots of a dropped forward, and of losses after their joint backward.

    Copies end late, so those of the former step still run then. Of nine steps the second and third of three losses and
    the second of two depart: six are offloaded, and without the two that are dropped four prefetched.
    """
    made, model, batch = planned_to_move("convolutional")

    def steps() -> None:
        def forward() -> Tensor:
            with made.apply(model):
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
        for _ in range(2):
            backward(forward())

    watch, happened = watched(steps, monkeypatch)
    assert copied_bytes(made, watch) == (6 + 4) * made.loop.schedule.offloaded_bytes > 0
    assert hazards(made, happened) == []
