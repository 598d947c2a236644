"""Blocks of which models are drawn: each takes a tensor of samples x 6 x 8 and returns one, and has a way to save."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.apply.models import Function as Of

STEPS: Final = 6
WIDTH: Final = 8


class Cube(Function):
    """Saves its input twice, what it made of it, and its result."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
        square = hidden * hidden
        result = square * hidden
        ctx.save_for_backward(hidden, square, hidden, result)
        return result

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401
        """Read all four; the second input and the result add nothing."""
        hidden, square, again, result = ctx.saved_tensors
        return torch.as_tensor(slopes[0] * (3 * square + (hidden - again) + 0 * result))


class Halved(Function):
    """Writes its input over, and saves it afterwards."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
        hidden.mul_(0.5).tanh_()
        ctx.mark_dirty(hidden)
        ctx.save_for_backward(hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:  # noqa: ANN401
        """Derive the hyperbolic tangent of half."""
        (result,) = ctx.saved_tensors
        return torch.as_tensor(slopes[0] * 0.5 * (1 - result * result))


class Centred(nn.Module):
    """Subtracts a mean that it follows itself, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, hidden: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(hidden.float().mean((0, 1)), 0.25)
                self.count += 1
        return (hidden - self.mean) * 1.25


class Scan(nn.Module):
    """A cell for each of the steps, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        state, found = hidden[:, 0], []
        for each in hidden.unbind(1):
            state = torch.tanh(self.cell(torch.cat((state, each), -1)))
            found.append(state)
        return torch.stack(found, 1)


class Adapter(nn.Module):
    """A frozen matrix, and one of low rank that is trained beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(WIDTH, WIDTH).requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(WIDTH, 2, bias=False), nn.Linear(2, WIDTH, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return Tensor(self.whole(hidden) + self.up(self.down(hidden)))


class Words(nn.Module):
    """Looks tensors up as words, and weighs all words by the same table."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Compute it: the table holds as many words as they are wide."""
        codes = hidden.detach().abs().sum(-1).mul(3).long().remainder(WIDTH)
        return functional.linear(functional.layer_norm(self.words(codes) + hidden, (WIDTH,)), self.words.weight)


def _images(hidden: Tensor) -> Tensor:
    return hidden.reshape(-1, 3, 4, 4)


def _as_steps(images: Tensor) -> Tensor:
    return images.reshape(-1, STEPS, WIDTH)


def _heads(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    query, key, value = self.all(hidden).chunk(3, -1)
    scores = (query @ key.transpose(1, 2) / WIDTH).softmax(-1)
    return torch.as_tensor(scores @ value)


def _grouped(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    query, both = self.query(hidden).unflatten(-1, (2, 4)), self.both(hidden)
    key, value = (each.unsqueeze(2).expand(-1, -1, 2, -1) for each in both.split(4, -1))
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def _turned(_: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    at = torch.arange(STEPS, device=hidden.device)[:, None] * torch.tensor([1.0, 0.5, 0.25, 0.1], device=hidden.device)
    even, odd = hidden[..., ::2], hidden[..., 1::2]
    return torch.stack((even * at.cos() - odd * at.sin(), even * at.sin() + odd * at.cos()), -1).flatten(-2)


def _experts(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    result = torch.zeros_like(hidden)
    for number, expert in enumerate((self.first, self.second)):
        rows = torch.arange(number, STEPS, 2, device=hidden.device)
        result = result.index_add(1, rows, functional.relu(expert(hidden.index_select(1, rows))))
    return result


def _gated(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    one, other = self.both(hidden).chunk(2, -1)
    return torch.as_tensor(one * torch.sigmoid(other))


def _assigned(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    other = self.part(hidden)
    other[:, :2] = hidden[:, 2:4] * 0.5
    other[:, :, -1].mul_(2).tanh_()
    return torch.as_tensor(other)


def _in_place(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return torch.as_tensor(self.part(hidden).mul_(2).sigmoid_() + hidden)


def _noisy(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return (
        hidden + 0.1 * torch.randn_like(hidden) * torch.rand(WIDTH, device=hidden.device) if self.training else hidden
    )


def _routed(_: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    values, order = hidden.sort(-1)
    most = values.amax(-1, keepdim=True)
    return torch.where(hidden > 0, values - most, hidden.gather(-1, order))


def _rolled(_: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    padded = functional.pad(hidden, (0, 0, 2, 0)).unfold(1, 3, 1)
    return (padded.prod(-1) + hidden.roll(1, 1)).clamp(-2, 2)


def _narrow(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return functional.linear(hidden.bfloat16(), self.part.weight.bfloat16()).float()


def _spectral(_: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return torch.as_tensor(torch.fft.irfft(torch.fft.rfft(hidden, dim=-1) * (0.5 + 0.5j), n=WIDTH, dim=-1))


def _slope(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    result = self.part(hidden)
    if result.requires_grad:
        result.register_hook(lambda each: each.clamp(-1, 1) * 2)
    return torch.as_tensor(result)


BLOCKS: Final[dict[str, Callable[[], nn.Module]]] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "perceptron": lambda: nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH)),
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "softmax": lambda: nn.Softmax(-1),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(STEPS),
    "group norm": lambda: nn.GroupNorm(2, STEPS),
    "convolution": lambda: Of(
        lambda self, each: _as_steps(self.part(_images(each))), part=nn.Conv2d(3, 3, 3, padding=1)
    ),
    "convolution, batch norm, relu in place": lambda: Of(
        lambda self, each: _as_steps(functional.relu_(self.norm(self.part(_images(each))))),
        part=nn.Conv2d(3, 3, 3, padding=1),
        norm=nn.BatchNorm2d(3),
    ),
    "pooling": lambda: Of(lambda _, each: _as_steps(functional.max_pool2d(_images(each), 3, 1, 1))),
    "silu in place": lambda: Of(
        lambda self, each: functional.silu(self.part(each), inplace=True), part=nn.Linear(8, 8)
    ),
    "in place": lambda: Of(_in_place, part=nn.Linear(WIDTH, WIDTH)),
    "assigned": lambda: Of(_assigned, part=nn.Linear(WIDTH, WIDTH)),
    "gated": lambda: Of(_gated, both=nn.Linear(WIDTH, 2 * WIDTH)),
    "heads": lambda: Of(_heads, all=nn.Linear(WIDTH, 3 * WIDTH)),
    "grouped attention": lambda: Of(_grouped, query=nn.Linear(WIDTH, WIDTH), both=nn.Linear(WIDTH, WIDTH)),
    "attention": lambda: Of(
        lambda self, each: self.part(each, each, each, need_weights=False)[0],
        part=nn.MultiheadAttention(WIDTH, 2, batch_first=True),
    ),
    "rotary": lambda: Of(_turned),
    "experts": lambda: Of(_experts, first=nn.Linear(WIDTH, WIDTH), second=nn.Linear(WIDTH, WIDTH)),
    "transposed": lambda: Of(lambda self, each: self.part(each.transpose(1, 2)).mT, part=nn.Linear(STEPS, STEPS)),
    "strided": lambda: Of(lambda _, each: each[:, ::2].repeat_interleave(2, 1) * each.flip(2)),
    "broadcast": lambda: Of(lambda _, each: each * each.mean(1, keepdim=True).expand_as(each).sin()),
    "power": lambda: Of(lambda _, each: each.sigmoid() * each.detach() + (each * each * each).clamp(-2, 2)),
    "sums": lambda: Of(lambda _, each: each.cumsum(1).logsumexp(-1, keepdim=True) - each),
    "routed": lambda: Of(_routed),
    "rolled": lambda: Of(_rolled),
    "scan": Scan,
    "lstm": lambda: Of(lambda self, each: self.part(each)[0], part=nn.LSTM(WIDTH, WIDTH, batch_first=True)),
    "gru": lambda: Of(lambda self, each: self.part(each)[0], part=nn.GRU(WIDTH, WIDTH, batch_first=True)),
    "words": Words,
    "adapter": Adapter,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "centred": Centred,
    "cube": lambda: Of(lambda _, each: Cube.apply(each.tanh())),  # type: ignore[no-untyped-call]
    "written by a function": lambda: Of(
        lambda self, each: Halved.apply(self.part(each)),  # type: ignore[no-untyped-call]
        part=nn.Linear(WIDTH, WIDTH),
    ),
    "gradient changed": lambda: Of(_slope, part=nn.Linear(WIDTH, WIDTH)),
    "bfloat16": lambda: Of(_narrow, part=nn.Linear(WIDTH, WIDTH, bias=False)),
    "fourier": lambda: Of(_spectral),
    "dropout": lambda: nn.Dropout(0.3),
    "dropout in place": lambda: Of(
        lambda self, each: functional.dropout(self.part(each), 0.5, self.training, inplace=True), part=nn.Linear(8, 8)
    ),
    "attention with dropout": lambda: Of(
        lambda self, each: self.part(each, each, each)[0], part=nn.MultiheadAttention(WIDTH, 2, 0.2, batch_first=True)
    ),
    "noise": lambda: Of(_noisy),
    # Of what is not contiguous PyTorch's own leaves its noise as the memory was, and so does a checkpoint that ends
    # with it: it recomputes until its last tensor is saved, here noise that is yet to be drawn.
    "leaky with random slopes": lambda: Of(
        lambda self, each: functional.rrelu(each.contiguous(), training=self.training).sin()
    ),
}
NOT_ON_HOST: Final = (
    *("dropout", "dropout in place", "noise", "leaky with random slopes"),
    *("attention", "grouped attention", "attention with dropout", "lstm", "gru", "fourier"),
)
"""Blocks that the host does not compute for a pretended GPU: they may draw random numbers, or are libraries' there."""
