"""What limits kernels of PyTorch beside bandwidth: threads that wait for their loads, or take one element at a time.

    batch normalization of PyTorch's own (not cuDNN's), of maps that lie as N, C, H, W: one block of 512 threads for
                    each channel, N H W / 512 loads for each thread, one after the other; forward once, for the moments,
                    backward twice, for the sums and for dX. As many blocks run at once as multiprocessors hold.
    group normalization: one such block for each group of an image, backward for each channel, which sums alone; another
                    kernel, which broadcasts, reads all again and writes Y or dX.
    sum of rows     over several blocks: their parts meet in the L2, where the last block adds up parts / height in
                    each of its threads (`vdnnsim.cost.pytorch_workspace`).
    one element at a time: what broadcasts, turns a tensor around, or reads other types than it computes in does not
                    load words of 16 bytes, and computes an address for each element. So are the bias of a convolution,
                    casts to a wider type (to a narrower one loads words), and Y of PyTorch's own normalization. So
                    are maps in 16 bits that cuDNN turns around; in float32 DRAM limits those on an H100 as well.

Source: github.com/pytorch/pytorch, aten/src/ATen/native/cuda: Normalization.cuh, group_norm_kernel.cu, Reduce.cuh,
CUDALoops.cuh, Copy.cu.
"""

from math import ceil, prod
from typing import Final

_DRAM_LATENCY_S: Final = 690 / 1.83e9
"""Of a GH200, 690 cycles, at the clock of its tensor peak; an RTX 4090 takes 0.25 us, a B200 0.45 us
(latency/README.md in https://github.com/markdewing/AI_kernels)."""
_L2_STEP_S: Final = 0.25e-6
"""To add one part: our own sums of 8192 rows of 768 numbers on an H100 take 8 us more than a launch and their traffic,
in bfloat16 and in float32, in 32 steps."""
_ELEMENTS_PER_S: Final = 2.8e9
"""Of a multiprocessor: our own copy of 8 x 1024 x 12 x 64 numbers of bfloat16 that turns two dimensions around takes
17 us on an H100, beside a launch, where its traffic would take 8."""
_THREADS: Final = 512
_BLOCKS: Final = 4
"""Blocks of 512 threads that a multiprocessor holds."""


def normalization_wait_s(sizes: tuple[int, ...], multiprocessors: int, *, is_gradient: bool) -> float:
    """Return what PyTorch's own batch normalization of a map waits; `sizes` are those of N, C and its space."""
    loads = ceil(prod(sizes) / sizes[1] / _THREADS)
    turns = ceil(sizes[1] / (multiprocessors * _BLOCKS))
    return (1 + is_gradient) * turns * loads * _DRAM_LATENCY_S


def group_normalization_wait_s(elements: float, multiprocessors: int) -> float:
    """Return what the sums of a group normalization wait, of more groups than blocks run at once."""
    return elements / (multiprocessors * _BLOCKS * _THREADS) * _DRAM_LATENCY_S


def joined_sum_wait_s(parts: int) -> float:
    """Return what the last block of a sum of rows waits, which adds up so many parts in each thread."""
    return parts * _L2_STEP_S


def single_elements_s(elements: float, multiprocessors: int) -> float:
    """Return the seconds in which threads take so many elements, one at a time."""
    return elements / (multiprocessors * _ELEMENTS_PER_S)
