"""Workspaces of the convolutions that cuDNN's heuristics name first, by hand and beside what PyTorch took."""

from dataclasses import dataclass

import msgspec
import pytest

from vdnnsim.cost.chosen_workspace import AMPERE, chosen_workspace_bytes
from vdnnsim.dnn.captured_step import ConvolutionWork
from vdnnsim.units import MIB

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
    assert chosen_workspace_bytes(work(64, 56, 64), 4) == sizes.x + sizes.w == 12.390625 * MIB


def test_bfloat16_copies_what_it_writes_too() -> None:
    """6.125 MiB of X and Y each, 0.0703125 of W, either way; PyTorch took 12.3208 MiB forward."""
    sizes = Sizes(2)
    assert chosen_workspace_bytes(work(64, 56, 64), 2) == 2 * sizes.x + sizes.w == 12.3203125 * MIB
    backward = msgspec.structs.replace(work(64, 56, 64), computes=BACKWARD)
    assert chosen_workspace_bytes(backward, 2) == 2 * sizes.x + sizes.w


def test_of_a_backward_the_weight_gradient_takes_most_in_float32() -> None:
    """X and dY of 1.53125 MiB and twice dW of 9 MiB; PyTorch took 21.064 MiB."""
    backward = msgspec.structs.replace(work(512, 7, 512), computes=BACKWARD)
    assert chosen_workspace_bytes(backward, 4) == (2 * 1.53125 + 2 * 9) * MIB
    data = msgspec.structs.replace(backward, computes=("input",))
    assert chosen_workspace_bytes(data, 4) == (1.53125 + 9) * MIB


def test_filters_of_one_pixel_are_not_copied_in_16_bits() -> None:
    """X of 1 MiB and Y of 2 MiB: 16 images of 16 x 16 with 128 and 256 channels."""
    assert chosen_workspace_bytes(work(128, 16, 256, window=1), 2) == 3 * MIB


@pytest.mark.parametrize(("element_bytes", "channels"), [(4, 4), (2, 8)])
def test_channels_of_images_fill_a_word(element_bytes: int, channels: int) -> None:
    """Forward finds three channels, fewer than a word, and copies nothing; dW has X of 64 x 64 with 4 or 8."""
    images = work(3, 64, 64)
    assert chosen_workspace_bytes(images, element_bytes) == 0
    weights = msgspec.structs.replace(images, computes=("weight",))
    sums = 2 * 4 * 64 * 3 * 9 if element_bytes == 4 else 0
    maps = 16 * 64 * 64 * element_bytes * (channels + 64)
    assert chosen_workspace_bytes(weights, element_bytes) == maps + sums


def test_what_has_few_channels_is_depthwise_or_lies_so_already_copies_nothing() -> None:
    """Channels last, dW of 64 x 64 x 9 is added up twice."""
    assert chosen_workspace_bytes(work(32, 56, 16), 4) == 0
    depthwise = msgspec.structs.replace(work(64, 56, 64), groups=64, computes=BACKWARD)
    assert chosen_workspace_bytes(depthwise, 4) == 0
    last = msgspec.structs.replace(work(64, 56, 64), channels_last=True)
    assert chosen_workspace_bytes(last, 4) == 0
    assert chosen_workspace_bytes(msgspec.structs.replace(last, computes=BACKWARD), 4) == 2 * Sizes(4).w


def test_a_transposed_convolution_has_the_larger_map_behind_it() -> None:
    """2 x 2 filters with stride 2 make 8 x 8 of 4 x 4: X of 16 KiB a 64 channels and image, Y four times as much."""
    up = ConvolutionWork(1, 64, 64, (4, 4), (2, 2), (2, 2), (0, 0), (1, 1), 1, transposed=True)
    assert chosen_workspace_bytes(up, 2) == 2 * 64 * (16 + 64) + 2 * 64 * 64 * 4


def test_an_a100_copies_in_float32_what_the_data_gradient_writes() -> None:
    """32 images of 64 channels of 32 x 32 are 8 MiB, W 0.140625: forward X and W, dX from dY, W and dX."""
    forward = work(64, 32, 64, n=32)
    data = msgspec.structs.replace(forward, computes=("input",))
    assert chosen_workspace_bytes(forward, 4, AMPERE) == 8.140625 * MIB
    assert chosen_workspace_bytes(data, 4, AMPERE) == 16.140625 * MIB
    assert chosen_workspace_bytes(data, 4, (8, 9)) == chosen_workspace_bytes(data, 4) == 8.140625 * MIB


def test_an_a100_copies_few_channels_and_in_groups_what_forward_writes() -> None:
    """16 images of 32 channels of 64 x 64 are 8 MiB, W of two groups 2 x 16 x 16 x 9 numbers: 18,432 B.

    Of three channels, fewer than a word of four, nothing is copied, nor is the sum of dW.
    """
    groups = msgspec.structs.replace(work(32, 64, 32), groups=2)
    assert chosen_workspace_bytes(groups, 4, AMPERE) == 16 * MIB + 18_432
    assert chosen_workspace_bytes(groups, 4) == 0
    images = msgspec.structs.replace(work(3, 64, 64), computes=BACKWARD)
    assert chosen_workspace_bytes(images, 4, AMPERE) == 0


def test_16_bits_and_channels_last_are_the_same_on_an_a100() -> None:
    """In 16 bits either card copies what it writes; how maps lie as N, H, W, C was asked of one card alone."""
    last = msgspec.structs.replace(work(64, 56, 64), channels_last=True, computes=BACKWARD)
    for convolution, element_bytes in ((work(64, 56, 64), 2), (last, 4)):
        assert chosen_workspace_bytes(convolution, element_bytes, AMPERE) == chosen_workspace_bytes(
            convolution, element_bytes
        )
