"""Models in plain PyTorch, each for one hazard of captures."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from calibration.capture.program import Arguments
from reports.capture.case import Case, images
from vdnnsim.units import Precision

_WIDTH = 128


class Mlp(nn.Module):
    """Three linear layers, some frozen or two tied."""

    def __init__(self, *, frozen: int = 0, tied: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        for layer in list(self.layers)[:frozen]:
            layer.requires_grad_(requires_grad=False)
        if tied:
            self.layers[1].weight = self.layers[0].weight

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = functional.gelu(layer(x))
        return x


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = Mlp(), Mlp(), nn.Bilinear(_WIDTH, _WIDTH, 8)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        one, other = self.left(left), self.right(right)
        return {"left": one, "right": other, "both": self.both(one, other)}


class Recurrent(nn.Module):
    def __init__(self, kind: str, **arguments: Any) -> None:  # noqa: ANN401 - of the layer
        super().__init__()
        self.layer, self.is_cell = getattr(nn, kind)(64, 64, **arguments), kind.endswith("Cell")

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_cell:
            return self.layer(x)[0]  # type: ignore[no-any-return]
        state, outputs = None, []
        for step in x.unbind(0):
            state = self.layer(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs)


class Attention(nn.Module):
    """Attention, plain or `causal`, `mask`, `grouped`, `dropout`, or composed in `steps`."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how = how
        self.query, self.out = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.key_value = nn.Linear(_WIDTH, 2 * (_WIDTH // 2 if how == "grouped" else _WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        query = self.query(x).view(batch, steps, -1, 32).transpose(1, 2)
        key, value = self.key_value(x).view(batch, steps, 2, -1, 32).permute(2, 0, 3, 1, 4)
        if self.how == "steps":
            weights = functional.softmax(query @ key.transpose(-2, -1) / 32**0.5, -1)
            mixed = functional.dropout(weights, 0.1, self.training) @ value
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, **self._options(steps))
        return self.out(mixed.transpose(1, 2).reshape(x.shape))  # type: ignore[no-any-return]

    def _options(self, steps: int) -> dict[str, Any]:
        mask = torch.ones(steps, steps, dtype=torch.bool).tril(4)
        options: dict[str, dict[str, Any]] = {
            "causal": {"is_causal": True},
            "mask": {"attn_mask": mask},
            "grouped": {"enable_gqa": True},
            "dropout": {"dropout_p": 0.1},
        }
        return options.get(self.how, {})


class Gpt(nn.Module):
    """A decoder with tied embeddings and a loss; `how` checkpoints its blocks."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.how = how
        self.embedding, self.positions = nn.Embedding(512, _WIDTH), nn.Embedding(64, _WIDTH)
        make = partial(nn.TransformerEncoderLayer, _WIDTH, 4, 256, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList(make() for _ in range(3))
        self.head = nn.Linear(_WIDTH, 512, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        steps = ids.shape[1]
        x = self.embedding(ids) + self.positions(torch.arange(steps))
        mask = nn.Transformer.generate_square_subsequent_mask(steps)
        for number, block in enumerate(self.blocks):
            if self.how and (self.how != "every second" or number % 2):
                x = checkpoint(block, x, mask, use_reentrant=self.how == "reentrant")
            else:
                x = block(x, src_mask=mask, is_causal=True)
        return functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = _convolved(3, 16), _convolved(16, 32)
        self.up, self.last = nn.ConvTranspose2d(32, 16, 2, stride=2), _convolved(32, 16)
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        down = self.down(functional.max_pool2d(first, 2))
        return self.head(self.last(torch.cat([first, self.up(down)], 1)))  # type: ignore[no-any-return]


def _convolved(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(inplace=True))


class Bag(nn.Module):
    """An embedding bag, and an embedding with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.table = nn.EmbeddingBag(500, 64, mode="sum"), nn.Embedding(500, 64, padding_idx=0)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.cat([self.bag(ids), self.table(ids).mean(1)], 1)


class Applied(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(_WIDTH, _WIDTH), function

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401 - whatever the function returns
        return self.function(self.layer(x))


class Routed(nn.Module):
    """Rows are routed by value, so that shapes depend on data."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.left, self.right = nn.Linear(_WIDTH, 1), nn.Linear(_WIDTH, 8), nn.Linear(_WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x)[:, 0] > 0
        return torch.cat([self.left(x[chosen]), self.right(x[~chosen])])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        (x,) = ctx.saved_tensors
        return 2 * x * gradient  # type: ignore[no-any-return]


def _rows(count: int = 32) -> Callable[[], Arguments]:
    return lambda: ((torch.randn(count, _WIDTH),), {})


def _steps(width: int = 64) -> Callable[[], Arguments]:
    return lambda: ((torch.randn(24, 8, width),), {})


def _ids() -> Arguments:
    return (torch.randint(1, 500, (4, 64)),), {}


def _stack(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


_FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "function with a backward of its own": Square.apply,
    "in-place chain": lambda x: (x * 2).add_(1).mul_(3).sigmoid_(),
    "log-softmax and topk": lambda x: functional.log_softmax(x, -1).topk(5).values,
    "einsum and scatter": lambda x: torch.einsum("ij,kj->ik", x, x).scatter(
        1, torch.zeros(32, 1, dtype=torch.int64), 1.0
    ),
    "sort, cumulative sum and flip": lambda x: x.sort(-1).values.cumsum(-1).flip(0),
    "where and clamp": lambda x: torch.where(x > 0, x.clamp(max=1.0), x.exp()),
    "split, chunk and stack": lambda x: torch.stack([part.tanh() for part in x.chunk(4, -1)]).sum(0),
    "norms and logsumexp": lambda x: (x.norm(dim=-1), x.logsumexp(-1), x.std(-1), x.var(0)),
    "complex numbers": lambda x: torch.fft.rfft(x).abs(),
    "outputs that share memory": lambda x: (x, x.view(-1), x[:, ::2]),
    "detached branch": lambda x: x * x.detach().softmax(-1) + x.detach().square(),
    "matrix inverse": lambda x: torch.linalg.solve(x.T @ x + torch.eye(_WIDTH), x.T),
}


def cases() -> Iterator[Case]:
    own = partial(Case, family="own")
    yield own("MLP", make_model=Mlp, make_inputs=_rows())
    for optimizer in ("sgd", "momentum", "adam", "adamw_fused", "rmsprop", "adagrad", "nadam"):
        yield own(f"MLP, {optimizer}", make_model=Mlp, make_inputs=_rows(), optimizer=optimizer)
    yield own("MLP, four micro-batches", make_model=Mlp, make_inputs=_rows(), accumulate=4)
    yield own("MLP, two layers frozen", make_model=partial(Mlp, frozen=2), make_inputs=_rows())
    yield own("MLP, tied weights", make_model=partial(Mlp, tied=True), make_inputs=_rows())
    yield own("MLP, bfloat16", make_model=Mlp, make_inputs=_rows(), precision=Precision.BFLOAT16)
    yield own("MLP, amp_float16", make_model=Mlp, make_inputs=_rows(), precision=Precision.AMP_FLOAT16)
    yield own(
        "two inputs, three losses", make_model=TwoTowers, make_inputs=lambda: ((*_rows()()[0], *_rows()()[0]), {})
    )
    for kind in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell"):
        yield own(kind, make_model=partial(Recurrent, kind), make_inputs=_steps(), onednn=False)
    deep = partial(Recurrent, "LSTM", num_layers=2, bidirectional=True, dropout=0.2)
    yield own("LSTM, deep, in both directions", make_model=deep, make_inputs=_steps(), onednn=False)
    for how in ("", "causal", "mask", "grouped", "dropout", "steps"):
        name = f"attention{', ' if how else ''}{how}"
        yield own(name, make_model=partial(Attention, how), make_inputs=_steps(_WIDTH))
    mixed = Precision.AMP_BFLOAT16
    yield own(
        "attention, causal, amp_bfloat16",
        make_model=partial(Attention, "causal"),
        make_inputs=_steps(_WIDTH),
        precision=mixed,
    )
    for how in ("", "non-reentrant", "reentrant", "every second"):
        name = f"GPT{', checkpointed, ' if how else ''}{how}"
        yield own(name, make_model=partial(Gpt, how), make_inputs=_ids)
    yield own("GPT, amp_bfloat16", make_model=Gpt, make_inputs=_ids, precision=mixed)
    yield own("GPT, two micro-batches, amp_bfloat16", make_model=Gpt, make_inputs=_ids, precision=mixed, accumulate=2)
    yield own("U-Net", make_model=UNet, make_inputs=images(64))
    yield own("U-Net, amp_bfloat16", make_model=UNet, make_inputs=images(64), precision=mixed)
    yield own("embedding bag", make_model=Bag, make_inputs=_ids)
    depthwise = lambda: _stack(nn.Conv2d(3, 24, 1), nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.Hardswish())  # noqa: E731
    yield own("depthwise convolutions", make_model=depthwise, make_inputs=images(48))
    norms = lambda: _stack(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.PReLU(), nn.InstanceNorm2d(16), nn.AvgPool2d(2))  # noqa: E731
    yield own("norms of batch and instance", make_model=norms, make_inputs=images(48))
    resized = lambda: _stack(nn.Conv2d(3, 16, 3), nn.Upsample(scale_factor=2, mode="bilinear"), nn.PixelShuffle(2))  # noqa: E731
    yield own("resized and shuffled", make_model=resized, make_inputs=images(32))
    volumes = lambda: _stack(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8), nn.MaxPool3d(2), nn.Dropout3d(0.2))  # noqa: E731
    yield own("volumes", make_model=volumes, make_inputs=lambda: ((torch.randn(2, 3, 12, 24, 24),), {}))
    sound = lambda: _stack(nn.Conv1d(4, 32, 5, stride=2), nn.ReLU(), nn.ConvTranspose1d(32, 4, 5, stride=2))  # noqa: E731
    yield own("convolutions in one dimension", make_model=sound, make_inputs=lambda: ((torch.randn(4, 4, 400),), {}))
    transformer = lambda: nn.Transformer(64, 4, 2, 2, 128, batch_first=True)  # noqa: E731
    yield own(
        "encoder and decoder",
        make_model=transformer,
        make_inputs=lambda: ((torch.randn(4, 20, 64), torch.randn(4, 12, 64)), {}),
    )
    for name, function in _FUNCTIONS.items():
        yield own(name, make_model=partial(Applied, function), make_inputs=_rows())
    yield own("routed by values", make_model=Routed, make_inputs=_rows())
