"""What a run does without a dispatch mode, and a capture must say though it stands in one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.capture.capture import CaptureDevice, capture
from tests.calibration.capture.programs import numbers, program
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, StepOperation

CPU = CaptureDevice(compute_capability=None)
MAP = 4 * 10 * 4
"""Bytes of a batch of 4 by 10 numbers."""


class Mapped(nn.Module):
    """A map of its input that has a gradient, without a product."""

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


def test_the_second_gradient_that_meets_another_is_added_to_it() -> None:
    """Sine and exponential of a map: their gradients meet at it.

    Alive at the sum: scale, input, the loss and its gradient, and the two gradients, no third one. The map and its
    exponential, which the two had saved, are used up.
    """
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


def test_both_gradients_of_one_node_meet() -> None:
    """Of y * y, where both factors are one tensor."""
    assert [each.name for each in of_backward(captured(lambda y: y * y), "add")] == ["aten.add_.Tensor"]


def test_a_gradient_that_is_held_elsewhere_stays_as_it_is() -> None:
    """Of y + y both gradients are the one of the sum."""
    assert [each.name for each in of_backward(captured(lambda y: y + y), "add")] == ["aten.add.Tensor"]


def test_a_gradient_that_is_a_view_stays_as_it_is() -> None:
    """Of a map that is transposed twice: what its gradients are views of holds their memory as well."""
    assert [each.name for each in of_backward(captured(lambda y: y.t().exp() + y.t().sin()), "add")] == [
        "aten.add.Tensor"
    ]


class Sums(torch.autograd.Function):
    """The same map; its backward, in Python, adds up what it is given."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:  # noqa: ANN401 - PyTorch's context
        ctx.save_for_backward(y)
        return y.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ANN401 - as above
        y: Tensor = ctx.saved_tensors[0]
        return (gradients[0] * 2 + gradients[0] * 3) + y * 4


def test_sums_in_the_backward_of_a_function_in_python_take_new_memory() -> None:
    step = captured(Sums.apply)
    assert [each.name for each in of_backward(step, "add")] == ["aten.add.Tensor"] * 2


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (lambda y: y.gather(0, torch.zeros(2, 10, dtype=torch.int64)), "scatter_add_.default"),
        (lambda y: y[torch.tensor([0, 1, 1])], "index_put_.default"),
        (lambda y: y.index_select(0, torch.tensor([0, 1])), "index_add_.default"),
        (lambda y: y.max(1)[0], "scatter_.src"),
    ],
)
def test_a_formula_writes_to_the_zeros_that_it_has_made(compute: Callable[[Tensor], Tensor], name: str) -> None:
    """Of the size of the map: its gradient is one storage, and not a second one beside the zeros."""
    (written,) = of_backward(captured(compute), name.partition(".")[0])
    assert written.name == f"aten.{name}"
    assert written.operands[0].access is Access.UPDATE


def test_what_no_loss_needs_is_freed_with_those_who_hold_it() -> None:
    """The hyperbolic tangent saves its result, which nobody has after forward; y is saved by the sine alone."""

    def compute(y: Tensor) -> Tensor:
        y.tanh()
        return y.sin()

    assert captured(compute).saved_bytes == MAP


class Constant(nn.Module):
    """A product with what is no parameter, no buffer and no input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(10))
        self.factor = torch.full((4, 10), 2.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale.sin() * self.factor * x.sum()


def test_a_constant_that_backward_needs_is_saved() -> None:
    """The factor, 4 x 10 numbers, and the sum of the input; of the sine the gradient needs its argument alone."""
    step = capture(program(Constant, numbers, optimizer="none"), CPU)
    check_captured_step(step, "constant")
    (constant,) = (each for each in step.storages if each.constant)
    assert constant.given
    assert step.saved_bytes == MAP + 4
