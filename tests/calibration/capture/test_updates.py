"""Updates in backward, in groups of parameters and without foreach, against loops by hand; Adam of 8 bits."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vdnnsim
from calibration.capture.adam8bit import AdamW8bit, quantization_map
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
    """As with each alone, also where there are states of the same one that updates otherwise."""
    own = [program(two_linears, numbers, optimizer=optimizer, **each) for each in (changes, {})]
    asked = [program(two_linears, numbers), *own]
    assert tuple(capture_batches(asked, CPU)) == tuple(capture(each, CPU) for each in asked)


@pytest.mark.parametrize(
    "changes", [{"accumulate": 2}, {"param_groups": 2}, {"precision": "amp_float16"}], ids=lambda each: next(iter(each))
)
def test_what_needs_all_gradients_excludes_updates_in_backward(changes: dict[str, Any]) -> None:
    with pytest.raises(CaptureError, match="in_backward: found with"):
        vdnnsim.capture(two_linears, numbers(), in_backward=True, **changes)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 100))


def test_a_byte_an_element_and_a_maximum_of_each_block() -> None:
    """Of 4096 weights 16 blocks of 256, of 6400 weights 25; two biases of 64 and 100 elements are below 4096."""
    step = vdnnsim.capture(net, torch.ones(8, 64), optimizer="adamw8bit")
    states = [each for each in step.storages if each.kind is BufferKind.OPTIMIZER_STATE]
    assert sum(each.nbytes for each in states) == 2 * (4096 + 16 * 4 + 6400 + 25 * 4 + (64 + 100) * 4)
    assert {each.name for each in states} >= {"0.weight state1", "0.weight absmax2", "1.bias state2"}


def test_one_operation_updates_a_parameter_and_keeps_nothing() -> None:
    """It reads the gradient, and reads and writes weights, states and maxima; two tables of 256 floats are read."""
    step = vdnnsim.capture(net, torch.ones(8, 64), optimizer="adam8bit")
    updates = [each for each in step.operations if each.phase is Phase.UPDATE]
    names = [each.name.split(".")[1] for each in updates]
    assert names == ["fused_adam_8bit", "fused_adam_32bit"] * 2
    assert updates[0].bytes_moved == 4096 * 4 + 2 * 4096 * 4 + 4 * 4096 + 4 * 16 * 4 + 2 * 1024
    assert updates[1].bytes_moved == 64 * 4 + 2 * 3 * 64 * 4
    assert all(each.known for each in updates)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_capture_runs_as_it_was_captured(precision: str) -> None:
    first, second = (
        vdnnsim.capture(net, torch.ones(8, 64), optimizer="adamw8bit", precision=precision, real=real)
        for real in (False, True)
    )
    assert first.peak_live_bytes == second.peak_live_bytes


def test_the_values_of_a_byte() -> None:
    """2 x (1 + 2 + ... + 64) = 254 signed ones, 2 + 4 + ... + 128 = 254 others, 0 and 1."""
    signed, unsigned = quantization_map(is_signed=True), quantization_map(is_signed=False)
    for values in (signed, unsigned):
        assert (len(set(values.tolist())), values[-1].item(), values.abs().min().item()) == (256, 1, 0)
    assert signed[0].item() == pytest.approx(-1 + 0.9 / 64 / 2)
    assert unsigned[:2].tolist() == [0, pytest.approx(3.25e-7)]


def test_it_descends_as_adam_does() -> None:
    """Two of 5000 weights at 1, with gradients of 1 and 0.01: bias-corrected, both steps are the learning rate."""
    weight = nn.Parameter(torch.ones(5000))
    optimizer = AdamW8bit([weight])
    weight.grad = torch.zeros(5000)
    weight.grad[0], weight.grad[1] = 1, 0.01
    for _ in range(3):
        optimizer.step()
    assert weight[0].item() == pytest.approx(1 - 3e-3, rel=1e-4)
    assert weight[1].item() == pytest.approx(1 - 3e-3, rel=1e-3)
    assert weight[2].item() == pytest.approx(1 - 3e-5)


def test_bitsandbytes_has_the_same_states_and_steps() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    weight = torch.randn(100, 70)
    ours, theirs = (nn.Parameter(weight.clone()) for _ in range(2))
    optimizers = AdamW8bit([ours]), bitsandbytes.optim.AdamW8bit([theirs])
    for _ in range(3):
        gradient = torch.randn(100, 70)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    assert torch.allclose(ours, theirs, atol=2e-4)
    kept = optimizers[1].state[theirs]
    for name, value in optimizers[0].state[ours].items():
        if isinstance(value, torch.Tensor):
            assert (value.shape, value.dtype) == (kept[name].shape, kept[name].dtype)
