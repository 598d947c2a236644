"""Blocks that are drawn beside the first: of complex numbers, of parts with a state, and of two streams on a GPU."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from tests.apply.generated.blocks import STEPS, WIDTH
from tests.apply.models import Function as Of


def _numbers(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    return torch.view_as_complex(self.part(hidden).float().contiguous().unflatten(-1, (-1, 2)))


def _conjugate(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    numbers = _numbers(self, hidden)
    products = numbers * numbers.conj() + numbers.roll(1, 1).conj() * numbers.mT.conj().resolve_conj().mT
    return torch.view_as_real(products).flatten(-2)


def _negative(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    numbers = _numbers(self, hidden)
    negative = numbers.conj().imag
    return torch.cat((numbers.real * negative, (negative * negative.sin()).tanh()), -1)


def _written_through(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    numbers = _numbers(self, hidden)
    written = numbers + 1
    written.conj().mul_(numbers)
    written.conj().imag.mul_(0.5)
    return torch.view_as_real(written * numbers.conj()).flatten(-2).tanh()


def _spectrum(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    spectrum = torch.fft.rfft(self.part(hidden), dim=1)
    return torch.as_tensor(torch.fft.irfft(spectrum * spectrum.flip(1).conj(), n=STEPS, dim=1).tanh())


@cache
def _side_stream() -> torch.cuda.Stream:
    """Return one that is no copy stream: they are of another priority."""
    return torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]


class Beside(nn.Module):
    """Two branches, one of them on a stream of its own, correctly joined; without a GPU they are plain branches.

    If it `shares`, the main stream saves what is of the other's pool, amid the branches. What `is_hidden` is on the
    other stream on a GPU alone, so that capture sees one.
    """

    def __init__(self, *, shares: bool = False, is_hidden: bool = False) -> None:
        super().__init__()
        self.main, self.beside = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self._shares, self._is_hidden = shares, is_hidden

    def forward(self, hidden: Tensor) -> Tensor:
        if not torch.cuda.is_available() or (self._is_hidden and not hidden.is_cuda):
            right = torch.tanh(self.beside(hidden))
            return torch.tanh(self.main(hidden)) * (right.exp().square() if self._shares else right)
        main, side = torch.cuda.current_stream(), _side_stream()
        side.wait_stream(main)
        hidden.record_stream(side)
        with torch.cuda.stream(side):
            right = torch.tanh(self.beside(hidden))
            shared = right.exp() if self._shares else right
        left = torch.tanh(self.main(hidden))
        main.wait_stream(side)
        shared.record_stream(main)
        return left * (shared.square() if self._shares else shared)


class Quantized(nn.Module):
    """Rows of a codebook that follows its input, straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.code: Tensor
        self.register_buffer("code", torch.linspace(-1, 1, 4 * WIDTH).view(4, WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        nearest = torch.cdist(hidden.float(), self.code).argmin(-1)
        result = self.code[nearest]
        if self.training:
            with torch.no_grad():
                weights = functional.one_hot(nearest.flatten(), 4).float()
                self.code.lerp_(weights.T @ hidden.float().flatten(0, 1) / (weights.sum(0)[:, None] + 1), 0.1)
        return hidden + (result - hidden).detach() + (hidden - result).square().mean()


class Keeping(nn.Module):
    """Keeps what it returns, a result that no loss takes, and for the next forward the mean of what it got."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.mean = nn.Linear(WIDTH, WIDTH), torch.zeros(WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        self.unused = self.part(hidden).exp()
        self.returned = torch.tanh(self.part(hidden + self.mean))
        self.mean = hidden.detach().float().mean((0, 1))
        return self.returned


def _sampled(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    mean, width = self.both(hidden).float().chunk(2, -1)
    normal = torch.distributions.Normal(mean, functional.softplus(width) + 0.1)
    if not self.training:
        return normal.mean
    weights: Tensor = normal.log_prob(hidden.detach().float())  # type: ignore[no-untyped-call]
    return normal.rsample() * 0.5 + weights.tanh()


def _left_out(self: Any, hidden: Tensor) -> Tensor:  # noqa: ANN401
    if self.training and torch.rand(()).item() < 0.3:
        return hidden
    return torch.as_tensor(hidden + self.part(hidden))


STATEFUL: Final[dict[str, Callable[[], nn.Module]]] = {
    "codebook": Quantized,
    "keeping": Keeping,
    "sampled": lambda: Of(_sampled, both=nn.Linear(WIDTH, 2 * WIDTH)),
    "left out at times": lambda: Of(_left_out, part=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
}
COMPLEX: Final[dict[str, Callable[[], nn.Module]]] = {
    "conjugate": lambda: Of(_conjugate, part=nn.Linear(WIDTH, WIDTH)),
    "negative": lambda: Of(_negative, part=nn.Linear(WIDTH, WIDTH)),
    "written through a conjugate": lambda: Of(_written_through, part=nn.Linear(WIDTH, WIDTH)),
    "spectrum": lambda: Of(_spectrum, part=nn.Linear(WIDTH, WIDTH)),
}
STREAMS: Final[dict[str, Callable[[], nn.Module]]] = {
    "side stream": Beside,
    "side stream, shared": lambda: Beside(shares=True),
    "side stream that capture does not see": lambda: Beside(is_hidden=True),
}
