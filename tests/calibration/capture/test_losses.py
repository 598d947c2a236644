"""The loss: the model's own, or one that fits what it returns."""

from collections import OrderedDict
from dataclasses import dataclass
from math import log
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from calibration.capture.losses import AssumedLoss
from vdnnsim.errors import CaptureError


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class Heads(NamedTuple):
    logits: torch.Tensor
    auxiliary: torch.Tensor


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor(3.0),
        torch.tensor([3.0]),
        (torch.tensor(3.0), torch.ones(2, 4)),
        {"loss": torch.tensor(3.0), "logits": torch.ones(2, 4)},
        SimpleNamespace(loss=torch.tensor(3.0)),
        Output(torch.tensor(3.0), torch.ones(2, 4)),
    ],
)
def test_a_loss_of_the_model_is_taken(output: object) -> None:
    loss = AssumedLoss("net")
    assert loss(output).item() == 3
    assert loss.notes == ()


@pytest.mark.parametrize("shape", [(2, 4), (2, 3, 4)])
def test_logits_get_cross_entropy(shape: tuple[int, ...]) -> None:
    """Of four equal classes: -log(1/4)."""
    loss = AssumedLoss("net")
    assert loss(torch.zeros(shape)).item() == pytest.approx(log(4))
    (note,) = loss.notes
    assert f"cross entropy of its output, {'x'.join(map(str, shape))}, " in note


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3, 4, 5)])
def test_other_outputs_get_the_mean_of_squares(shape: tuple[int, ...]) -> None:
    loss = AssumedLoss("net")
    assert loss(torch.full(shape, 3.0)).item() == 9
    assert "the mean square" in loss.notes[0]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([torch.zeros(2, 4), torch.full((2,), 3.0)], log(4) + 9),
        (Heads(torch.zeros(2, 4), torch.full((2,), 3.0)), log(4) + 9),
        (OrderedDict(a=torch.zeros(2, 4), b={"c": torch.full((2,), 3.0)}, d=torch.ones(2).long()), log(4) + 9),
        (Output(None, torch.zeros(2, 4)), log(4)),
        # The second has no gradient, as statistics beside a prediction.
        ((torch.full((2,), 3.0, requires_grad=True), torch.full((2,), 5.0)), 9),
    ],
)
def test_losses_of_several_outputs_are_added_up(output: object, expected: float) -> None:
    """Cross entropy of four equal classes, and the mean of squares of 3."""
    assert AssumedLoss("net")(output).item() == pytest.approx(expected)


def test_states_behind_the_first_tensor_of_a_tuple_have_no_loss() -> None:
    """Of logits with a hidden state, cross entropy of four equal classes; an LSTM's output is squared, 9, not `h_n`."""
    logits, lstm = AssumedLoss("net"), AssumedLoss("net")
    assert logits((torch.zeros(2, 4), {"h": torch.full((2, 4), 3.0)})).item() == pytest.approx(log(4))
    assert logits.notes == (
        "the model returns no loss, so cross entropy of the first tensor of its output, 2x4, is taken for it",
    )
    assert logits.text == "cross_entropy({}[0], labels)"
    assert lstm((torch.full((2, 1), 3.0), (torch.zeros(2, 4), torch.zeros(2, 4)))).item() == 9


def test_labels_are_made_once_for_each_micro_batch() -> None:
    loss = AssumedLoss("net", accumulate=2)
    for _ in range(4):
        loss(torch.zeros(2, 4))
    assert len(loss._labels) == 2  # noqa: SLF001
    # An output without floats is refused.
    with pytest.raises(CaptureError, match=r"net: .* 2 tensors of torch.int64"):
        AssumedLoss("net")([torch.ones(2, dtype=torch.int64)] * 2)
