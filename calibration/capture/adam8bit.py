"""Adam and AdamW with states of 8 bits, as those of bitsandbytes.

Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv:2110.02861. Of bitsandbytes 0.50
(`optim/optimizer.py`, `init_state`): a state has a byte an element and the largest absolute value of each block of 256
as float32; states of tensors below 4096 elements are float32. One kernel updates a parameter. The host waits for each,
which is not recorded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import torch
from torch import Tensor, nn

_BLOCK: Final = 256
_SMALLEST: Final = 4096


class Adam8bit(torch.optim.Optimizer):
    """Adam with weight decay beside the gradient, 0 by default."""

    decay: ClassVar[float] = 0.0

    def __init__(self, params: Iterable[Any]) -> None:
        """Take the parameters to train, or groups of them."""
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": self.decay})
        self._tables: list[Tensor] = []

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "of no captured loop"
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self._update(each, each.grad, group)

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            is_narrow = parameter.numel() >= _SMALLEST
            for number in ("1", "2"):
                state[f"state{number}"] = torch.zeros_like(parameter, dtype=torch.uint8 if is_narrow else torch.float32)
                if is_narrow:
                    blocks = -(-parameter.numel() // _BLOCK)
                    state[f"absmax{number}"] = torch.zeros(blocks, dtype=torch.float32, device=parameter.device)
        state["step"] += 1
        rates = [*group["betas"], group["eps"], group["lr"], group["weight_decay"], float(state["step"])]
        operands = parameter, gradient.contiguous(), state["state1"], state["state2"]
        if "absmax1" not in state:
            _update_32bit(*operands, rates)
            return
        if not self._tables:
            self._tables = [quantization_map(is_signed=each).to(parameter.device) for each in (True, False)]
        _update_8bit(*operands, state["absmax1"], state["absmax2"], self._tables, rates)


class AdamW8bit(Adam8bit):
    """The same with a weight decay of 1 %."""

    decay: ClassVar[float] = 1e-2


def quantization_map(*, is_signed: bool) -> Tensor:
    """Return the 256 values that a byte stands for, in order, from -1 or 0 to 1.

    Seven powers of ten, each with twice as many values between a tenth and one of it as the power below (section 2.2
    of the paper).
    """
    values = [0.0, 1.0]
    for power in range(7):
        edges = torch.linspace(0.1, 1, 2**power + 1 if is_signed else 2 ** (power + 1) + 1)
        middles = ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (power - 6)).tolist()
        values += [*middles, *(-each for each in middles)] if is_signed else middles
    return torch.tensor(sorted(values))


@torch.library.custom_op("vdnnsim::fused_adam_32bit", mutates_args=("parameter", "first", "second"))
def _update_32bit(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, rates: Sequence[float]) -> None:
    """Update a parameter and its two moments (Kingma and Ba 2015, algorithm 1); `rates` end with the step's number."""
    beta1, beta2, eps, lr, decay, step = rates
    wide = gradient.float()
    first.lerp_(wide, 1 - beta1)
    second.mul_(beta2).addcmul_(wide, wide, value=1 - beta2)
    size = first / (1 - beta1**step) / ((second / (1 - beta2**step)).sqrt() + eps)
    parameter.mul_(1 - lr * decay).sub_((lr * size).to(parameter.dtype))


@torch.library.custom_op("vdnnsim::fused_adam_8bit", mutates_args=("parameter", "first", "second", "most1", "most2"))
def _update_8bit(
    parameter: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    most1: Tensor,
    most2: Tensor,
    tables: Sequence[Tensor],
    rates: Sequence[float],
) -> None:
    """Update a parameter and its two moments, which are made float32 and quantized again in blocks."""
    states = (first, most1, tables[0]), (second, most2, tables[1])
    wide = [(table[state.long()].flatten() * _by_element(most, state)).view_as(state) for state, most, table in states]
    _update_32bit(parameter, gradient, *wide, rates)
    for (state, most, table), value in zip(states, wide, strict=True):
        blocks = nn.functional.pad(value.abs().flatten(), (0, -value.numel() % _BLOCK)).view(-1, _BLOCK)
        most.copy_(blocks.amax(1))
        scaled = value.flatten() / _by_element(most, state).clamp_min(torch.finfo(torch.float32).tiny)
        state.copy_(torch.bucketize(scaled, (table[1:] + table[:-1]) / 2).view(state.shape))


def _by_element(most: Tensor, state: Tensor) -> Tensor:
    return most.repeat_interleave(_BLOCK)[: state.numel()]


for _each in (_update_32bit, _update_8bit):
    _each.register_fake(lambda *_arguments: None)


EIGHT_BIT: Final[Mapping[str, type[Adam8bit]]] = MappingProxyType({"Adam8bit": Adam8bit, "AdamW8bit": AdamW8bit})
"""By the name that they have in bitsandbytes."""
