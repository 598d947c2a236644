"""Small programs with what large models have."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from calibration.capture.program import Program
from reports.capture.own_cases import Square
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision


def program(
    make_model: Callable[[], nn.Module],
    make_inputs: Callable[[], Any],
    loss: Callable[[Any], Tensor] = Tensor.sum,
    **changes: Any,  # noqa: ANN401 - fields of a program
) -> Program:
    fields = {
        "name": "model",
        "optimizer": "adamw",
        "mode": Mode.TRAINING,
        "precision": Precision.FLOAT32,
        "batch_size": 4,
        **changes,
    }
    return Program(make_model=make_model, make_inputs=lambda: ((make_inputs(),), {}), loss=loss, **fields)


def two_linears() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def numbers() -> Tensor:
    return torch.randn(4, 10)


class Residual(nn.Module):
    """A residual block of convolutions with batch normalization, and a pooled head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.max_pool2d(self.first(images), 2)
        x = functional.relu(self.second(x) + x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]


def images() -> Tensor:
    return torch.randn(4, 3, 16, 16)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(functional.dropout(mixed.transpose(1, 2).reshape(x.shape), 0.1, self.training))
        return x + self.mlp(x)  # type: ignore[no-any-return]


class Language(nn.Module):
    """A transformer with tied embeddings that reads its mask, and returns loss and logits."""

    def __init__(self, reentrant: bool | None = None) -> None:  # noqa: FBT001
        super().__init__()
        self.reentrant = reentrant
        self.embedding, self.positions = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.blocks = nn.ModuleList(Block(16, 2) for _ in range(2))
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(ids.shape[1])
        x = self.embedding(ids) + self.positions(positions)
        if not (positions >= 0).all().item():
            x = x.exp()
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        logits = self.head(x)
        return functional.cross_entropy(logits.flatten(0, 1), ids.flatten()), logits


def ids() -> Tensor:
    return torch.randint(0, 50, (4, 12))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, num_layers=2, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])  # type: ignore[no-any-return]


class Custom(nn.Module):
    """A custom function, a frozen layer, and two outputs with a loss each."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = nn.Linear(10, 10), nn.Linear(10, 4), nn.Linear(10, 6)
        self.scale = nn.Parameter(torch.linspace(0.1, 1, 10))
        self.body.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            chosen = x > 0
        x = Square.apply(self.body(x) * self.scale * chosen)  # type: ignore[no-untyped-call]
        return {"left": self.left(x), "right": self.right(x)}


def both(outputs: dict[str, Tensor]) -> Tensor:
    return outputs["left"].square().mean() + 0.5 * outputs["right"].logsumexp(-1).mean()


PROGRAMS = {
    "two linears": program(two_linears, numbers),
    "two linears, three micro-batches": program(two_linears, numbers, accumulate=3, optimizer="momentum"),
    "two linears in bfloat16": program(two_linears, numbers, precision=Precision.BFLOAT16, optimizer="sgd"),
    "two linears, scaled": program(
        two_linears, numbers, lambda y: y.float().mean(), precision=Precision.AMP_FLOAT16, optimizer="adam"
    ),
    "residual": program(Residual, images, lambda y: functional.cross_entropy(y, torch.zeros(4, dtype=torch.int64))),
    "residual, mixed": program(Residual, images, Tensor.sum, precision=Precision.AMP_BFLOAT16),
    "language": program(Language, ids, lambda y: y[0], optimizer="adamw"),
    "language, mixed": program(Language, ids, lambda y: y[0], precision=Precision.AMP_BFLOAT16),
    "language, checkpointed": program(lambda: Language(reentrant=False), ids, lambda y: y[0]),
    "language, checkpointed reentrantly": program(lambda: Language(reentrant=True), ids, lambda y: y[0]),
    "two linears, updated in backward": program(two_linears, numbers, in_backward=True),
    "two linears, in groups of parameters": program(two_linears, numbers, optimizer="radam", param_groups=3),
    "language, mixed, its loss in slices": program(
        Language, ids, lambda y: y[0], precision=Precision.AMP_BFLOAT16, loss_chunks=3
    ),
    "recurrent": program(Recurrent, lambda: torch.randn(4, 5, 6)),
    "custom": program(Custom, numbers, both),
}
