"""Workspaces of the convolutions that cuDNN's heuristics name first, by hand and as PyTorch took them."""

from functools import partial

import msgspec
import pytest

from vdnnsim.cost.pytorch_workspace import A100, H100, chosen_workspaces, sum_of_rows
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.units import KIB, MIB, ElementType

WIDE_TYPE, NARROW = ElementType.FLOAT32, ElementType.BFLOAT16
TYPES = {4: WIDE_TYPE, 2: NARROW}
BOTH = ("input", "weight")


def work(c: int, side: int, k: int, window: int = 3, n: int = 16, **changes: object) -> ConvolutionWork:
    pad = window // 2
    square = ConvolutionWork(n, c, k, (side, side), (window, window), (1, 1), (pad, pad), (1, 1), 1)
    return msgspec.structs.replace(square, **changes)


# 16 images of 64 channels of 56 x 56 are 12.25 MiB in float32, filters of 3 x 3 0.140625 MiB.
PLAIN, X, W = partial(work, 64, 56, 64), 12.25 * MIB, 0.140625 * MIB


@pytest.mark.parametrize(
    ("convolution", "element_bytes", "expected"),
    [
        # Forward copies what it reads; PyTorch took 12.39111 MiB, 512 B more.
        (PLAIN(), 4, (X + W,)),
        # In bfloat16 it copies what it writes, too; PyTorch took 12.3208 MiB forward.
        (PLAIN(), 2, (X + W / 2,)),
        (PLAIN(computes=BOTH), 2, (X + W / 2, X)),
        # X and dY of 1.53125 MiB and twice dW of 9 MiB, after dY and W; PyTorch took 21.064 MiB at most.
        (work(512, 7, 512, computes=BOTH), 4, (10.53125 * MIB, 21.0625 * MIB)),
        (work(512, 7, 512, computes=("input",)), 4, (10.53125 * MIB,)),
        (work(512, 7, 512, computes=("weight",)), 4, (21.0625 * MIB,)),
        (work(512, 7, 512, computes=("bias",)), 4, (0,)),
        # A filter of one pixel is not copied in 16 bits: X of 1 MiB and Y of 2 MiB.
        (work(128, 16, 256, window=1), 2, (3 * MIB,)),
        # Images: forward finds three channels, fewer than a word, and copies nothing; dW has X with 4 or 8.
        *((work(3, 64, 64), element_bytes, (0,)) for element_bytes in (2, 4)),
        (work(3, 64, 64, computes=("weight",)), 4, (16 * 64 * 64 * 4 * (4 + 64) + 2 * 4 * 64 * 3 * 9,)),
        (work(3, 64, 64, computes=("weight",)), 2, (16 * 64 * 64 * 2 * (8 + 64),)),
        # Few channels, depthwise filters and channels last are not copied; dW of the latter is added up twice.
        (work(32, 56, 16), 4, (0,)),
        (PLAIN(groups=64, computes=BOTH), 4, (0, 0)),
        (PLAIN(channels_last=True), 4, (0,)),
        (PLAIN(channels_last=True, computes=BOTH), 4, (0, 2 * W)),
        # 2 x 2 filters with stride 2 transposed make 8 x 8 of 4 x 4: X of 16 pixels, Y of 64.
        (
            ConvolutionWork(1, 64, 64, (4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 1, transposed=True),
            *(2, (2 * 64 * (16 + 64) + 2 * 64 * 64 * 4,)),
        ),
    ],
)
def test_workspaces_of_most_cards(
    convolution: ConvolutionWork, element_bytes: int, expected: tuple[float, ...]
) -> None:
    """The same in 16 bits on an A100."""
    assert chosen_workspaces(convolution, TYPES[element_bytes]) == expected
    if element_bytes == 2:
        assert chosen_workspaces(convolution, NARROW, A100) == expected


@pytest.mark.parametrize("capability", [A100, H100])
def test_an_a100_and_an_h100_copy_in_float32_what_the_data_gradient_writes(capability: tuple[int, int]) -> None:
    """32 images of 64 channels of 32 x 32 are 8 MiB, W 0.140625: forward X and W, dX from dY, W and dX."""
    forward, data = work(64, 32, 64, n=32), work(64, 32, 64, n=32, computes=("input",))
    assert chosen_workspaces(forward, WIDE_TYPE, capability) == (8.140625 * MIB,)
    assert chosen_workspaces(data, WIDE_TYPE, capability) == (16.140625 * MIB,)
    assert chosen_workspaces(data, WIDE_TYPE, (8, 9)) == chosen_workspaces(data, WIDE_TYPE) == (8.140625 * MIB,)


# ConvNeXt's second stage: 16 images of 128 channels of 14 x 14 under 7 x 7 are 1.53125 MiB; PyTorch took 12.25 X.
WIDE = partial(work, 128, 14, 128, 7, channels_last=True, computes=BOTH)
STRIDED = partial(ConvolutionWork, 16, output_channels=96, input_size=(32, 32), kernel=(1, 1), stride=(2, 2))
OVER = partial(STRIDED, padding=(0, 0), dilation=(1, 1), groups=1, computes=BOTH)


@pytest.mark.parametrize(
    ("convolution", "units", "expected"),
    [
        # DW of 64 channels under windows of 3 x 3 is 576 numbers long: five tiles of 128, for 256 outputs twice. There
        # are 16 x 32 x 32 pixels, enough for 64 parts. X is 4 MiB, Y as much for every 64 channels.
        (work(64, 32, 64, computes=("weight",)), 108, (8 * MIB + 21 * W,)),
        (work(64, 32, 64, computes=("weight",)), 2, (8 * MIB,)),
        (work(64, 32, 256, computes=("weight",)), 108, (20 * MIB + 10 * 4 * W,)),
        # Two images of 16 x 16 make two parts of 256 pixels; X and Y are 0.125 MiB.
        (work(64, 16, 64, n=2, computes=("weight",)), 108, (0.25 * MIB + 2 * W,)),
        # 32 channels of 64 x 64 are 8 MiB, W of two groups 18,432 B: Y is copied, too. Of three channels nothing is.
        (work(32, 64, 32, groups=2), 1, (16 * MIB + 18_432,)),
        (work(3, 64, 64, computes=BOTH), 1, (0, 0)),
        # Y is copied where channels are fewer than 32 or not 16 x n, unless the window is one pixel.
        (work(16, 32, 16), 1, (2 * MIB + 4 * 16 * 16 * 9,)),
        (work(32, 32, 40), 1, (4.5 * MIB + 4 * 32 * 40 * 9,)),
        (work(32, 32, 48), 1, (2 * MIB + 4 * 32 * 48 * 9,)),
        # Nothing for small data gradients, nor for dW of pixels left out, but where channels fill 64.
        (work(32, 64, 64, computes=("input",)), 1, (0,)),
        (OVER(input_channels=48), 1, (16 * 4 * (48 * 32 * 32 + 96 * 16 * 16) + 4 * 48 * 96, 0)),
        (
            OVER(input_channels=64, computes=("weight",)),
            *(1, (16 * 4 * (64 * 32 * 32 + 96 * 16 * 16) + 4 * 64 * 96,)),
        ),
        # Wide depthwise filters channels last take 8 X for dW: not of 64 channels, 5 x 5, ten images, or N, C, H, W.
        (WIDE(groups=128), 1, (0, 8 * 1.53125 * MIB)),
        (WIDE(groups=128, computes=()), 1, (0,)),
        (WIDE(groups=64, input_channels=64, output_channels=64), 1, (0, 0)),
        (WIDE(groups=128, kernel=(5, 5), padding=(2, 2)), 1, (0, 0)),
        (WIDE(groups=128, n=10), 1, (0, 0)),
        (WIDE(groups=128, channels_last=False), 1, (0, 0)),
        # 96 channels of a pixel, which do not fill 64, are read in place at 16 to 127 images; X is 24 KiB an image.
        *((work(96, 8, 64, window=1, n=n), 1, (n * 24 * KIB + 4 * 96 * 64,)) for n in (15, 128)),
        *((work(96, 8, 64, window=1, n=n), 1, (0,)) for n in (16, 127)),
        (work(64, 8, 64, window=1), 1, (16 * 16 * KIB + 4 * 64 * 64,)),
        # Channels last are copied, too; in two groups W is half as large, and what is written is copied.
        (PLAIN(channels_last=True), 1, (X + W,)),
        (PLAIN(channels_last=True, computes=BOTH), 108, (X + W, 2 * X + 21 * W)),
        (PLAIN(channels_last=True, groups=2), 1, (2 * X + W / 2,)),
        (PLAIN(channels_last=True, groups=2, computes=BOTH), 60, (2 * X + W / 2, 2 * X + 10 * W / 2)),
    ],
)
def test_workspaces_of_an_a100_in_float32(
    convolution: ConvolutionWork, units: int, expected: tuple[float, ...]
) -> None:
    assert chosen_workspaces(convolution, WIDE_TYPE, A100, units) == expected


@pytest.mark.parametrize(
    ("channels", "window", "element_type", "taken"),
    [
        (128, 7, ElementType.BFLOAT16, 3_211_264),
        (128, 7, ElementType.FLOAT16, 3_211_264),
        (40, 7, ElementType.BFLOAT16, 1_605_632),
        (128, 3, ElementType.BFLOAT16, 589_824),
        (128, 3, ElementType.FLOAT16, 0),
        (128, 9, ElementType.BFLOAT16, 0),
    ],
)
def test_depthwise_weights_are_summed_over_eighths_of_images(
    channels: int, window: int, element_type: ElementType, taken: int
) -> None:
    """16 images of 56 x 56 make 128 sums of 4 B for each weight; 40 channels count as 64. What else is taken is 0 here.

    What PyTorch took on a pretended H100 and RTX 4090, but for 3 x 3 in float16 (78 sums) and 9 x 9.
    """
    last = work(channels, 56, channels, window, groups=channels, channels_last=True, computes=BOTH)
    assert chosen_workspaces(last, element_type) == chosen_workspaces(last, element_type, A100) == (0, taken)


def test_an_h100_differs_from_an_a100() -> None:
    """It copies nothing channels last, and does not read pixels in place; elsewhere groups of few channels are free."""
    last = PLAIN(channels_last=True, computes=BOTH)
    assert chosen_workspaces(last, WIDE_TYPE, H100, 108) == chosen_workspaces(last, WIDE_TYPE) == (0, 2 * W)
    assert chosen_workspaces(work(16, 32, 16, window=1), WIDE_TYPE, H100) == (MIB + 4 * 16 * 16,)
    assert chosen_workspaces(WIDE(groups=128), WIDE_TYPE, H100) == (0, 0)
    assert chosen_workspaces(work(32, 64, 32, groups=2), WIDE_TYPE) == (0,)


@pytest.mark.parametrize(
    ("x", "y", "taken"),
    [
        # 3,072 columns are 768 vectors of 4, 24 blocks of 32; rows are 3,152, of which 4 are added up at once. 788
        # values a thread are 256 or more. 12 blocks of 128 threads on each of 128 multiprocessors are 1,536, 64 for
        # each of the 24; but 788 values are 50 times 16: 4 B x 3,072 x 50 x 32 x 4.
        ((3152, 3072), (1, 3072), 75 * MIB),
        ((50176, 384), (1, 384), 96 * MIB),
        ((12544, 192), (1, 192), 18.375 * MIB),
        ((16, 512, 256), (1, 1, 256), 16 * MIB),
        ((8192, 49), (1, 49), 200_704),
        # 256 rows are 64 values a thread; a million columns fill the GPU, each thread with 300 values.
        ((256, 3072), (3072,), 0),
        ((1200, 2**20), (2**20,), 0),
        # Sums over other dimensions are not known.
        ((16, 96, 56, 56), (1, 96, 1, 1), 0),
        ((4096, 1), (1,), 0),
    ],
)
def test_sums_take_what_pytorch_took(x: tuple[int, ...], y: tuple[int, ...], taken: float) -> None:
    """Of 49 columns a vector is one, a block 32 wide and 16 high: 4 B x 49 x 32 blocks x 32.

    More values than a thread may have are dealt out even on a full GPU: one multiprocessor has 16 blocks of 128
    threads, as many as 2,048 columns; 8,192 rows are 2,048 values: 8, of which each of the 4 rows of a block adds 2.
    """
    assert sum_of_rows(x, y, 128, (8, 9)).nbytes == taken
    assert sum_of_rows((8192, 2048), (2048,), 1, A100) == (4 * 2048 * 8 * 128, 2)
