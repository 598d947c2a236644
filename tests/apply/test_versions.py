"""What PyTorch counts of writes is not what a schema says: a plan refuses nothing that is as it was captured."""

from typing import Any

import pytest
from torch import Tensor, nn
from torch.autograd import Function

from calibration.capture.program import Arguments
from tests.apply.models import loss, rows
from tests.apply.training import compare
from tests.capture_zoo.case import Case


class Halved(Function):
    """Writes its input over and says so, which PyTorch counts as one more write."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
        """Compute the hyperbolic tangent of half."""
        hidden.mul_(0.5).tanh_()
        ctx.mark_dirty(hidden)
        ctx.save_for_backward(hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401
        """Derive it."""
        (result,) = ctx.saved_tensors
        return Tensor(slopes[0] * 0.5 * (1 - result * result))


class Writing(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        """Write a copy over."""
        result: Tensor = Halved.apply(hidden + 1)  # type: ignore[no-untyped-call]
        return result


def inputs() -> Arguments:
    return (rows(),), {}


@pytest.mark.parametrize("part", [nn.RReLU, Writing])
def test_writes_are_counted_as_pytorch_counts_them(part: type[nn.Module]) -> None:
    """The noise of `rrelu_with_noise` is written and not counted; `mark_dirty` counts what no operation wrote.

    Each is within the segment that is computed again, and neither is refused.
    """

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), part(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))

    outcome = compare(Case(part.__name__, "own", make, inputs, loss, "sgd"), "checkpoint")
    assert outcome.is_right
    assert outcome.remade > 0
