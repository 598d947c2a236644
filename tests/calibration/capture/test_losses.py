"""The loss: the model's own, or one that fits what it returns."""

from collections import OrderedDict
from dataclasses import dataclass
from math import log
from types import SimpleNamespace

import pytest
import torch

from calibration.capture.losses import AssumedLoss
from vdnnsim.errors import CaptureError


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


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
    """Of four classes that are alike: -log(1/4)."""
    loss = AssumedLoss("net")
    assert loss(torch.zeros(shape)).item() == pytest.approx(log(4))
    assert loss.notes == (
        f"the model has no loss: assumed is cross entropy of its output, {'x'.join(map(str, shape))}",
    )


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3, 4, 5)])
def test_what_is_no_logits_gets_the_mean_of_squares(shape: tuple[int, ...]) -> None:
    """Of numbers that are all 3: 9."""
    loss = AssumedLoss("net")
    assert loss(torch.full(shape, 3.0)).item() == 9
    assert "the mean of the squares" in loss.notes[0]


@pytest.mark.parametrize(
    "output",
    [
        (torch.zeros(2, 4), torch.full((2,), 3.0)),
        OrderedDict(a=torch.zeros(2, 4), b={"c": torch.full((2,), 3.0)}, d=torch.ones(2, dtype=torch.int64)),
        Output(None, torch.zeros(2, 4)),
    ],
)
def test_losses_of_several_outputs_are_added_up(output: object) -> None:
    """Cross entropy of four classes that are alike, and the mean of squares of 3 where there is a second output."""
    second = 0 if isinstance(output, Output) else 9
    assert AssumedLoss("net")(output).item() == pytest.approx(log(4) + second)


def test_an_output_without_gradient_takes_no_part() -> None:
    """Statistics beside the prediction, as of attention, are not trained."""
    output = (torch.full((2,), 3.0, requires_grad=True), torch.full((2,), 5.0))
    assert AssumedLoss("net")(output).item() == 9


def test_labels_are_made_once_for_each_micro_batch() -> None:
    """In the second iteration the labels of both micro-batches are there."""
    loss = AssumedLoss("net", accumulate=2)
    made = [loss(torch.zeros(2, 4)) for _ in range(4)]
    assert len(made) == 4
    assert len(loss._labels) == 2  # noqa: SLF001


def test_what_has_no_floats_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"net: the model returns 2 tensors of torch.int64, expected"):
        AssumedLoss("net")([torch.ones(2, dtype=torch.int64)] * 2)
