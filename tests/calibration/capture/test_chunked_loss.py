"""Cross entropy over slices of the tokens, against one that is written by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import vdnnsim
from calibration.capture.capture import capture
from calibration.capture.chunked_loss import loss_in_chunks
from calibration.capture.program import CaptureDevice
from calibration.capture.request_capture import compare
from tests.calibration.capture.programs import program
from tests.calibration.capture.real_run import run_really
from vdnnsim.analysis.answer import Change, Way
from vdnnsim.api.scenarios import scenario_of_step
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.errors import CaptureError
from vdnnsim.report.tables.changed_loops import how_to
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.units import Precision

CPU = CaptureDevice(compute_capability=None)
LABELS = torch.arange(48) % 50
LABELS[5] = -100


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.hidden, self.head = nn.Embedding(50, 16), nn.Linear(16, 16), nn.Linear(16, 50, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the input of the output layer, whose results the loss computes."""
        result: Tensor = self.hidden(self.embedding(ids)).relu()
        return result


class Whole(Body):
    def forward(self, ids: Tensor) -> Tensor:
        """Return logits in float32."""
        logits: Tensor = self.head(super().forward(ids))
        return logits.float()


def ids() -> Tensor:
    return torch.arange(48).view(4, 12) % 50


def by_hand(head: nn.Module) -> Callable[[Tensor], Tensor]:
    def of_part(x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(head(x).float(), y, reduction="sum")

    def loss(hidden: Tensor) -> Tensor:
        parts = zip(hidden.view(-1, 16).chunk(3), LABELS.chunk(3), strict=True)
        total = sum(checkpoint(of_part, x, y, use_reentrant=False) for x, y in parts)
        return total / (LABELS != -100).sum()  # type: ignore[no-any-return]

    return loss


def whole_loss(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits.view(-1, 50), LABELS)


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.AMP_BFLOAT16])
def test_it_is_a_loss_in_slices_by_hand(precision: Precision) -> None:
    """To the byte and the operation."""
    made: list[Body] = []

    def body() -> nn.Module:
        made.append(Body())
        return made[-1]

    def loss(hidden: Tensor) -> Tensor:
        return by_hand(made[-1].head)(hidden)

    hand = program(body, ids, loss, precision=precision)
    sliced = program(Whole, ids, whole_loss, precision=precision, loss_chunks=3)
    first, second = capture(hand, CPU), capture(sliced, CPU)
    assert compare(first, second).is_equal, compare(first, second)
    assert [each.name for each in first.operations] == [each.name for each in second.operations]
    assert (second.saved_bytes, second.peak_live_bytes) == run_really(sliced)
    assert "3 slices" in second.notes[-1]


def test_logits_are_of_one_slice() -> None:
    """Not saved are 48 x 50 logarithms and the sum of their weights, but a count of labels."""
    whole, sliced = (capture(program(Whole, ids, whole_loss, loss_chunks=each), CPU) for each in (1, 3))
    assert whole.saved_bytes - sliced.saved_bytes == 48 * 50 * 4 + 4 - 8
    logits = [each.nbytes for each in sliced.storages if each.name == "_log_softmax"]
    assert logits == [16 * 50 * 4] * 6


def test_gradients_are_those_of_one_cross_entropy() -> None:
    """Up to the order of sums; one of the labels is ignored, and logits are capped as by Gemma 2."""
    torch.manual_seed(0)
    model = Whole()
    found = []
    for chunks in (1, 5):
        model.zero_grad()
        with loss_in_chunks(model, chunks):
            loss = whole_loss(torch.tanh(model(ids()) / 0.1) * 0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append([loss.detach(), *(each.grad for each in model.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape(48, -1),
        lambda x: x.flatten(0, 1),
        lambda x: x[:, :].contiguous().view(-1, x.size(-1)),
        lambda x: x.to(torch.float64).reshape((-1, 50)),
        lambda x: torch.flatten(x, end_dim=-2).double(),
        lambda x: (torch.tanh(x.float() / 30) * 30).view(-1, 50),
        lambda x: 2 * (x.flatten(0, 1) * 0.5 - 1).tanh() + 1,
    ],
)
def test_views_and_casts_of_rows(view: Callable[[Tensor], Tensor]) -> None:
    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(view(logits), LABELS, reduction="sum")

    step = capture(program(Whole, ids, loss, loss_chunks=4), CPU)
    assert sum(each.name.startswith("aten.nll_loss_forward") for each in step.operations) == 2 * 4


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        (Tensor.sum, "is used by sum"),
        (lambda x: functional.cross_entropy((x / torch.ones(50)).view(-1, 50), LABELS), "is used by div"),
        (lambda x: functional.cross_entropy(x.transpose(1, 2), LABELS.view(4, 12)), "is used by transpose"),
        (lambda x: functional.cross_entropy(x[..., :40].flatten(0, 1), LABELS % 40), "is used by __getitem__"),
        (lambda x: functional.cross_entropy(x.view(-1, 10), LABELS.repeat(5) % 10), "is used by view"),
        (lambda x: functional.cross_entropy(x.view(-1, 50), LABELS, reduction="none").mean(), "expected the mean"),
        (lambda x: functional.cross_entropy(x.view(-1, 50), LABELS, weight=torch.ones(50)), "expected the mean"),
        (lambda x: torch.ones(48, 50) @ x.view(48, 50).T, "is used by"),
    ],
)
def test_other_uses_of_logits_are_refused(loss: Any, why: str) -> None:  # noqa: ANN401
    with pytest.raises(CaptureError, match=why):
        capture(program(Whole, ids, loss, loss_chunks=2), CPU)


class Capped(Whole):
    def forward(self, ids: Tensor) -> Tensor:
        """Return logits as Gemma 2 caps them."""
        return torch.tanh(super().forward(ids) / 30) * 30


def test_printed_lines_leave_what_else_is_done_to_logits_to_the_user() -> None:
    """Without its output layer the model would cap the input of that layer."""
    step = vdnnsim.capture(Capped(), ids(), loss=whole_loss)
    result = run_scenario(scenario_of_step(step, "rtx_4090", "pytorch").scenario)
    way = Way(change=Change.POLICY, policy="pytorch(p)", batch_size=4, hardware="rtx_4090", memory_bytes=1)
    lines = how_to(result, replace(way, loop=Loop(loss_chunks=8)))
    cut = "# of_part = lambda x, wanted: cross_entropy(head(x), wanted, reduction='sum')"
    assert f"{cut}  # and div, tanh and mul of your forward between" in lines
    assert "head.forward" not in lines


def test_a_model_without_a_cross_entropy_of_its_output_layer_is_refused() -> None:
    with pytest.raises(CaptureError, match="no cross entropy of the result"):
        vdnnsim.capture(Body, ids(), loss=lambda hidden: hidden.sum(), loss_chunks=2)
    with pytest.raises(CaptureError, match="no linear layer"):
        vdnnsim.capture(lambda: nn.Sequential(nn.Conv1d(1, 2, 3)), torch.ones(2, 1, 5), loss_chunks=2)
