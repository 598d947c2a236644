"""Updates in backward, by groups of parameters and without foreach, against loops that are written by hand."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vdnnsim
from calibration.capture.capture import capture, capture_batches
from calibration.capture.program import CaptureDevice
from tests.calibration.capture.programs import numbers, program, two_linears
from tests.calibration.capture.real_run import peak_of
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import CaptureError

CPU = CaptureDevice(compute_capability=None)
BACKWARD = {"in_backward": True}
Loop = tuple[Callable[[Tensor], None], Iterable[torch.optim.Optimizer]]


def deep() -> nn.Module:
    """Six layers, so that all gradients take more than the activations."""
    return nn.Sequential(*(nn.Linear(20, 20) for _ in range(6)))


def wide() -> Tensor:
    return torch.randn(2, 20)


def in_backward(model: nn.Module) -> Loop:
    """Return a step as PyTorch's tutorial on updates in backward has it, and its optimizers."""
    optimizers = {each: torch.optim.AdamW([each], foreach=False) for each in model.parameters()}

    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def step(batch: Tensor) -> None:
        loss = model(batch).sum()
        loss.backward()

    return step, optimizers.values()


def in_groups(model: nn.Module) -> Loop:
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": parameters[start::3]} for start in range(3)], foreach=False)

    def step(batch: Tensor) -> None:
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, [optimizer]


@pytest.mark.parametrize(("by_hand", "changes"), [(in_backward, BACKWARD), (in_groups, {"param_groups": 3})])
def test_live_bytes_are_those_of_a_loop_by_hand(by_hand: Callable[[nn.Module], Loop], changes: dict[str, Any]) -> None:
    model, batch = deep(), wide()
    step, optimizers = by_hand(model)
    step(batch)
    given = list(model.parameters()), batch, [list(each.state.values()) for each in optimizers]
    assert capture(program(deep, wide, **changes), CPU).peak_live_bytes == peak_of(given, lambda: step(batch))


def test_a_gradient_is_freed_by_the_update_of_its_parameter() -> None:
    """One operation updates each of four parameters, and its gradient ends with it."""
    step = vdnnsim.capture(two_linears, numbers(), optimizer="adamw_fused", in_backward=True)
    updates = [at for at, each in enumerate(step.operations) if each.name.startswith("aten._fused_adamw_")]
    assert {step.operations[each].phase for each in updates} == {Phase.BACKWARD}
    gradients = [each.freed_after for each in step.storages if each.kind is BufferKind.WEIGHT_GRADIENT]
    assert sorted(each for each in gradients if each is not None) == updates
    assert (len(updates), step.update) == (4, "adamw_fused in backward")


def test_temporaries_are_of_one_group_or_one_parameter() -> None:
    """AdamW's square root takes a list of all 6 x (400 + 20) elements, or of a third of them.

    A loop over parameters has the root of one and that over the correction, while its variable holds those of the bias
    before it.
    """
    whole, grouped, single = (
        capture(program(deep, wide, **changes), CaptureDevice()).peak_live_bytes
        for changes in ({}, {"param_groups": 3}, {"optimizer": "adamw_for_loop"})
    )
    assert whole - grouped == 4 * 4 * 420
    assert grouped - single == 4 * (2 * 420 - 2 * 400 - 20)


@pytest.mark.parametrize(("optimizer", "copied"), [("momentum_decay", 6 * 420), ("momentum_decay_for_loop", 400)])
def test_weight_decay_adds_to_copies_of_gradients(optimizer: str, copied: int) -> None:
    """Of 6 x (400 + 20) elements as a list, of the largest parameter alone in a loop.

    Beside them are parameters, gradients and states, the batch of 2 x 20 and the loss.
    """
    step = capture(program(deep, wide, optimizer=optimizer), CaptureDevice())
    assert step.peak_live_bytes == 4 * (3 * 6 * 420 + 2 * 20 + 1 + copied)


def test_a_fused_kernel_adds_weight_decay_in_place() -> None:
    decaying, plain = (
        capture(program(deep, wide, optimizer=each), CaptureDevice()).peak_live_bytes
        for each in ("momentum_decay_fused", "momentum_fused")
    )
    assert decaying == plain


@pytest.mark.parametrize("optimizer", ["adamw_fused", "adamw8bit", "momentum_for_loop", "radam"])
@pytest.mark.parametrize("changes", [{}, BACKWARD, {"param_groups": 2}], ids=["whole", "in backward", "in groups"])
def test_one_model_is_captured_with_several_optimizers(optimizer: str, changes: dict[str, Any]) -> None:
    """As with each alone."""
    asked = [program(two_linears, numbers), program(two_linears, numbers, optimizer=optimizer, **changes)]
    assert tuple(capture_batches(asked, CPU)) == tuple(capture(each, CPU) for each in asked)


@pytest.mark.parametrize(
    "changes", [{"accumulate": 2}, {"param_groups": 2}, {"precision": "amp_float16"}], ids=lambda each: next(iter(each))
)
def test_what_needs_all_gradients_excludes_updates_in_backward(changes: dict[str, Any]) -> None:
    with pytest.raises(CaptureError, match="in_backward: found with"):
        vdnnsim.capture(two_linears, numbers(), in_backward=True, **changes)
