"""Low-rank adapters around linear layers of a frozen model, as peft's of `target_modules="all-linear"`.

Hu et al., LoRA, arXiv:2106.09685; the other options are defaults of peft 0.21 (`peft/tuners/lora/layer.py`): no
dropout, no bias, adapters in float32 where the model is narrower, and every linear layer but that of the output.
"""

import math
from typing import Final

import torch
from torch import nn

from vdnnsim.errors import CaptureError

_ALPHA: Final = 8
NOTE: Final = "LoRA of rank {}: every linear layer but that of the output has an adapter, and all else is frozen"


class LoraLinear(nn.Module):
    """A frozen linear layer and its adapter, two products of which the first has `rank` results."""

    def __init__(self, base: nn.Module, rank: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = base
        self.first = nn.Linear(inputs, rank, bias=False)
        self.second = nn.Linear(rank, outputs, bias=False)
        self._scale = _ALPHA / rank
        nn.init.kaiming_uniform_(self.first.weight, a=math.sqrt(5))
        nn.init.zeros_(self.second.weight)

    @property
    def weight(self) -> torch.Tensor:
        """The frozen weights, whose type some models read."""
        return self.base.get_parameter("weight")

    @property
    def bias(self) -> torch.Tensor | None:
        return dict(self.base.named_parameters(recurse=False)).get("bias")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the results of both, in the type of the layer's."""
        result: torch.Tensor = self.base(x)
        narrow = result.dtype
        # Both names hold memory until the end, as peft's do.
        x = x.to(self.first.weight.dtype)
        result = result + self.second(self.first(x)) * self._scale
        return result.to(narrow)


def add_adapters(model: nn.Module, rank: int) -> None:
    """Freeze a model, and put adapters around its linear layers.

    Raises:
        CaptureError: it has no linear layer beside that.
    """
    output = output_layer(model)
    targets = [each for each in _linear(model) if each[1] is not output]
    if not targets:
        raise CaptureError(
            f"lora: {type(model).__name__} has no linear layer beside its output, expected a model with some: adapters "
            "are added to these alone, and not to convolutions"
        )
    model.requires_grad_(requires_grad=False)
    for path, layer, sizes in targets:
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, LoraLinear(layer, rank, *sizes))


def output_layer(model: nn.Module) -> nn.Module | None:
    """Return the layer that a model names as its output (`get_output_embeddings`), else its last linear layer."""
    named: nn.Module | None = getattr(model, "get_output_embeddings", lambda: None)()
    linear = _linear(model)
    return named if named is not None else linear[-1][1] if linear else None


def _linear(model: nn.Module) -> list[tuple[str, nn.Module, tuple[int, int]]]:
    """Return the linear layers of a model with their paths, inputs and outputs."""
    # The products of this one are not those of its parts.
    attentions = (each for each in model.modules() if isinstance(each, nn.MultiheadAttention))
    within = {part for each in attentions for part in each.modules()}
    return [
        (path, layer, sizes)
        for path, layer in model.named_modules()
        if path and layer not in within and (sizes := _sizes(layer)) is not None
    ]


def _sizes(layer: nn.Module) -> tuple[int, int] | None:
    """Return inputs and outputs of a linear layer; None for another one."""
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    # Of transformers, as in GPT-2; its weights are transposed.
    if type(layer).__name__ == "Conv1D" and isinstance(layer.weight, nn.Parameter) and layer.weight.dim() == 2:
        return layer.weight.shape[0], layer.weight.shape[1]
    return None
