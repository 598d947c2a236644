"""What PyTorch takes to add up rows: by hand, and as it took it on a pretended RTX 4090 of 128 multiprocessors."""

import pytest

from vdnnsim.cost.pytorch_workspace import sum_of_rows_bytes
from vdnnsim.units import MIB

ADA = (8, 9)


def test_the_gradient_of_a_bias_by_hand() -> None:
    """3,072 columns are 768 vectors of 4, 24 blocks of 32; rows are 3,152, of which 4 are added up at once.

    788 values a thread are 256 or more. 12 blocks of 128 threads on each of 128 multiprocessors are 1,536, 64 for each
    of the 24; but 788 values are 50 times 16. 4 B x 3,072 x 50 x 32 x 4.
    """
    assert sum_of_rows_bytes((3152, 3072), (1, 3072), 128, ADA) == 4 * 3072 * 50 * 128 == 75 * MIB


@pytest.mark.parametrize(
    ("x", "y", "taken"),
    [
        ((50176, 384), (1, 384), 96 * MIB),
        ((12544, 192), (1, 192), 18.375 * MIB),
        ((16, 512, 256), (1, 1, 256), 16 * MIB),
        ((8192, 49), (1, 49), 200_704),
    ],
)
def test_what_pytorch_took(x: tuple[int, ...], y: tuple[int, ...], taken: float) -> None:
    """Of 49 columns a vector is one, a block 32 wide and 16 high: 4 B x 49 x 32 blocks x 32."""
    assert sum_of_rows_bytes(x, y, 128, ADA) == taken


def test_few_rows_or_enough_columns_take_nothing() -> None:
    """256 rows are 64 values a thread; a million columns fill the GPU, each thread with 300 values."""
    assert sum_of_rows_bytes((256, 3072), (3072,), 128, ADA) == 0
    assert sum_of_rows_bytes((1200, 2**20), (2**20,), 128, ADA) == 0


def test_more_values_than_a_thread_may_have_are_dealt_out_even_on_a_full_gpu() -> None:
    """One multiprocessor has 16 blocks of 128 threads, as many as 2,048 columns; 8,192 rows are 2,048 values: 8."""
    assert sum_of_rows_bytes((8192, 2048), (2048,), 1, (8, 0)) == 4 * 2048 * 8 * 128


def test_sums_over_other_dimensions_are_not_known() -> None:
    assert sum_of_rows_bytes((16, 96, 56, 56), (1, 96, 1, 1), 128, ADA) == 0
    assert sum_of_rows_bytes((4096, 1), (1,), 128, ADA) == 0
