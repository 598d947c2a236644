"""What is saved of fake tensors that are treated as CUDA's, in bytes that are derived by hand."""

from collections.abc import Callable, Iterator
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
    """Names of what is dispatched."""
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


def test_dropout_keeps_a_byte_for_each_element() -> None:
    """4 x 100 elements; the CPU keeps as many numbers of four bytes."""
    x = leaf(4, 100)
    assert saved_bytes(lambda: F.dropout(x, 0.1)) == 400


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.5, False)])
def test_dropout_of_nothing_or_all_has_no_mask(p: float, training: bool) -> None:  # noqa: FBT001
    x = leaf(4, 100)
    assert "native_dropout" not in operators(lambda: F.dropout(x, p, training))


def attention(dtype: torch.dtype = torch.float16, size: int = 64, **options: object) -> Callable[[], Tensor]:
    query, key, value = (leaf(2, 4, 100, size, dtype=dtype) for _ in range(3))
    return lambda: F.scaled_dot_product_attention(query, key, value, **options)  # type: ignore[arg-type]


def test_flash_attention_keeps_its_result_and_a_number_a_row() -> None:
    """2 x 4 x 100 x 64 of two bytes, 2 x 4 x 100 of four, and three numbers of eight of the random generator."""
    assert saved_bytes(attention()) == 102400 + 3200 + 24


def test_efficient_attention_keeps_rows_in_thirty_twos() -> None:
    """2 x 4 x 100 x 64 of four bytes, 2 x 4 x 128 of four, and two numbers of eight."""
    assert saved_bytes(attention(torch.float32)) == 204800 + 4096 + 16


def test_a_mask_of_truth_values_is_kept_as_numbers_in_aligned_rows() -> None:
    """100 rows of 104 of two bytes; beside what efficient attention keeps: 102400 + 4096 + 16."""
    mask = torch.ones(100, 100, dtype=torch.bool)
    assert saved_bytes(attention(attn_mask=mask)) == 20800 + 102400 + 4096 + 16


def test_heads_are_padded_to_eights() -> None:
    """Of 60 elements to 64: query, key, value and result, each 102400 bytes."""
    assert saved_bytes(attention(size=60)) == 4 * 102400 + 3200 + 24


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
def test_which_attention_is_taken(capability: tuple[int, int], dtype: torch.dtype, size: int, expected: str) -> None:
    """Flash from 8.0 on for 16 bits and up to 256 a head, cuDNN first on Hopper; on Ada no training beyond 192."""
    taken = operators(attention(dtype, size), capability)
    assert next(name for name in taken if name in {FLASH, EFFICIENT, CUDNN, MATH}) == expected


@pytest.mark.parametrize(
    ("dtype", "expected"), [(torch.float16, "cudnn_batch_norm"), (torch.bfloat16, "native_batch_norm")]
)
def test_batch_norm_keeps_statistics_in_float32(dtype: torch.dtype, expected: str) -> None:
    """Mean and deviation of 8 channels; cuDNN keeps nothing else, and takes no bfloat16. Buffers: 2 x 8 x 4 bytes."""
    x, module = leaf(4, 8, 6, 6, dtype=dtype), nn.BatchNorm2d(8)
    assert saved_bytes(lambda: module(x)) == 2 * 8 * 4 + 2 * 8 * 4
    assert expected in operators(lambda: module(x))


def test_layer_norm_keeps_statistics_in_float32() -> None:
    """Mean and deviation of 4 rows of float16."""
    x = leaf(4, 8, dtype=torch.float16)
    assert saved_bytes(lambda: F.layer_norm(x, (8,))) == 2 * 4 * 4


def test_rms_norm_is_one_operation() -> None:
    """It keeps the deviation of 4 rows; broken up, it would keep its input widened."""
    x, weight = leaf(4, 8, dtype=torch.float16), leaf(8, dtype=torch.float16)
    assert saved_bytes(lambda: F.rms_norm(x, (8,), weight)) == 4 * 4


def test_log_sigmoid_keeps_its_input_alone() -> None:
    x = leaf(4, 8)
    assert saved_bytes(lambda: F.logsigmoid(x)) == 0


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


def test_recurrent_layers_keep_a_reserve() -> None:
    """Result 5 x 3 x 13 of four bytes, the reserve of the case above, and the states that begin it, 2 x 3 x 13."""
    module = nn.LSTM(8, 13)
    x = leaf(5, 3, 8)
    assert saved_bytes(lambda: module(x)[0]) == 780 + 4192 + 2 * 156


def test_random_states_of_dropout_between_layers_are_kept() -> None:
    """24 bytes for each thread: an RTX 4090 has 128 multiprocessors of 1536; masks of 195 bits are 32 bytes."""
    plain, dropping = nn.LSTM(8, 13, 2), nn.LSTM(8, 13, 2, dropout=0.2)
    x = leaf(5, 3, 8)
    more = saved_bytes(lambda: dropping(x)[0]) - saved_bytes(lambda: plain(x)[0])
    assert more == 128 * 1536 * 24 + 32


def test_autocast_of_cuda_widens_softmax_and_narrows_products() -> None:
    weight, x = leaf(8, 8), leaf(4, 8)
    with as_cuda(ADA), torch.autocast("cuda", torch.bfloat16):
        y = x @ weight
        kinds = [each.dtype for each in (y, y.softmax(-1), F.layer_norm(y, (8,)), y + y, F.gelu(y), y.sum(), y.norm())]
    wide, narrow = torch.float32, torch.bfloat16
    assert kinds == [narrow, wide, wide, narrow, narrow, wide, wide]


def test_autocast_casts_a_weight_once() -> None:
    weight, x = leaf(8, 8), leaf(4, 8)

    def twice() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            F.linear(F.linear(x, weight), weight)

    # Input and weight; the result of the first is narrow.
    assert operators(twice).count("_to_copy") == 2


def test_casts_end_with_the_outermost_autocast() -> None:
    weight, x = leaf(8, 8), leaf(4, 8)

    def twice() -> None:
        for _ in range(2):
            with torch.autocast("cuda", torch.bfloat16):
                F.linear(x.detach(), weight)

    assert operators(twice).count("_to_copy") == 4


def test_autocast_refuses_what_cuda_refuses() -> None:
    x = leaf(4, 8)
    with (
        as_cuda(ADA),
        torch.autocast("cuda", torch.float16),
        pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"),
    ):
        F.binary_cross_entropy(x, x.detach())


def test_optimizers_take_lists_by_default() -> None:
    weight = leaf(8, 8)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step() -> None:
        weight.grad = torch.zeros(8, 8)
        optimizer.step()

    assert "_foreach_add_.List" in operators(step)


def test_nothing_remains_of_it() -> None:
    """After it PyTorch dispatches for the CPU again."""
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
