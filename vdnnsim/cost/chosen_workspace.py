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

An A100, whose compute capability is 8.0, copies more in float32: what the data gradient writes as well, and Y of a
convolution in groups. Few channels are copied like others, and only where a pixel has fewer than a word, nothing is.

Source: 242 convolutions of 14 networks of torchvision and timm (batch 16), forward and backward in float32 and bfloat16
under autocast, as PyTorch 2.14 with cuDNN 9.24 takes them for an RTX 4090 that was not there (`calibration.pretend`).
Copies come out to the byte. What does not: dW is added up over one to seventy parts, taken for two; of a third of the
filters of one pixel in float32 nothing is copied; channels last, what is taken follows no rule that was found. Of all
convolutions with maps as N, C, H, W together the rule has 106 % of cuDNN's bytes forward and 105 % backward in float32,
91 % and 80 % in bfloat16. Of the A100, in the same way: 399 convolutions of 21 of timm's networks (batch 32, float32),
each alone; the rule has 105 % of cuDNN's bytes forward, 107 % of the data gradient's, 100 % of the weight gradient's,
and misses a shape by 33, 12 and 15 % of what cuDNN takes. The rule of the RTX 4090 had 87, 50 and 96 % there.
"""

from math import prod
from typing import Final

from vdnnsim.dnn.captured_step import ConvolutionWork

WORD_BYTES: Final = 16
"""Of what a thread loads at a time."""
FEW_CHANNELS: Final = 32
AMPERE: Final = (8, 0)
"""The compute capability of an A100."""
PARTS: Final = 2
_SUM_BYTES: Final = 4


def chosen_workspace_bytes(
    work: ConvolutionWork, element_bytes: int, compute_capability: tuple[int, int] | None = None
) -> int:
    """Return what a convolution on tensor cores takes while it runs, of a backward the most of its gradients.

    Args:
        work: what it computes.
        element_bytes: of each number of its operands, 4 or 2.
        compute_capability: of the GPU; that of an RTX 4090 unless given.
    """
    word, channels = WORD_BYTES // element_bytes, (work.input_channels, work.output_channels)
    is_narrow = element_bytes < _SUM_BYTES
    copies_more = compute_capability == AMPERE and not (is_narrow or work.channels_last)
    has_few = work.input_channels < word if copies_more else not is_narrow and max(channels) <= FEW_CHANNELS
    if work.groups == work.input_channels > 1 or has_few:
        return 0
    pixels = prod(work.input_size), prod(_output_size(work))
    x, y = (
        element_bytes * work.batch_size * -(-each // word) * word * size
        for each, size in zip(channels, pixels, strict=True)
    )
    window = prod(work.kernel)
    filters = element_bytes * prod(channels) // work.groups * window
    w, sums = (filters * (window > 1), 0) if is_narrow else (filters, PARTS * filters)
    if work.channels_last:
        return sums if "weight" in work.computes else 0
    if not work.computes:
        return 0 if work.input_channels < word else x + w + y * (is_narrow or (copies_more and work.groups > 1))
    data, weights = y + w + x * (is_narrow or copies_more), x + y + sums
    return max(data * ("input" in work.computes), weights * ("weight" in work.computes))


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
