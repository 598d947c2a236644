"""Small models that save tensors in all ways of autograd."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from reports.capture.case import Case
from vdnnsim.units import Precision

Network: TypeAlias = Any
"""A module with attributes."""


def loss(output: Tensor) -> Tensor:
    return output.float().square().mean()


def backward(result: Tensor, *, retain_graph: bool = False) -> None:
    result.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]


def image() -> Tensor:
    return torch.randn(4, 3, 8, 8)


def rows() -> Tensor:
    return torch.randn(8, 16)


def sequence() -> Tensor:
    return torch.randn(2, 6, 16)


class Function(nn.Module):
    """Submodules, and a function of them and the batch."""

    def __init__(self, run: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self._run: Any = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, batch: Tensor) -> Tensor:
        result: Tensor = self._run(self, batch)
        return result


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))


def _convolutional() -> nn.Module:
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3)]
    more = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.2)]
    return nn.Sequential(*parts, *more, nn.Flatten(), nn.Linear(128, 5))


def _residual() -> nn.Module:
    def run(self: Network, batch: Tensor) -> Network:
        hidden = self.first(batch)
        hidden = hidden + functional.relu(self.second(hidden))
        return self.last(functional.relu_(self.third(hidden) + hidden).mean((2, 3)))

    parts = {"second": nn.Conv2d(8, 8, 3, padding=1), "third": nn.Conv2d(8, 8, 1), "last": nn.Linear(8, 3)}
    return Function(run, first=nn.Conv2d(3, 8, 3, padding=1), **parts)


def _views() -> nn.Module:
    def run(self: Network, batch: Tensor) -> Network:
        query, key, value = self.all(batch).chunk(3, dim=-1)
        scores = (query @ key.transpose(1, 2)).softmax(-1)
        mixed = scores @ value[:, :, ::2].repeat_interleave(2, -1)
        return self.out(mixed.transpose(0, 1).flatten(1)[:, ::3].exp().sum(1, keepdim=True))

    return Function(run, all=nn.Linear(16, 48), out=nn.Linear(1, 2))


def _in_place() -> nn.Module:
    def run(self: Network, batch: Tensor) -> Network:
        hidden = self.first(batch)
        hidden.mul_(2).sigmoid_()
        other = self.second(hidden)
        other[:, :4] = 1.0
        return self.third(functional.leaky_relu_(other, 0.1))

    return Function(run, first=nn.Linear(16, 16), second=nn.Linear(16, 16), third=nn.Linear(16, 2))


def _saved_between() -> nn.Module:
    """In-place SiLU saves a copy of its input."""
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(inplace=True)]
    more = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(inplace=True), nn.Conv2d(8, 8, 1), nn.SiLU()]
    return nn.Sequential(*parts, *more, nn.Flatten(), nn.Linear(512, 5))


def _tied() -> nn.Module:
    def run(self: Network, batch: Tensor) -> Network:
        codes = batch.abs().mul(9).long().clamp(max=19)
        return functional.linear(functional.layer_norm(self.words(codes), (16,)), self.words.weight)

    return Function(run, words=nn.Embedding(20, 16))


def _recurrent(kind: type[nn.LSTM | nn.GRU]) -> Callable[[], nn.Module]:
    def run(self: Network, batch: Tensor) -> Network:
        return self.out(self.cells(batch)[0])

    return lambda: Function(run, cells=kind(16, 8, num_layers=2, batch_first=True), out=nn.Linear(8, 3))


def _attention() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _checkpointed() -> nn.Module:
    def run(self: Network, batch: Tensor) -> Network:
        hidden = checkpoint(self.first, batch, use_reentrant=False)
        return self.third(checkpoint(self.second, hidden, use_reentrant=False))

    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 24))

    return Function(run, first=block(16), second=block(24), third=nn.Linear(24, 2))


def _frozen() -> nn.Module:
    model = _perceptron()
    next(iter(model.children())).requires_grad_(requires_grad=False)
    return model


def _drawn() -> nn.Module:

    def run(self: Network, batch: Tensor) -> Network:
        numbers = torch.Generator().manual_seed(3)
        hidden = functional.gelu(self.first(batch))
        hidden = functional.gelu(self.second(hidden * torch.rand(hidden.shape, generator=numbers)))
        return self.third(hidden * torch.empty_like(hidden).bernoulli_(0.8, generator=numbers))

    return Function(run, first=nn.Linear(16, 32), second=nn.Linear(32, 32), third=nn.Linear(32, 4))


def _variational() -> nn.Module:
    """A distribution reads whether its arguments are valid."""

    def run(self: Network, batch: Tensor) -> Network:
        mean, width = self.first(batch).tanh().chunk(2, -1)
        return self.last(functional.gelu(torch.distributions.Normal(mean, width.exp()).rsample()))

    return Function(run, first=nn.Linear(16, 32), last=nn.Linear(16, 4))


def _case(
    name: str, make: Callable[[], nn.Module], inputs: Callable[[], Tensor], precision: Precision = Precision.FLOAT32
) -> Case:
    return Case(name, "own", make, lambda: ((inputs(),), {}), loss, "sgd", precision)


MODELS = {
    each.name: each
    for each in (
        _case("perceptron", _perceptron, rows),
        _case("convolutional", _convolutional, image),
        _case("residual", _residual, image),
        _case("views", _views, sequence),
        _case("in place", _in_place, rows),
        _case("saved between", _saved_between, image),
        _case("tied", _tied, rows),
        _case("lstm", _recurrent(nn.LSTM), sequence),
        _case("gru", _recurrent(nn.GRU), sequence),
        _case("attention", _attention, sequence),
        _case("autocast", _convolutional, image, Precision.AMP_BFLOAT16),
        _case("checkpointed", _checkpointed, rows),
        _case("frozen", _frozen, rows),
        _case("drawn", _drawn, rows),
        _case("variational", _variational, rows),
    )
}
