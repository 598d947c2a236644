"""Shapes without data, where PyTorch's own are not those of its kernels."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vdnnsim
from calibration.capture.fake_tensors import FakeTensors
from vdnnsim.errors import CaptureError

aten = torch.ops.aten


def test_results_that_are_known_are_as_computed_ones() -> None:
    """A sum, views in the memory of an argument, an update in place and a pair: the second call looks them up."""
    with FakeTensors():
        for call in (
            lambda x: x + 1,
            lambda x: x.T[1:],
            lambda x: x.add_(1),
            lambda x: aten._unsafe_view(x, [32]),  # noqa: SLF001 - as autograd calls it
            lambda x: torch.stack(aten.native_dropout(x, 0.5, train=True)),
        ):
            given = [torch.empty(4, 8) for _ in range(3)]
            first, *others = [call(each) for each in given]
            for x, y in zip(given[1:], others, strict=True):
                assert (y.shape, y.stride(), y.storage_offset()) == (
                    first.shape,
                    first.stride(),
                    first.storage_offset(),
                )
                assert (y.dtype, y.device) == (first.dtype, first.device)
                assert (y is x) is (first is given[0])
                is_view = first.untyped_storage()._cdata == given[0].untyped_storage()._cdata  # noqa: SLF001
                assert (y.untyped_storage()._cdata == x.untyped_storage()._cdata) is is_view  # noqa: SLF001
                assert vars(y).keys() == vars(first).keys()


def test_what_begins_elsewhere_in_its_storage_has_views_there_and_other_results_alike() -> None:
    """Rows 0 to 3 and 4 to 7 of an 8 x 8 table begin 0 and 32 elements behind it; sums are tensors of their own."""
    with FakeTensors():
        table = torch.empty(8, 8)
        halves = table[:4], table[4:]
        assert [each.t().storage_offset() for each in halves] == [0, 32]
        assert [(each + 1).storage_offset() for each in halves] == [0, 0]


def layer_norm(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    _, mean, deviation = aten.native_layer_norm(x, [8], weight, weight, 1e-5)
    return aten.native_layer_norm_backward(gradient, x, [8], mean, deviation, weight, weight, [True] * 3)[0]  # type: ignore[no-any-return]


def group_norm(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    _, mean, deviation = aten.native_group_norm(x, weight, weight, 2, 8, 8, 2, 1e-5)
    return aten.native_group_norm_backward(gradient, x, mean, deviation, weight, 2, 8, 8, 2, [True] * 3)[0]  # type: ignore[no-any-return]


def batch_norm(x: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    training = True
    _, mean, deviation = aten.native_batch_norm(x, weight, weight, None, None, training, 0.1, 1e-5)
    of, kept = (gradient, x, weight, None, None), (mean, deviation, training, 1e-5, [True] * 3)
    return aten.native_batch_norm_backward(*of, *kept)[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("normalize", [layer_norm, group_norm, batch_norm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_a_normalized_input_has_its_type_and_layout(
    normalize: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype
) -> None:
    def made() -> Tensor:
        gradient = torch.randn(8, 8, 2, dtype=dtype).transpose(0, 2)
        return normalize(torch.randn(2, 8, 8, dtype=dtype), gradient, torch.ones(8))

    with FakeTensors():
        fake = made()
    real = made()
    assert (fake.dtype, fake.stride()) == (real.dtype, real.stride()) == (dtype, (64, 8, 1))


def test_grouped_products_of_every_type() -> None:
    """6 rows in two groups, each by a matrix of its own, 16 x 32."""

    def made() -> Tensor:
        rows, matrices = torch.randn(6, 16), torch.randn(2, 16, 32)
        return torch._grouped_mm(rows, matrices, offs=torch.tensor([2, 6], dtype=torch.int32))  # noqa: SLF001

    with FakeTensors():
        fake = made()
    assert (tuple(fake.shape), fake.dtype) == ((6, 32), torch.float32) == (tuple(made().shape), made().dtype)


class Positions(nn.Module):
    """Adds a vector for each of at most eight positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(10, 4), nn.Embedding(8, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return result


@pytest.mark.parametrize(("length", "largest"), [(8, 9), (9, 9), (8, 10)])
def test_rows_that_a_table_lacks_are_missing_without_memory_too(length: int, largest: int) -> None:
    """Of eight positions and ten tokens."""
    ids = torch.full((2, length), largest)
    if (length, largest) == (8, 9):
        assert vdnnsim.capture(Positions, ids).parameters == 72
        return
    with pytest.raises(IndexError):
        Positions()(ids)
    with pytest.raises(CaptureError, match="index out of range in self"):
        vdnnsim.capture(Positions, ids)
