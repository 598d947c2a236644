"""Autocast's cache holds narrow copies of parameters until the end of forward, whatever is recomputed."""

import pytest
import torch
from torch import nn

import vdnnsim
from tests.captured_steps import simulator
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, preallocated
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.policies.pytorch import cached_casts_bytes
from vdnnsim.policies.registry import known_policies, resolve_policy

COPY_BYTES = 2 * 64 * 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(torch.sin(self.first(x)))
        return y


def live_bytes(model: nn.Module, policy: str, memory_model: MemoryChoice) -> int:
    """Return the bytes that are live when forward ends."""
    step = vdnnsim.capture(model, torch.zeros(4, 64), precision="amp_bfloat16")
    (plan,) = simulator(step, memory_model).made(resolve_policy(policy, known_policies()))
    live, found = dict[int, int](), 0
    for each in plan.operations:
        if isinstance(each, Allocate):
            live[each.buffer] = plan.buffers[each.buffer].nbytes
        elif isinstance(each, Release):
            live.pop(each.buffer, None)
        elif isinstance(each, Compute) and each.phase is Phase.FORWARD and not each.repeat:
            found = sum(live.values())
    return found


def held_more(model: nn.Module, policy: str) -> int:
    """Return what a plain loop holds more at the end of forward than one in memory that `plan.apply` reserves ahead."""
    plain = MemoryModel.PYTORCH
    return live_bytes(model, policy, plain) - live_bytes(model, policy, preallocated(plain))


@pytest.mark.parametrize(("frozen", "copies"), [((), 2), (("0.second",), 1), (("0.second", "1.first"), 0)])
def test_copies_of_recomputed_parameters_are_held_in_a_plain_loop(frozen: tuple[str, ...], copies: int) -> None:
    """Of four blocks two are recomputed, four linear layers; of frozen ones PyTorch caches no copies.

    That of the first is saved by none, for the batch needs no gradient, and cached in both loops, as biases are. The
    last is not recomputed, for what it computes is kept.
    """
    model = nn.Sequential(*(Block() for _ in range(4)))
    for each in frozen:
        model.get_submodule(each).requires_grad_(requires_grad=False)
    assert held_more(model, "checkpoint") == copies * COPY_BYTES


def test_nothing_more_is_held_where_nothing_is_recomputed() -> None:
    """Backward reads the copies, so autograd holds them anyway."""
    assert held_more(nn.Sequential(*(Block() for _ in range(4))), "pytorch") == 0


@pytest.mark.parametrize(("precision", "nbytes"), [("amp_bfloat16", 8 * (COPY_BYTES + 2 * 64)), ("float32", 0)])
def test_bytes_of_autocasts_cache(precision: str, nbytes: int) -> None:
    """Of eight linear layers the weights, and biases of 64."""
    model = nn.Sequential(*(Block() for _ in range(4)))
    step = vdnnsim.capture(model, torch.zeros(4, 64), precision=precision)
    assert cached_casts_bytes(CapturedWorkload.of(step)) == nbytes
