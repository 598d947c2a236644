"""What is captured as a GPU would do it, beside what PyTorch's own dispatcher does on a pretended GPU."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from calibration.capture.as_cuda import as_cuda
from calibration.capture.schemas import OperatorMode

pytestmark = pytest.mark.pretend

Tensor = torch.Tensor
Make = Callable[[str], Callable[[], Tensor]]
"""Makes, of a device, what runs forward and returns a loss's input."""


def identity(tensor: Tensor) -> int:
    """Of a storage, as long as somebody holds it."""
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - PyTorch has no public one


@dataclass
class Seen(OperatorMode):
    """What was dispatched, and what autograd kept."""

    operators: list[tuple[str, tuple[tuple[tuple[int, ...], torch.dtype], ...]]] = field(default_factory=list)
    saved: dict[int, int] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    held: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        out = func(*args, **kwargs)
        made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
        given = {identity(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        new = [each for each in made if identity(each) not in given and each.untyped_storage().nbytes()]
        if new and "empty" not in str(func) and "zeros" not in str(func):
            self.operators.append((str(func), tuple((tuple(each.shape), each.dtype) for each in new)))
        return out

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self.held.append(storage)
        self.saved[identity(tensor)] = storage.nbytes()
        if tensor.is_leaf and tensor.requires_grad:
            self.given.add(identity(tensor))
        return tensor

    @property
    def kept_bytes(self) -> list[int]:
        """Sizes of what was kept, beside parameters and inputs: on a GPU a stack of layers has one memory for all."""
        return sorted(nbytes for storage, nbytes in self.saved.items() if storage not in self.given and nbytes)


def run(make: Make, device: str) -> tuple[Seen, Seen]:
    forward = make(device)
    seen, behind = Seen(), Seen()
    with seen, torch.autograd.graph.saved_tensors_hooks(seen.keep, lambda each: each):
        out = forward()
    with behind:
        out.float().sum().backward()  # type: ignore[no-untyped-call]
    return seen, behind


def tensors(device: str, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.zeros(shape, device=device, dtype=dtype, requires_grad=True) for shape in shapes]


def drops(device: str) -> Callable[[], Tensor]:
    (x,) = tensors(device, (4, 8, 16, 16))
    return lambda: F.dropout(F.relu(x), 0.1)


def feature_drops(device: str) -> Callable[[], Tensor]:
    (x,) = tensors(device, (4, 8, 16, 16))
    return lambda: F.alpha_dropout(F.dropout2d(F.dropout(x, 0.5, inplace=False), 0.1), 0.1, training=True)


ATTENTION: dict[str, Any] = {
    "dtype": torch.float16,
    "batch": 2,
    "heads": 4,
    "of_key": 4,
    "length": 100,
    "of_keys": None,
    "size": 64,
    "mask": "",
    "is_causal": False,
    "dropout": 0.0,
}


def attends(device: str, **options: Any) -> Callable[[], Tensor]:  # noqa: ANN401
    its = SimpleNamespace(**(ATTENTION | options))
    keys = its.of_keys or its.length
    batch = (its.batch,) if its.batch else ()
    shapes = (*batch, its.heads, its.length, its.size), *2 * ((*batch, its.of_key, keys, its.size),)
    query, key, value = tensors(device, *shapes, dtype=its.dtype)
    given = None
    if its.mask:
        kind = torch.bool if its.mask == "bool" else its.dtype
        shape = (its.batch, 1, its.length, keys) if its.mask == "full" else (its.length, keys)
        given = torch.zeros(shape, device=device, dtype=kind)
    return lambda: F.scaled_dot_product_attention(
        query, key, value, given, its.dropout, its.is_causal, enable_gqa=its.heads != its.of_key
    )


def normalizes(
    device: str,
    dtype: torch.dtype,
    *,
    training: bool = True,
    channels_last: bool = False,
    weights: torch.dtype = torch.float32,
) -> Callable[[], Tensor]:
    (x,) = tensors(device, (4, 8, 6, 6), dtype=dtype)
    module = nn.BatchNorm2d(8, device=device, dtype=weights).train(training)
    order = torch.channels_last if channels_last else torch.contiguous_format
    return lambda: F.relu(module(x.contiguous(memory_format=order)))


def other_normalizations(device: str, dtype: torch.dtype) -> Callable[[], Tensor]:
    x, weight, bias = tensors(device, (4, 8, 6), (6,), (6,), dtype=dtype)
    of_groups = nn.GroupNorm(2, 8, device=device, dtype=dtype)

    def forward() -> Tensor:
        y = F.rms_norm(F.layer_norm(x, (6,), weight, bias), (6,), weight)
        return F.instance_norm(of_groups(y))

    return forward


def recurs(
    device: str, kind: Callable[..., nn.RNNBase], *, amp: torch.dtype | None = None, **options: float
) -> Callable[[], Tensor]:
    # From the first dropout of a process on, PyTorch keeps cuDNN's random states.
    nn.LSTM(1, 1, 2, dropout=0.5, device=device)(torch.zeros(1, 1, 1, device=device))
    module = kind(8, 13, device=device, **options)
    (x,) = tensors(device, (5, 3, 8))

    def forward() -> Tensor:
        with torch.autocast("cuda", amp) if amp else nullcontext():
            out: Tensor = module(x)[0]
            return out

    return forward


def convolves(device: str, dtype: torch.dtype | None, *, channels_last: bool = False) -> Callable[[], Tensor]:
    with torch.device(device):
        model = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
            *(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.Hardswish()),
            *(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10)),
        )
    (x,) = tensors(device, (4, 3, 18, 18))
    order = torch.channels_last if channels_last else torch.contiguous_format
    target = torch.zeros(4, dtype=torch.int64, device=device)

    def forward() -> Tensor:
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            return F.cross_entropy(model(x.contiguous(memory_format=order)), target)

    return forward


