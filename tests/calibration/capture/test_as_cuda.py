"""What is saved of fake tensors that are treated as CUDA's, in bytes that are derived by hand."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.capture.as_cuda import as_cuda
from calibration.capture.cuda.autocast import operators_of
from calibration.capture.cuda.recurrent import reserve_bytes
from calibration.capture.schemas import OperatorMode

ADA, HOPPER, TURING = (8, 9), (9, 0), (7, 5)


@pytest.fixture(autouse=True)
def fake() -> Iterator[None]:
    with FakeTensorMode():
        yield


def saved_bytes(forward: Callable[[], Tensor], capability: tuple[int, int] = ADA) -> int:
    """What autograd saves beside leaves, each storage once."""
    saved: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not (tensor.is_leaf and tensor.requires_grad):
            saved[tensor.untyped_storage()._cdata] = tensor  # noqa: SLF001 - its identity
        return tensor

    with as_cuda(capability), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(each.untyped_storage().nbytes() for each in saved.values())


def operators(run: Callable[[], object], capability: tuple[int, int] = ADA) -> list[str]:
    names: list[str] = []

    class Names(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:  # noqa: ANN401 - whatever the operator returns
            names.append(str(func.name()).removeprefix("aten::"))  # type: ignore[no-untyped-call]
            return func(*args, **(kwargs or {}))

    with as_cuda(capability), Names():  # type: ignore[no-untyped-call]
        run()
    return names


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype, requires_grad=True)


def attention(dtype: torch.dtype = torch.float16, size: int = 64, **options: object) -> Tensor:
    query, key, value = (leaf(2, 4, 100, size, dtype=dtype) for _ in range(3))
    return F.scaled_dot_product_attention(query, key, value, **options)  # type: ignore[arg-type]


SAVED: dict[str, tuple[Callable[[], Tensor], int]] = {
    # A mask of a byte for each of 4 x 100 elements; that of the CPU has four.
    "dropout": (lambda: F.dropout(leaf(4, 100), 0.1), 400),
    # A result of 2 x 4 x 100 x 64 in float16, a float32 for each row, three int64 of the generator.
    "flash attention": (attention, 102400 + 3200 + 24),
    # Heads of 60 are padded to 64: query, key, value and result.
    "flash attention with padding": (lambda: attention(size=60), 4 * 102400 + 3200 + 24),
    # A float32 for each row, rows padded to 128, and two int64.
    "efficient attention": (lambda: attention(torch.float32), 204800 + 4096 + 16),
    # A mask of 100 rows becomes float16 in rows of 104.
    "masked attention": (
        lambda: attention(attn_mask=torch.ones(100, 100, dtype=torch.bool)),
        20800 + 102400 + 4096 + 16,
    ),
    # Mean and deviation of 4 rows in float32.
    "layer norm": (lambda: F.layer_norm(leaf(4, 8, dtype=torch.float16), (8,)), 2 * 4 * 4),
    # Deviations of 4 rows; decomposed, it would save a wider copy of its input.
    "rms norm": (lambda: F.rms_norm(leaf(4, 8, dtype=torch.float16), (8,), leaf(8, dtype=torch.float16)), 4 * 4),
    # The input alone, which is a leaf.
    "log-sigmoid": (lambda: F.logsigmoid(leaf(4, 8)), 0),
}


def test_saved_bytes() -> None:
    found = {name: saved_bytes(forward) for name, (forward, _) in SAVED.items()}
    assert found == {name: expected for name, (_, expected) in SAVED.items()}


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.5, False)])
def test_dropout_of_nothing_or_all_has_no_mask(p: float, training: bool) -> None:  # noqa: FBT001
    assert "native_dropout" not in operators(lambda: F.dropout(leaf(4, 100), p, training))


FLASH, EFFICIENT, CUDNN, MATH = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "bmm",
)


@pytest.mark.parametrize(
    ("capability", "dtype", "size", "expected"),
    [
        (ADA, torch.bfloat16, 64, FLASH),
        (HOPPER, torch.bfloat16, 64, CUDNN),
        (HOPPER, torch.float32, 64, EFFICIENT),
        (TURING, torch.float16, 64, EFFICIENT),
        (TURING, torch.bfloat16, 64, MATH),
        (ADA, torch.float16, 200, EFFICIENT),
        ((8, 0), torch.float16, 200, FLASH),
        (ADA, torch.float16, 320, EFFICIENT),
        (ADA, torch.float64, 64, MATH),
        (ADA, torch.float32, 61, MATH),
    ],
)
def test_attention_backend(capability: tuple[int, int], dtype: torch.dtype, size: int, expected: str) -> None:
    """Flash from 8.0 on, in 16 bits and up to 256 a head; cuDNN first on Hopper; on Ada no training beyond 192."""
    taken = operators(lambda: attention(dtype, size), capability)
    assert next(name for name in taken if name in {FLASH, EFFICIENT, CUDNN, MATH}) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float16, "cudnn_batch_norm"), (torch.bfloat16, "native_batch_norm")]
)
def test_batch_norm_keeps_statistics_in_float32(dtype: torch.dtype, expected: str) -> None:
    """Mean and deviation of 8 channels, and as many buffers; cuDNN saves nothing else, and takes no bfloat16."""
    x, module = leaf(4, 8, 6, 6, dtype=dtype), nn.BatchNorm2d(8)
    assert saved_bytes(lambda: module(x)) == 2 * 8 * 4 + 2 * 8 * 4
    assert expected in operators(lambda: module(x))


@pytest.mark.parametrize(
    ("mode", "values", "layers", "directions", "expected"),
    [
        # 256, and of 5 x 3 x 13 = 195 values four gates: 3120 -> 3136, and a cell: 780 -> 800.
        (2, 195, 1, 1, 256 + 3136 + 800),
        # Of 390 values of two layers, gates 12480, cells 3120 -> 3136, what goes between the layers 1560 -> 1568.
        (2, 390, 2, 2, 256 + 12480 + 3136 + 1568),
        # Six values of 195: 4680 -> 4704.
        (3, 195, 1, 1, 256 + 4704),
    ],
)
def test_reserve_of_cudnn(mode: int, values: int, layers: int, directions: int, expected: int) -> None:
    """In multiples of 32 bytes by region, as cuDNN 9.24 answered."""
    assert reserve_bytes(mode, values, layers, directions, 4, has_dropout=False) == expected


def test_recurrent_layers_save_a_reserve() -> None:
    """Result 5 x 3 x 13 in float32, the first reserve above, initial states 2 x 3 x 13.

    With dropout between two layers, 24 bytes for each thread of an RTX 4090, 128 x 1536; masks of 195 bits: 32 bytes.
    """
    one, two, dropping = nn.LSTM(8, 13), nn.LSTM(8, 13, 2), nn.LSTM(8, 13, 2, dropout=0.2)
    found = [saved_bytes(lambda module=module: module(leaf(5, 3, 8))[0]) for module in (one, two, dropping)]  # type: ignore[misc]
    assert found[0] == 780 + 4192 + 2 * 156
    assert found[2] - found[1] == 128 * 1536 * 24 + 32


def test_autocast_of_cuda() -> None:
    weight, x = leaf(8, 8), leaf(4, 8)
    with as_cuda(ADA), torch.autocast("cuda", torch.bfloat16):
        y = x @ weight
        kinds = [each.dtype for each in (y, y.softmax(-1), F.layer_norm(y, (8,)), y + y, F.gelu(y), y.sum(), y.norm())]
    wide, narrow = torch.float32, torch.bfloat16
    assert kinds == [narrow, wide, wide, narrow, narrow, wide, wide]
    # Input and weight, of which the second product has the one cached; another context casts both again.
    weight, x = leaf(8, 8), leaf(4, 8)

    def run(times: int) -> None:
        for _ in range(times):
            with torch.autocast("cuda", torch.bfloat16):
                F.linear(F.linear(x, weight), weight)

    assert [operators(partial(run, times)).count("_to_copy") for times in (1, 2)] == [2, 4]
    # Autocast refuses what cuda refuses.
    x = leaf(4, 8)
    with (
        as_cuda(ADA),
        torch.autocast("cuda", torch.float16),
        pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"),
    ):
        F.binary_cross_entropy(x, x.detach())


def test_classes_are_scattered_but_compared_for_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    indices = torch.zeros(6, dtype=torch.long)
    names = [each for each in operators(lambda: F.one_hot(indices, 4)) if each != "prim::device"]
    assert names == ["zeros", "unsqueeze", "scatter_.value"]
    monkeypatch.setattr(OperatorMode, "is_compiled", True)
    assert "eq.Tensor" in operators(lambda: F.one_hot(indices, 4))


def test_optimizers_use_foreach_by_default() -> None:
    weight = leaf(8, 8)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        weight.grad = torch.zeros(8, 8)
        optimizer.step()

    assert "_foreach_add_.List" in operators(step)


def test_pytorch_is_restored() -> None:
    x = leaf(4, 8)
    with as_cuda(ADA):
        F.dropout(x, 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        assert F.linear(x, x).softmax(-1).dtype == torch.bfloat16
    assert not torch.optim.SGD([x], lr=0.1).param_groups[0]["foreach"]
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::dropout", "AutogradCPU")  # noqa: SLF001


def test_lists_of_the_header_are_read() -> None:
    text = (
        "#define AT_FORALL_FP32(_) \\\n  _(acos)  \\\n  _(pow, Scalar)\n\n"
        "#define AT_FORALL_PROMOTE(_) \\\n  _(dot)\n\n#else"
    )
    assert operators_of(text, "FP32") == ("acos", "pow.Scalar")
    assert operators_of(text, "PROMOTE") == ("dot",)
    with pytest.raises(ValueError, match="no list AT_FORALL_OTHER"):
        operators_of(text, "OTHER")
