"""In-place operations of autograd, which PyTorch replaces under a dispatch mode."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice
from tests.calibration.capture.programs import numbers, program
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, StepOperation

CPU = CaptureDevice(compute_capability=None)
MAP = 4 * 10 * 4
"""Bytes of a batch of 4 by 10 numbers."""


class Mapped(nn.Module):
    """A function of its input, scaled by a parameter."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, 10))
        self.compute = compute

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(self.scale * x)


def captured(compute: Callable[[Tensor], Tensor]) -> CapturedStep:
    step = capture(program(partial(Mapped, compute), numbers, optimizer="none"), CPU)
    check_captured_step(step, "mapped")
    return step


def of_backward(step: CapturedStep, name: str) -> list[StepOperation]:
    return [each for each in step.operations if each.phase is Phase.BACKWARD and each.name.startswith(f"aten.{name}")]


def test_gradients_that_meet_are_added_in_place() -> None:
    """Live at the sum: scale, input, the loss and its gradient, and two gradients; saved tensors are freed."""
    step = captured(lambda y: y.exp() + y.sin())
    (added,) = of_backward(step, "add")
    assert added.name == "aten.add_.Tensor"
    assert [each.access for each in added.operands] == [Access.UPDATE, Access.READ]
    position = step.operations.index(added)
    gradients = {step.tensors[each.memory].storage for each in added.operands}
    assert len(gradients) == 2
    assert all(step.storages[each].nbytes == MAP for each in gradients)
    given = 2 * MAP
    assert step.live_bytes[position] == given + 2 * 4 + len(gradients) * MAP


class Sums(torch.autograd.Function):
    """The identity; its backward, in Python, adds gradients up."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:  # noqa: ANN401 - PyTorch's context
        ctx.save_for_backward(y)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401 - as above
        y: Tensor = ctx.saved_tensors[0]
        return (gradients[0] * 2 + gradients[0] * 3) + y * 4


@pytest.mark.parametrize(
    ("compute", "names"),
    [
        pytest.param(lambda y: y * y, ["add_.Tensor"], id="both gradients of one node"),
        pytest.param(lambda y: y + y, ["add.Tensor"], id="one gradient twice"),
        pytest.param(lambda y: y.t().exp() + y.t().sin(), ["add.Tensor"], id="views"),
        pytest.param(Sums.apply, ["add.Tensor"] * 2, id="backward in Python"),
    ],
)
def test_gradients_held_elsewhere_are_not_written_over(compute: Callable[[Tensor], Tensor], names: list[str]) -> None:
    assert [each.name for each in of_backward(captured(compute), "add")] == [f"aten.{each}" for each in names]


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda y: y.gather(0, torch.zeros(2, 10, dtype=torch.int64)), "scatter_add_.default"),
        (lambda y: y[torch.tensor([0, 1, 1])], "index_put_.default"),
        (lambda y: y.index_select(0, torch.tensor([0, 1])), "index_add_.default"),
        (lambda y: y.max(1)[0], "scatter_.src"),
    ],
)
def test_a_backward_formula_writes_to_its_own_zeros(compute: Callable[[Tensor], Tensor], name: str) -> None:
    (written,) = of_backward(captured(compute), name.partition(".")[0])
    assert written.name == f"aten.{name}"
    assert written.operands[0].access is Access.UPDATE


def test_an_unused_result_is_not_saved() -> None:
    """Tanh saves its result, which is freed in forward; sine saves y."""

    def compute(y: Tensor) -> Tensor:
        y.tanh()
        return y.sin()

    assert captured(compute).saved_bytes == MAP
    # The factor, 4 x 10 numbers, and the sum of the input; the argument of the sine is a parameter.
    step = capture(program(Constant, numbers, optimizer="none"), CPU)
    check_captured_step(step, "constant")
    (constant,) = (each for each in step.storages if each.constant)
    assert constant.given
    assert step.saved_bytes == MAP + 4


class Constant(nn.Module):
    """A product with a tensor that is neither parameter, buffer nor input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))
        self.factor = torch.full((4, 10), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale.sin() * self.factor * x.sum()