def encodes(
    device: str, dtype: torch.dtype | None, *, is_causal: bool = False, need_weights: bool = False
) -> Callable[[], Tensor]:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, device=device, activation="gelu")
    (x,) = tensors(device, (2, 24, 32))
    mask = nn.Transformer.generate_square_subsequent_mask(24, device=torch.device(device)) if is_causal else None

    def forward() -> Tensor:
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            if need_weights:
                out: Tensor = layer.self_attn(x, x, x)[0]
                return out
            encoded: Tensor = layer(x, src_mask=mask, is_causal=is_causal)
            return encoded

    return forward


def loses(device: str, dtype: torch.dtype | None) -> Callable[[], Tensor]:
    x, y, weight = tensors(device, (4, 8), (4, 8), (8, 8))
    target = torch.zeros(4, dtype=torch.int64, device=device)

    def forward() -> Tensor:
        with torch.autocast("cuda", dtype) if dtype else nullcontext():
            z = x @ weight
            soft = F.softmax(z, -1) + F.logsigmoid(z) + F.softplus(y) + z.exp() + F.gelu(z) + F.silu(z)
            losses = F.cross_entropy(soft, target, label_smoothing=0.1) + F.mse_loss(z, y) + F.smooth_l1_loss(z, y)
            losses += F.binary_cross_entropy_with_logits(z, y) + F.l1_loss(z, y)
            losses += F.kl_div(z, y, reduction="batchmean")
            norms: Tensor = losses + z.norm() + z.norm(dim=1).sum()
            return norms + z.cumsum(0).sum() + torch.cat([z, y]).pow(2).mean()

    return forward


def embeds(device: str, mode: str) -> Callable[[], Tensor]:
    (weight,) = tensors(device, (10, 8))
    numbers = torch.zeros(3, 4, dtype=torch.int64, device=device)
    return lambda: F.embedding(numbers, weight).sum(1) + F.embedding_bag(numbers, weight, mode=mode)


