"""The instruments, compared with the CPU's allocator and kernels."""

from collections.abc import Callable

import pytest
import torch
from torch.autograd import profiler
from torch.nn import functional

from tests.pytorch_twins.instruments import LiveBytes, saved_bytes

X_BYTES = 4 * 2 * 8 * 5 * 5
WEIGHT_BYTES = 4 * 8 * 8


def fork(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = functional.conv2d(x, w)
    return functional.conv2d(y, w) + functional.conv2d(y, w) + y


def join(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = functional.conv2d(x, w)
    return torch.cat([functional.conv2d(y, w), y], 1)


def rectified_join(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = functional.conv2d(x, w)
    return torch.cat([functional.conv2d(y, w), functional.relu(y)], 1)


def through_a_view(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = functional.conv2d(x, w)
    return functional.conv2d(y, w).flatten(1) + functional.gelu(y.flatten(1))


Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("program", [fork, join, rectified_join, through_a_view])
def test_gradients_meet_as_where_nothing_watches(program: Program) -> None:
    """The engine's own additions make a new tensor, as the profiler tells them apart, as often as those counted."""
    x, w = torch.rand(2, 8, 5, 5), torch.rand(8, 8, 1, 1, requires_grad=True)
    loss = program(x, w).square().sum()
    with profiler.profile() as profile:
        loss.backward()  # type: ignore[no-untyped-call]
    new = sum(event.name == "aten::add" for event in profile.function_events)

    with LiveBytes() as live:
        program(x, w).square().sum().backward()  # type: ignore[no-untyped-call]

    assert sum(moment.node != "" and moment.operator == "aten.add.Tensor" for moment in live.moments) == new


def test_a_gradient_that_a_sum_hands_to_both_sides_is_added_to_in_a_third() -> None:
    """Of `fork`: the gradient that all three branches have is y's, until the first convolution's is there.

    So the first addition makes a new one, the second adds to that; the weight's own three are added in place.
    """
    x, w = torch.empty(2, 8, 5, 5, device="meta"), torch.empty(8, 8, 1, 1, device="meta", requires_grad=True)
    with LiveBytes() as live:
        fork(x, w).square().sum().backward()  # type: ignore[no-untyped-call]

    sums = [each for each in live.moments if each.node and each.operator == "aten.add.Tensor"]
    assert len(sums) == 1


def test_a_storage_lives_from_its_operator_to_its_last_reference() -> None:
    """X, W, then Y, then the rectified one, and Y alone again; the view counts for nothing."""
    x, w = torch.empty(2, 8, 5, 5, device="meta"), torch.empty(8, 8, 1, 1, device="meta")
    live = LiveBytes()
    live.hold([x, w])
    assert live.live_bytes == X_BYTES + WEIGHT_BYTES
    with live:
        y = functional.conv2d(x, w)
        z = functional.relu(y).flatten(1)
        assert live.live_bytes == 3 * X_BYTES + WEIGHT_BYTES
        del z
        assert live.live_bytes == 2 * X_BYTES + WEIGHT_BYTES
    assert live.peak.live_bytes == 3 * X_BYTES + WEIGHT_BYTES
    assert [each.operator for each in live.moments] == ["aten.convolution.default", "aten.relu.default"]
    del y
    assert live.live_bytes == X_BYTES + WEIGHT_BYTES


def test_a_storage_is_saved_once() -> None:
    """The convolution saves X and W, its two readers and the product Y, the rectifier its own output."""
    x, w = torch.empty(2, 8, 5, 5, device="meta"), torch.empty(8, 8, 1, 1, device="meta", requires_grad=True)

    def compute() -> torch.Tensor:
        y = functional.conv2d(x, w)
        return (y * y).sum() + functional.relu(y).sum()

    assert saved_bytes(compute, []) == 3 * X_BYTES + WEIGHT_BYTES
    assert saved_bytes(compute, [w, x]) == 2 * X_BYTES
