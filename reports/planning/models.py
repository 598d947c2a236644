"""The transformers of the table, each as its users train it, with its batch and inputs; each returns its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reports.measured.image_models import UNet, ViT
from reports.measured.language_models import BERT, GPT, T5, Llama, LlamaBlock
from reports.measured.models import ids, images, latents


class Experts(nn.Module):
    """Two of eight feed-forward networks for each token, their products grouped as transformers does."""

    def __init__(self, width: int, hidden: int, experts: int = 8, chosen: int = 2) -> None:
        super().__init__()
        self.chosen, self.experts = chosen, experts
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(experts, width, 2 * hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, width))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        weights, expert = F.softmax(self.router(flat), -1, dtype=torch.float).topk(self.chosen)
        order = expert.flatten().argsort()
        ends = torch.zeros(self.experts, device=x.device).scatter_add_(
            0, expert.flatten(), torch.ones_like(expert.flatten(), dtype=torch.float)
        )
        offsets = ends.cumsum(0).to(torch.int32)
        rows = flat[order // self.chosen]
        gate, up = torch._grouped_mm(rows, self.gate_up, offsets).chunk(2, -1)  # noqa: SLF001 - as transformers does
        made = torch._grouped_mm(F.silu(gate) * up, self.down, offsets)  # noqa: SLF001
        made = made * weights.flatten()[order, None].to(made.dtype)
        return torch.zeros_like(flat).index_add(0, order // self.chosen, made).view_as(x)


class MixtralBlock(LlamaBlock):
    """A block of Mixtral: that of a Llama-style decoder with experts."""

    def __init__(self, width: int, heads: int, key_heads: int, hidden: int) -> None:
        super().__init__(width, heads, key_heads, 8)
        del self.gate, self.up, self.down
        self.experts = Experts(width, hidden)

    def feed_forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.experts(x)
        return found


@dataclass(frozen=True, slots=True)
class Model:
    """A transformer and its training step.

    Attributes:
        inputs: a function that makes its arguments.
        precision: of training, automatic mixed precision unless its states would fill every card.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    precision: str = "amp_bfloat16"


def mixtral() -> nn.Module:
    """Return two layers of the shape of Mixtral 8x7B."""
    found = Llama(4096, 0, 32, 8, 14336)
    found.blocks = nn.ModuleList(MixtralBlock(4096, 32, 8, 14336) for _ in range(2))
    return found


MODELS: Final = {
    "decoder, 0.1 B": Model(lambda: Llama(768, 12, 12, 4, 2048), lambda: ids(16, 2048, 32000)),
    "decoder, 0.4 B": Model(lambda: Llama(1024, 24, 16, 8, 2816), lambda: ids(8, 2048, 32000)),
    "decoder, 1.2 B": Model(lambda: Llama(2048, 24, 16, 8, 5632), lambda: ids(4, 2048, 32000)),
    "decoder, 3 B": Model(lambda: Llama(3072, 28, 24, 8, 8192), lambda: ids(4, 2048, 32000), "bfloat16"),
    "decoder, 8 B": Model(lambda: Llama(4096, 32, 32, 8, 14336, 128256), lambda: ids(2, 2048, 128256), "bfloat16"),
    "GPT-2 medium": Model(lambda: GPT(1024, 24, 16), lambda: ids(16, 1024, 50304)),
    "GPT-2 XL": Model(lambda: GPT(1600, 48, 25), lambda: ids(4, 1024, 50304)),
    "BERT-large": Model(lambda: BERT(1024, 24, 16), lambda: ids(32, 512, 30522)),
    "T5-base": Model(lambda: T5(768, 12, 12, 3072), lambda: ids(16, 512, 32128)),
    "ViT-L/16": Model(lambda: ViT(1024, 24, 16), lambda: images(64, 0, 1000)),
    "diffusion U-Net": Model(UNet, lambda: latents(16)),
    "Mixtral, 2 layers": Model(mixtral, lambda: ids(4, 2048, 32000), "bfloat16"),
}
