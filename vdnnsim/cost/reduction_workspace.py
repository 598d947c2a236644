"""What PyTorch takes to add up the rows of a matrix, as for the gradient of a bias: partial sums of many blocks.

A thread adds up values of `vector` columns; a block is 32 wide and so many rows high that it has 512 / vector threads.
Where a thread would have 256 values or more, and the blocks do not fill the GPU, the rows are dealt out to several
blocks, until each thread has 16 values or the GPU is full. Their sums meet in memory, one for each thread of a row:

    bytes = 4 x columns x blocks to a column x 32 x vector

that is 75 MiB for the bias of a layer of 3,072 under 3,152 tokens on an RTX 4090, where the result has 12 KiB.

Source: github.com/pytorch/pytorch, aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, global_memory_size); to the
byte for 36 shapes under PyTorch 2.14 on a pretended RTX 4090. Threads of a multiprocessor: CUDA C++ Programming Guide.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

_SUM_BYTES: Final = 4
_THREADS: Final = 512
_WARP: Final = 32
_LARGEST_VECTOR: Final = 4
_LEAST_VALUES: Final = 16
_MOST_VALUES: Final = 256
_RESIDENT: Final = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Threads of a multiprocessor by compute capability, where they are not 2048."""


def sum_of_rows_bytes(
    x: Sequence[int], y: Sequence[int], multiprocessors: int, compute_capability: tuple[int, int]
) -> int:
    """Return what a sum over the leading dimensions of a contiguous tensor takes; 0 for sums over others.

    Args:
        x: sizes of the tensor.
        y: sizes of the result.
        multiprocessors: of the GPU.
        compute_capability: of the GPU.
    """
    columns, rows = prod(y), prod(x) // max(1, prod(y))
    if columns not in {prod(x[at:]) for at in range(1, len(x))} or columns == 1:
        return 0
    vector = next(each for each in (_LARGEST_VECTOR, 2, 1) if columns % each == 0)
    width = min(_power_of_two_below(columns // vector), _WARP)
    height = min(_power_of_two_below(rows), _THREADS // vector // width)
    width = min(_power_of_two_below(columns // vector), _THREADS // vector // height)
    values = -(-rows // height)
    grid = -(-columns // vector // width)
    resident = _RESIDENT.get(compute_capability, 2048)
    blocks = multiprocessors * (resident // (width * height))
    if values < _MOST_VALUES or grid > blocks:
        return 0
    parts = max(min(-(-blocks // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return _SUM_BYTES * columns * parts * width * vector if parts > 1 else 0


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number else 1
