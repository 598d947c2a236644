import torch

from calibration.capture.demand import Demand, Demands
from calibration.capture.fake_tensors import FakeTensors

_ADD = torch.ops.aten.add.Tensor


def test_demands_of_operations_alike_are_reckoned_once() -> None:
    """A sum of 6 or 12 numbers of 4 B reads two operands and writes one; real tensors are reckoned each time."""
    demands, mode = Demands(), FakeTensors()

    def of(one: torch.Tensor, other: torch.Tensor) -> Demand:
        with mode:
            return demands.of(_ADD, (one, other), {}, _ADD(one, other))

    first, second, larger = (mode.fake(torch.zeros(rows, 3)) for rows in (2, 2, 4))
    assert of(first, second) is of(second, first)
    assert [of(each, each).bytes_moved for each in (first, larger)] == [3 * 6 * 4, 3 * 12 * 4]
    real = torch.zeros(2, 3)
    assert of(real, real) == of(first, second)
    assert of(real, real) is not of(real, real)
