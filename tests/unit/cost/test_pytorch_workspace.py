"""Workspaces of the convolutions that cuDNN's heuristics name first, by hand and beside what PyTorch took."""

from dataclasses import dataclass

import msgspec
import pytest

from vdnnsim.cost.pytorch_workspace import A100, H100, chosen_workspaces, sum_of_rows_bytes
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.units import KIB, MIB

BACKWARD = ("input", "weight")


def work(c: int, side: int, k: int, window: int = 3, n: int = 16) -> ConvolutionWork:
    """A square convolution that keeps the size."""
    pad = window // 2
    return ConvolutionWork(n, c, k, (side, side), (window, window), (1, 1), (pad, pad), (1, 1), 1)


@dataclass(frozen=True)
class Sizes:
    """Of 16 images of 64 channels of 56 x 56, and filters of 3 x 3, by bytes of an element."""

    element: int

    @property
    def x(self) -> int:
        return 16 * 64 * 56 * 56 * self.element

    @property
    def w(self) -> int:
        return 64 * 64 * 9 * self.element


def test_float32_forward_copies_what_it_reads() -> None:
    """12.25 MiB of X and 0.140625 of W; PyTorch took 12.39111 MiB, 512 B more."""
    sizes = Sizes(4)
    assert chosen_workspaces(work(64, 56, 64), 4) == (sizes.x + sizes.w,) == (12.390625 * MIB,)


def test_bfloat16_copies_what_it_writes_too() -> None:
    """6.125 MiB of X and Y each, 0.0703125 of W, either way; PyTorch took 12.3208 MiB forward."""
    sizes = Sizes(2)
    assert chosen_workspaces(work(64, 56, 64), 2) == (2 * sizes.x + sizes.w,) == (12.3203125 * MIB,)
    backward = msgspec.structs.replace(work(64, 56, 64), computes=BACKWARD)
    assert chosen_workspaces(backward, 2) == (2 * sizes.x + sizes.w, 2 * sizes.x)


def test_of_a_backward_the_weight_gradient_takes_most_in_float32() -> None:
    """X and dY of 1.53125 MiB and twice dW of 9 MiB, after dY and W; PyTorch took 21.064 MiB at most."""
    backward = msgspec.structs.replace(work(512, 7, 512), computes=BACKWARD)
    data, weights = chosen_workspaces(backward, 4)
    assert (data, weights) == ((1.53125 + 9) * MIB, (2 * 1.53125 + 2 * 9) * MIB)
    for gradient, taken in (("input", data), ("weight", weights)):
        assert chosen_workspaces(msgspec.structs.replace(backward, computes=(gradient,)), 4) == (taken,)
    assert chosen_workspaces(msgspec.structs.replace(backward, computes=("bias",)), 4) == (0,)


def test_filters_of_one_pixel_are_not_copied_in_16_bits() -> None:
    """X of 1 MiB and Y of 2 MiB: 16 images of 16 x 16 with 128 and 256 channels."""
    assert chosen_workspaces(work(128, 16, 256, window=1), 2) == (3 * MIB,)


@pytest.mark.parametrize(("element_bytes", "channels"), [(4, 4), (2, 8)])
def test_channels_of_images_fill_a_word(element_bytes: int, channels: int) -> None:
    """Forward finds three channels, fewer than a word, and copies nothing; dW has X of 64 x 64 with 4 or 8."""
    images = work(3, 64, 64)
    assert chosen_workspaces(images, element_bytes) == (0,)
    weights = msgspec.structs.replace(images, computes=("weight",))
    sums = 2 * 4 * 64 * 3 * 9 if element_bytes == 4 else 0
    maps = 16 * 64 * 64 * element_bytes * (channels + 64)
    assert chosen_workspaces(weights, element_bytes) == (maps + sums,)


def test_what_has_few_channels_is_depthwise_or_lies_so_already_copies_nothing() -> None:
    """Channels last, dW of 64 x 64 x 9 is added up twice."""
    assert chosen_workspaces(work(32, 56, 16), 4) == (0,)
    depthwise = msgspec.structs.replace(work(64, 56, 64), groups=64, computes=BACKWARD)
    assert chosen_workspaces(depthwise, 4) == (0, 0)
    last = msgspec.structs.replace(work(64, 56, 64), channels_last=True)
    assert chosen_workspaces(last, 4) == (0,)
    assert chosen_workspaces(msgspec.structs.replace(last, computes=BACKWARD), 4) == (0, 2 * Sizes(4).w)


