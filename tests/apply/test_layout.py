"""Saved tensors that are lazy views: the conjugate or the negative of what their storage holds."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.saved_storage import TensorLayout
from tests.apply.training import alike, gradients, requested

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda each: each,
    "conjugate": torch.conj,
    "negative": torch._neg_view,  # noqa: SLF001 - PyTorch has no other name for it
    "both": lambda each: torch._neg_view(each.conj()),  # noqa: SLF001
    "imaginary part of a conjugate": lambda each: each.conj().imag,
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_restored_from_its_storage(view: str) -> None:
    tensor = VIEWS[view](torch.tensor([1 + 2j, 3 - 4j]))
    again = TensorLayout.of(tensor).on(tensor.untyped_storage())
    assert torch.equal(again, tensor)
    assert (again.is_conj(), again.is_neg()) == (tensor.is_conj(), tensor.is_neg())


class Spectral(nn.Module):
    """Products with conjugates and imaginary parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(4, 2)
        self.weight = nn.Parameter(torch.randn(9, 4, dtype=torch.complex64))

    def forward(self, batch: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(torch.tanh(self.first(batch))) * (1 + 0.5j)
        product = spectrum.conj() @ self.weight
        result: Tensor = self.last(product.real) * self.last(product.conj().imag)
        return result


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
def test_gradients_of_conjugates_are_those_of_the_plain_loop(policy: str) -> None:
    torch.manual_seed(0)
    model, batch = Spectral(), torch.randn(8, 16)
    made = requested(model, batch, policy).planned()
    assert alike(gradients(model, batch), gradients(model, batch, applied=made.apply))
    (step,) = made.loop.steps
    assert step.departure == ""
    assert step.offloaded_bytes == made.loop.schedule.offloaded_bytes
