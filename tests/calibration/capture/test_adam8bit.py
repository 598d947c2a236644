"""Adam with states of 8 bits."""

import pytest
import torch
from torch import nn

import vdnnsim
from calibration.capture.adam8bit import AdamW8bit, quantization_map
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind


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
