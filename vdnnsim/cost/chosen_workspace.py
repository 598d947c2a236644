"""The workspace of the convolution that PyTorch takes where nobody searched: the first that cuDNN's heuristics name.

On tensor cores that is a kernel which multiplies the channels of one pixel. Where maps lie as N, C, H, W, it copies
them into an order in which they are neighbours, channels rounded up to whole words of 16 B:

    forward            X and W, in 16 bits Y too, while float32 is written where it belongs; none where a pixel has
                       fewer channels than a word, as an image's
    data gradient      dY and W, in 16 bits dX too
    weight gradient    X and dY, in float32 the sums of dW over two parts of the batch as well

A filter of one pixel is in that order already, and in 16 bits not copied.

None where in float32 neither X nor Y has more than 32 channels, in depthwise convolutions, which PyTorch computes by
kernels of its own, and without tensor cores. Where maps lie as N, H, W, C already, what is left are the sums of dW.

An A100 and an H100, of compute capability 8.0 and 9.0, copy in float32 what the data gradient writes as well, and what
forward writes in groups, and where channels do not fill words of 16 numbers, or are few. Otherwise few channels are
copied like others, but of a pixel that has fewer than a word nothing is, nor for the data gradient of a filter of
several pixels between few channels. The sums of dW are as many as fill the GPU: its tiles of 128 by 128, each over so
many parts of the pixels that every multiprocessor has one, as long as 256 pixels are left for each. Where a filter of
one pixel leaves pixels out, and its channels do not fill 64, its dW is computed without copies.

A backward takes the workspace of its data gradient, gives it back, and takes that of its weight gradient
(aten/src/ATen/native/cudnn/ConvShared.cpp): one that is a little larger than the other finds no room in what that left.

Source: 242 convolutions of 14 networks of torchvision and timm (batch 16), forward and backward in float32 and bfloat16
under autocast, as PyTorch 2.14 with cuDNN 9.24 takes them for an RTX 4090 that was not there (`calibration.pretend`).
Copies come out to the byte. What does not: dW is added up over one to seventy parts, taken for two; of a third of the
filters of one pixel in float32 nothing is copied; channels last, what is taken follows no rule that was found. Of all
convolutions with maps as N, C, H, W together the rule has 106 % of cuDNN's bytes forward and 105 % backward in float32,
91 % and 80 % in bfloat16; by shape it misses float32 by 60 to 110 %.

For the A100, in the same way, 345 convolutions of 21 of timm's networks in float32 (batch 32), each alone. Held against
246 of 15 other networks at batches of 8, 32 and 128, the rule has 93, 110 and 101 % of cuDNN's bytes forward, 104, 104
and 94 % of the data gradient's, 87, 93 and 96 % of the weight gradient's, and misses a shape by 18, 28 and 10 %, by 7,
6 and 10 %, and by 29, 12 and 7 %; of the H100 (batch 32) by 31, 25 and 13 %.
"""

from math import prod
from typing import Final

from vdnnsim.dnn.captured_step import ConvolutionWork

WORD_BYTES: Final = 16
"""Of what a thread loads at a time."""
FEW_CHANNELS: Final = 32
COPIES_MORE: Final = ((8, 0), (9, 0))
"""The compute capabilities of an A100 and of an H100."""
PARTS: Final = 2
_SUM_BYTES: Final = 4
_WORD_OF_CHANNELS: Final = 16
_CHANNELS_OF_A_TILE: Final = 64
_TILE: Final = 128
_PIXELS_OF_A_PART: Final = 256


def chosen_workspaces(
    work: ConvolutionWork,
    element_bytes: int,
    compute_capability: tuple[int, int] | None = None,
    multiprocessors: int = 1,
) -> tuple[int, ...]:
    """Return what a convolution on tensor cores takes: of a backward, for each of its gradients in turn.

    Args:
        work: what it computes.
        element_bytes: of each number of its operands, 4 or 2.
        compute_capability: of the GPU; that of an RTX 4090 unless given.
        multiprocessors: over which the GPU spreads tiles.
    """
    gradients = [each for each in ("input", "weight") if each in work.computes]
    word, channels = WORD_BYTES // element_bytes, (work.input_channels, work.output_channels)
    is_narrow = element_bytes < _SUM_BYTES
    copies_more = compute_capability in COPIES_MORE and not (is_narrow or work.channels_last)
    has_few = work.input_channels < word if copies_more else not is_narrow and max(channels) <= FEW_CHANNELS
    if work.groups == work.input_channels > 1 or has_few:
        return (0,) * max(1, len(gradients))
    window = prod(work.kernel)
    filters = element_bytes * prod(channels) // work.groups * window
    if work.channels_last:
        return tuple(PARTS * filters * (each == "weight" and not is_narrow) for each in gradients) or (0,)
    pixels = prod(work.input_size), prod(_output_size(work))
    x, y = (
        element_bytes * work.batch_size * -(-each // word) * word * size
        for each, size in zip(channels, pixels, strict=True)
    )
    w = filters * (window > 1 or not is_narrow)
    if not work.computes:
        copies_y = is_narrow or (copies_more and (work.groups > 1 or (window > 1 and _are_odd(channels))))
        return (0 if work.input_channels < word else x + w + y * copies_y,)
    if not copies_more:
        taken = {"input": y + w + x * is_narrow, "weight": x + y + PARTS * filters * (not is_narrow)}
    else:
        is_small = work.groups == 1 and window > 1 and max(work.stride) == 1 and _are_small(*channels)
        skips = window == 1 and max(work.stride) > 1 and work.input_channels % _CHANNELS_OF_A_TILE
        sums = filters * _parts(work, work.batch_size * pixels[1], multiprocessors)
        taken = {"input": 0 if is_small else x + y + w, "weight": 0 if skips else x + y + sums}
    return tuple(taken[each] for each in gradients) or (0,)


def _are_odd(channels: tuple[int, int]) -> bool:
    """Whether channels are few, or do not fill words."""
    return min(channels) < FEW_CHANNELS or any(each % _WORD_OF_CHANNELS for each in channels)


def _are_small(inputs: int, outputs: int) -> bool:
    """Whether channels are so few that nothing is copied for the gradient of the input."""
    return inputs <= FEW_CHANNELS and outputs <= 2 * FEW_CHANNELS


def _parts(work: ConvolutionWork, pixels: int, multiprocessors: int) -> int:
    """Return over how many parts of the pixels of a batch tiles of dW are added up."""
    columns = -(-work.input_channels // work.groups * prod(work.kernel) // _TILE)
    tiles = work.groups * columns * -(-work.output_channels // work.groups // _TILE)
    return min(multiprocessors // tiles, pixels // _PIXELS_OF_A_PART)


def _output_size(work: ConvolutionWork) -> tuple[int, ...]:
    dimensions = zip(work.input_size, work.kernel, work.stride, work.padding, work.dilation, strict=True)
    if work.transposed:
        return tuple(
            (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + 1
            for size, kernel, stride, pad, dilation in dimensions
        )
    return tuple(
        (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        for size, kernel, stride, pad, dilation in dimensions
    )