ATTENTIONS: dict[str, dict[str, Any]] = {
    "float16": {},
    "bfloat16": {"dtype": torch.bfloat16},
    "float32": {"dtype": torch.float32},
    "float64": {"dtype": torch.float64},
    "causal": {"is_causal": True},
    "causal_unequal": {"is_causal": True, "of_keys": 60},
    "causal_float32": {"is_causal": True, "dtype": torch.float32},
    "bool_mask": {"mask": "bool"},
    "float_mask": {"mask": "float"},
    "aligned_mask": {"mask": "float", "length": 128},
    "full_mask_float32": {"mask": "full", "dtype": torch.float32},
    "grouped": {"of_key": 2},
    "grouped_float32": {"of_key": 2, "dtype": torch.float32},
    "grouped_mask": {"of_key": 2, "mask": "bool"},
    "dropout": {"dropout": 0.1},
    "dropout_of_sixteenths": {"dropout": 0.125},
    "dropout_float32": {"dropout": 0.1, "dtype": torch.float32},
    "head_60": {"size": 60},
    "head_61_float32": {"size": 61, "dtype": torch.float32},
    "head_60_float32": {"size": 60, "dtype": torch.float32},
    "head_160": {"size": 160},
    "head_200": {"size": 200},
    "head_256": {"size": 256},
    "head_256_dropout": {"size": 256, "dropout": 0.125},
    "head_320": {"size": 320},
    "without_batch": {"batch": 0},
    "one_key": {"of_keys": 1},
}


def of(make: Callable[..., Callable[[], Tensor]], *its: object, **options: object) -> Make:
    """Return a case that makes something with options on whatever device."""
    return lambda device: make(device, *its, **options)


AUTOCAST = {"": None, "_float16": torch.float16, "_bfloat16": torch.bfloat16}
CASES: dict[str, Make] = {
    "dropout": drops,
    "feature_dropout": feature_drops,
    **{f"attention_{name}": of(attends, **options) for name, options in ATTENTIONS.items()},
    **{f"batch_norm{name}": of(normalizes, dtype or torch.float32) for name, dtype in AUTOCAST.items()},
    "batch_norm_all_float16": of(normalizes, torch.float16, weights=torch.float16),
    "batch_norm_evaluation": of(normalizes, torch.float32, training=False),
    "batch_norm_channels_last": of(normalizes, torch.float16, channels_last=True),
    "normalizations_float32": of(other_normalizations, torch.float32),
    "normalizations_float16": of(other_normalizations, torch.float16),
    "lstm": of(recurs, nn.LSTM),
    "lstm_2_dropout": of(recurs, nn.LSTM, num_layers=2, dropout=0.2),
    "lstm_2_bidirectional": of(recurs, nn.LSTM, num_layers=2, bidirectional=True),
    "lstm_batch_first": of(recurs, nn.LSTM, batch_first=True),
    "lstm_2_projected": of(recurs, nn.LSTM, num_layers=2, bidirectional=True, proj_size=4),
    "lstm_projected": of(recurs, nn.LSTM, proj_size=4),
    "lstm_amp": of(recurs, nn.LSTM, amp=torch.float16),
    "lstm_amp_bfloat16": of(recurs, nn.LSTM, amp=torch.bfloat16),
    "gru": of(recurs, nn.GRU),
    "gru_3_bidirectional_dropout": of(recurs, nn.GRU, num_layers=3, bidirectional=True, dropout=0.2),
    "rnn_2": of(recurs, nn.RNN, num_layers=2),
    **{f"convnet{name}": of(convolves, dtype) for name, dtype in AUTOCAST.items()},
    "convnet_float16_channels_last": of(convolves, torch.float16, channels_last=True),
    "encoder_layer": of(encodes, None),
    "encoder_layer_float16": of(encodes, torch.float16),
    "encoder_layer_bfloat16_causal": of(encodes, torch.bfloat16, is_causal=True),
    "multi_head_attention": of(encodes, None, need_weights=True),
    "multi_head_attention_float16": of(encodes, torch.float16, need_weights=True),
    **{f"losses{name}": of(loses, dtype) for name, dtype in AUTOCAST.items()},
    "embeddings_mean": of(embeds, "mean"),
    "embeddings_max": of(embeds, "max"),
}


@pytest.mark.parametrize("name", CASES)
def test_fake_dispatch_and_saved_bytes_equal_those_on_cuda(name: str) -> None:
    expected, expected_behind = run(CASES[name], "cuda")
    with FakeTensorMode(), as_cuda(torch.cuda.get_device_capability()):
        found, found_behind = run(CASES[name], "cpu")
    assert found.kept_bytes == expected.kept_bytes
    assert found.operators == expected.operators
    assert found_behind.operators == expected_behind.operators
