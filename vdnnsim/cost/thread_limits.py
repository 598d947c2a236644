"""What limits kernels of PyTorch beside bandwidth: threads that wait for their loads, or take one element at a time.

    batch normalization of maps that lie as N, C, H, W: one block of 512 threads for each channel, N H W / 512 loads
                    for each thread, one after the other; forward once, for the moments, backward twice, for the sums
                    and for dX. As many blocks run at once as multiprocessors hold. So does cuDNN's: our own of 128 x 32
                    x 149 x 149 in float16 takes 1.88 and 3.80 ms on an H200, that of 64 channels as long, and 2.1 and
                    4.2 ms by this.
    group normalization: one such block for each group of an image, backward for each channel, which sums alone; another
                    kernel, which broadcasts, reads all again and writes Y or dX.
    sum of rows     over several blocks: their parts meet in the L2, where the last block adds up parts / height in
                    each of its threads (`vdnnsim.cost.pytorch_workspace`).
    one element at a time: what broadcasts, turns a tensor around, or reads other types than it computes in does not
                    load words of 16 bytes, and computes an address for each element. So are the bias of a convolution,
                    casts to a wider type (to a narrower one loads words), and Y of PyTorch's own normalization. So
                    are maps in 16 bits that cuDNN turns around; in float32 DRAM limits those on an H100 as well.
                    Concatenations and upsampling take elements so, too.
    sectors         an element that lies apart from those of its block takes a sector of 32 bytes of its own from the L2
                    (`vdnnsim.dnn.kernel_work.Sectors`), and from DRAM, too, where the L2 is smaller than the window.
    windows         pooling looks at each element of each window, and finds its place; its gradients, and those of
                    upsampling, go through the windows of each element of dX.
    updates         Adam in one kernel computes a root and quotients for each parameter in float32: where states are
                    in 16 bits that takes longer than their traffic.

Source: github.com/pytorch/pytorch, aten/src/ATen/native/cuda: Normalization.cuh, group_norm_kernel.cu, Reduce.cuh,
CUDALoops.cuh, Copy.cu.
"""

from math import ceil, prod
from typing import Final

from vdnnsim.cost.table import KernelWork
from vdnnsim.dnn.operator import Arithmetic

_DRAM_LATENCY_S: Final = 690 / 1.83e9
"""Of a GH200, 690 cycles, at the clock of its tensor peak; an RTX 4090 takes 0.25 us, a B200 0.45 us
(latency/README.md in https://github.com/markdewing/AI_kernels)."""
_L2_STEP_S: Final = 0.25e-6
"""To add one part: our own sums of 8192 rows of 768 numbers on an H100 take 8 us more than a launch and their traffic,
in bfloat16 and in float32, in 32 steps."""
_ELEMENTS_PER_S: Final = 2.8e9
"""Of a multiprocessor: our own copy of 8 x 1024 x 12 x 64 numbers of bfloat16 that turns two dimensions around takes
17 us on an H100, beside a launch, where its traffic would take 8."""
_ELEMENTS_OF: Final = {
    "avg_pool2d_backward": 0.27e9,
    "max_pool2d_with_indices_backward": 0.68e9,
    "upsample_nearest2d_backward": 0.6e9,
    "_fused_adam_": 1.2e9,
    "_fused_adamw_": 1.2e9,
}
"""The same of operators that do more for each element: of dX, of upsampling of dY, of parameters, 2.36e9 of which our
own fused AdamW updates in 14.8 ms on an H200, in bfloat16. Our own profiled training
steps of Inception v3, ResNeSt-50d and HRNet-W64 on an H200, float16, in which gradients of average pooling take 32 to
54 elements a nanosecond in both layouts (3 x 3, stride 1 and 2; 38 in 2 x 2), of maximum pooling 75 to 142, most of
them 90, and of upsampling 78."""
_SECTOR_BYTES_PER_S: Final = 27e9
"""Of a multiprocessor, from and to the L2: in our own profiled step of ResNeSt-50d, N, H, W, C, sums, products and
gradients of ReLU on an H200 move 36 GB of sectors in 10 ms, each at 3.3 to 4.5 TB/s. On other cards assumed."""
_WINDOWED: Final = ("avg_pool2d", "max_pool2d_with_indices")
_WINDOWED_PER_S: Final = {False: 4.6e9, True: 2.8e9}
"""Elements of windows that a multiprocessor takes in pooling forward, by whether maps lie as N, H, W, C: in the same
steps 680 and 370 a nanosecond in average pooling of stride 1, 550 and 380 in maximum pooling."""
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


def threads_s(work: KernelWork, multiprocessors: int, *, channels_last: bool) -> float:
    """Return the seconds of the threads of a kernel that takes single elements or those of windows; 0 for others."""
    if work.sectors.window_bytes:
        return work.sectors.nbytes / (multiprocessors * _SECTOR_BYTES_PER_S)
    operator = work.name.removeprefix("aten.").partition(".")[0]
    if operator in _WINDOWED:
        return work.flop.get(Arithmetic.ELEMENTWISE, 0) / (multiprocessors * _WINDOWED_PER_S[channels_last])
    return work.elements / (multiprocessors * _ELEMENTS_OF.get(operator, _ELEMENTS_PER_S))
