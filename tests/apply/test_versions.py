"""What PyTorch counts of writes is not what a schema says: a plan refuses nothing that is as it was captured."""

import pytest
from torch import Tensor, nn

from calibration.capture.program import Arguments
from tests.apply.generated.blocks import Halved
from tests.apply.models import loss, rows
from tests.apply.training import compare
from tests.capture_zoo.case import Case


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