def test_a_transposed_convolution_has_the_larger_map_behind_it() -> None:
    """2 x 2 filters with stride 2 make 8 x 8 of 4 x 4: X of 16 KiB a 64 channels and image, Y four times as much."""
    up = ConvolutionWork(1, 64, 64, (4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 1, transposed=True)
    assert chosen_workspaces(up, 2) == (2 * 64 * (16 + 64) + 2 * 64 * 64 * 4,)


@pytest.mark.parametrize("capability", [A100, H100])
def test_an_a100_and_an_h100_copy_in_float32_what_the_data_gradient_writes(capability: tuple[int, int]) -> None:
    """32 images of 64 channels of 32 x 32 are 8 MiB, W 0.140625: forward X and W, dX from dY, W and dX."""
    forward = work(64, 32, 64, n=32)
    data = msgspec.structs.replace(forward, computes=("input",))
    assert chosen_workspaces(forward, 4, capability) == (8.140625 * MIB,)
    assert chosen_workspaces(data, 4, capability) == (16.140625 * MIB,)
    assert chosen_workspaces(data, 4, (8, 9)) == chosen_workspaces(data, 4) == (8.140625 * MIB,)


@pytest.mark.parametrize(
    ("k", "units", "parts"),
    [(64, 108, 21), (64, 2, 0), (256, 108, 10)],
    ids=["five tiles share 108", "of fewer units than tiles", "ten tiles share 108"],
)
def test_an_a100_adds_up_so_many_parts_of_dw_as_fill_it(k: int, units: int, parts: int) -> None:
    """DW of 64 channels under windows of 3 x 3 is 576 numbers long: five tiles of 128, for 256 outputs twice.

    There are 16 x 32 x 32 pixels, enough for 64 parts. X is 4 MiB, Y as much for every 64 channels.
    """
    weights = msgspec.structs.replace(work(64, 32, k), computes=("weight",))
    assert chosen_workspaces(weights, 4, A100, units) == (4 * MIB * (1 + k // 64) + parts * 4 * 64 * k * 9,)


def test_each_part_of_dw_has_256_pixels() -> None:
    """Two images of 16 x 16 make two parts, for all that 21 would fill an A100; X and Y are 0.125 MiB."""
    weights = msgspec.structs.replace(work(64, 16, 64, n=2), computes=("weight",))
    assert chosen_workspaces(weights, 4, A100, 108) == (0.25 * MIB + 2 * 4 * 64 * 64 * 9,)


def test_an_a100_copies_few_channels_and_in_groups_what_forward_writes() -> None:
    """16 images of 32 channels of 64 x 64 are 8 MiB, W of two groups 2 x 16 x 16 x 9 numbers: 18,432 B.

    Of three channels, fewer than a word of four, nothing is copied, nor is the sum of dW.
    """
    groups = msgspec.structs.replace(work(32, 64, 32), groups=2)
    assert chosen_workspaces(groups, 4, A100) == (16 * MIB + 18_432,)
    assert chosen_workspaces(groups, 4) == (0,)
    images = msgspec.structs.replace(work(3, 64, 64), computes=BACKWARD)
    assert chosen_workspaces(images, 4, A100) == (0, 0)


@pytest.mark.parametrize(("c", "k"), [(16, 16), (32, 40)])
def test_an_a100_copies_what_forward_writes_where_channels_are_few_or_odd(c: int, k: int) -> None:
    """Fewer than 32 of one map, or none of 16 x n; not where both maps have words of channels, nor of one pixel."""
    x, y = (16 * each * 32 * 32 * 4 for each in (c, k))
    assert chosen_workspaces(work(c, 32, k), 4, A100) == (x + y + 4 * c * k * 9,)
    assert chosen_workspaces(work(c, 32, k, window=1), 4, H100) == (x + 4 * c * k,)
    assert chosen_workspaces(work(32, 32, 48), 4, A100) == (16 * 32 * 32 * 32 * 4 + 4 * 32 * 48 * 9,)


def test_an_a100_copies_nothing_for_small_data_gradients_nor_for_dw_of_pixels_left_out() -> None:
    """Up to 32 channels of X and 64 of Y, under a window; filters of one pixel with a stride and 48 channels."""
    small = msgspec.structs.replace(work(32, 64, 64), computes=("input",))
    assert chosen_workspaces(small, 4, A100) == (0,)
    strided = ConvolutionWork(16, 48, 96, (32, 32), (1, 1), (2, 2), (0, 0), (1, 1), 1, computes=BACKWARD)
    data, weights = chosen_workspaces(strided, 4, A100, 1)
    assert (data, weights) == (16 * 4 * (48 * 32 * 32 + 96 * 16 * 16) + 4 * 48 * 96, 0)
    full = msgspec.structs.replace(strided, input_channels=64, computes=("weight",))
    assert chosen_workspaces(full, 4, A100, 1) == (16 * 4 * (64 * 32 * 32 + 96 * 16 * 16) + 4 * 64 * 96,)


def test_wide_depthwise_filters_take_eight_maps_on_an_a100() -> None:
    """ConvNeXt's second stage: 16 images of 128 channels of 14 x 14 under 7 x 7 are 1.53125 MiB; PyTorch took 12.25 X.

    Not forward, nor for dX, nor of 64 channels, of 5 x 5, of ten images, in 16 bits, or where maps lie as N, C, H, W.
    """
    wide = msgspec.structs.replace(work(128, 14, 128, 7), groups=128, channels_last=True, computes=BACKWARD)
    assert chosen_workspaces(wide, 4, A100) == (0, 8 * 1.53125 * MIB)
    assert chosen_workspaces(msgspec.structs.replace(wide, computes=()), 4, A100) == (0,)
    few = msgspec.structs.replace(wide, input_channels=64, output_channels=64, groups=64)
    narrow = msgspec.structs.replace(wide, kernel=(5, 5), padding=(2, 2))
    for other in (
        few,
        narrow,
        *(msgspec.structs.replace(wide, **each) for each in ({"batch_size": 10}, {"channels_last": False})),
    ):
        assert chosen_workspaces(other, 4, A100) == (0, 0)
    assert chosen_workspaces(wide, 2, A100) == chosen_workspaces(wide, 4, H100) == (0, 0)


def test_an_a100_reads_the_channels_of_a_pixel_where_they_lie_at_middle_batches() -> None:
    """Of 96 channels, which do not fill 64, at 16 to 127 images; X of 8 x 8 is 24 KiB an image."""
    pixels = {n: chosen_workspaces(work(96, 8, 64, window=1, n=n), 4, A100) for n in (15, 16, 127, 128)}
    copied = {n: (n * 24 * KIB + 4 * 96 * 64,) for n in (15, 128)}
    assert pixels == {**copied, 16: (0,), 127: (0,)}
    assert chosen_workspaces(work(64, 8, 64, window=1), 4, A100) == (16 * 16 * KIB + 4 * 64 * 64,)


def test_an_a100_copies_channels_last_too() -> None:
    """X and dY of 12.25 MiB, W of 144 KiB; for dW of 576 x 64 five tiles, 21 parts of which fill 108. An H100 does not.

    In two groups W is half as large, and what is written is copied, too; of ten tiles there are ten parts.
    """
    x, w = 12.25 * MIB, 144 * KIB
    last = msgspec.structs.replace(work(64, 56, 64), channels_last=True)
    backward = msgspec.structs.replace(last, computes=BACKWARD)
    assert chosen_workspaces(last, 4, A100) == (x + w,)
    assert chosen_workspaces(backward, 4, A100, 108) == (x + w, 2 * x + 21 * w)
    assert chosen_workspaces(backward, 4, H100, 108) == chosen_workspaces(backward, 4) == (0, 2 * w)
    groups = msgspec.structs.replace(backward, groups=2)
    assert chosen_workspaces(msgspec.structs.replace(last, groups=2), 4, A100) == (2 * x + w / 2,)
    assert chosen_workspaces(groups, 4, A100, 60) == (2 * x + w / 2, 2 * x + 10 * w / 2)


def test_16_bits_are_the_same_on_an_a100() -> None:
    """Either card copies what it writes."""
    convolution = work(64, 56, 64)
    assert chosen_workspaces(convolution, 2, A100) == chosen_workspaces(convolution, 2)


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
        # 256 rows are 64 values a thread; a million columns fill the GPU, each thread with 300 values.
        ((256, 3072), (3072,), 0),
        ((1200, 2**20), (2**20,), 0),
        # Sums over other dimensions are not known.
        ((16, 96, 56, 56), (1, 96, 1, 1), 0),
        ((4096, 1), (1,), 0),
    ],
)
def test_sums_take_what_pytorch_took(x: tuple[int, ...], y: tuple[int, ...], taken: float) -> None:
    """Of 49 columns a vector is one, a block 32 wide and 16 high: 4 B x 49 x 32 blocks x 32."""
    assert sum_of_rows_bytes(x, y, 128, ADA) == taken


def test_more_values_than_a_thread_may_have_are_dealt_out_even_on_a_full_gpu() -> None:
    """One multiprocessor has 16 blocks of 128 threads, as many as 2,048 columns; 8,192 rows are 2,048 values: 8."""
    assert sum_of_rows_bytes((8192, 2048), (2048,), 1, (8, 0)) == 4 * 2048 * 8 * 128
