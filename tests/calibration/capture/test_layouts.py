"""Copies of arguments as they lie in memory."""

import pytest
import torch
from torch import Tensor, nn

import vdnnsim
from calibration.capture.layouts import copied
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.samples import sample_of
from vdnnsim.errors import CaptureError


def test_floats_have_no_values_and_integers_have() -> None:
    given = {"x": torch.ones(2, 3, requires_grad=True), "i": torch.tensor([5])}
    made = copied(given, values=False)
    assert made["x"] is not given["x"]
    assert made["x"].requires_grad
    assert made["i"].tolist() == [5]


@pytest.mark.parametrize("values", [False, True])
def test_tensors_that_share_a_storage_share_a_copy(values: bool) -> None:  # noqa: FBT001  # as pytest gives it
    """Of 4 x 9 numbers all but the last and all but the first of each row; the same tensor twice is one."""
    ids = torch.arange(36).view(4, 9)
    inputs, labels = ids[:, :-1], ids[:, 1:]
    first, second, third = copied((inputs, labels, inputs), values=values)
    assert first is third
    assert (first.stride(), second.stride(), second.storage_offset()) == ((9, 1), (9, 1), 1)
    assert first.tolist() == inputs.tolist()
    assert second.tolist() == labels.tolist()
    first[0, 1] = 77
    assert second[0, 0] == 77
    assert ids[0, 1] == 1


def test_of_a_larger_tensor_in_host_memory_only_what_is_viewed_is_copied() -> None:
    """Rows 100 and 101 of 64 floats begin at byte 25,600, a multiple of 512; columns 1 to 3 of them one float later."""
    data = torch.randn(1000, 64)
    whole, part = copied((data[100:102], data[100:102, 1:4]), values=True)
    assert whole.untyped_storage().nbytes() == 2 * 64 * 4
    assert (part.storage_offset(), part.stride()) == (1, (64, 1))
    assert torch.equal(part, data[100:102, 1:4])


@pytest.mark.parametrize(
    "made", [torch.ones(3, 4).t(), torch.ones(1, 4).expand(3, 4), torch.ones(0, 4), torch.ones(())]
)
def test_strides_are_kept(made: Tensor) -> None:
    copy = copied(made, values=False)
    assert (copy.shape, copy.stride()) == (made.shape, made.stride())


def test_sparse_tensors_are_copied_as_they_are() -> None:
    assert copied(torch.eye(3).to_sparse(), values=True).is_sparse


class Shifted(nn.Module):
    """A language model whose loss compares each output with the next token."""

    def __init__(self, *, by_view: bool) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 16), nn.Linear(16, 7)
        self._by_view = by_view

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        rows = labels.view(-1) if self._by_view else labels.reshape(-1)
        return nn.functional.cross_entropy(self.out(self.embedding(ids).tanh()).flatten(0, 1), rows)


def shifted() -> tuple[Tensor, Tensor]:
    ids = torch.randint(7, (4, 9))
    return ids[:, :-1], ids[:, 1:]


def test_a_view_that_pytorch_refuses_is_refused() -> None:
    """Rows of 8 labels lie 9 apart."""
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        Shifted(by_view=True)(*shifted())
    with pytest.raises(CaptureError, match="view size is not compatible"):
        vdnnsim.capture(Shifted(by_view=True), shifted())


def test_a_batch_that_is_one_storage_is_counted_once() -> None:
    step = vdnnsim.capture(Shifted(by_view=False), shifted())
    assert sample_of(CapturedModel(step).workload(4).graph).length == " of 8 tokens"
    assert [each.nbytes for each in step.storages if each.name.startswith("input")] == [4 * 9 * 8]


def test_a_loop_on_shifted_tokens_follows_its_plan() -> None:
    model = Shifted(by_view=False)
    plan = vdnnsim.plan(model, shifted(), hardware="rtx_4090", policy="save_on_cpu", optimizer="none")
    for _ in range(2):
        with plan.apply(model):
            model(*shifted()).backward()
    assert [each.departure for each in plan.loop.steps] == ["", ""]
