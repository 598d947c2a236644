"""Workspaces of PyTorch: of convolutions without a search of cuDNN's, and of sums of rows.

A convolution has that of the first kernel that cuDNN's heuristics name. On tensor cores it multiplies the channels of
one pixel. Where maps lie as N, C, H, W, it copies them into an order in which they are neighbours, channels rounded up
to whole words of 16 B:

    forward            X and W, in 16 bits Y too, while float32 is written where it belongs; none where a pixel has
                       fewer channels than a word, as an image's
    data gradient      dY and W, in 16 bits dX too
    weight gradient    X and dY, in float32 the sums of dW over two parts of the batch as well

A filter of one pixel is in that order already, and in 16 bits not copied.

None where in float32 neither X nor Y has more than 32 channels, in depthwise convolutions, which PyTorch computes by
kernels of its own where maps lie as N, C, H, W, and without tensor cores. Where maps lie as N, H, W, C already, what is
left are the sums of dW, of depthwise filters in 16 bits over eighths of images
(`vdnnsim.cost.convolution_shape.summed_parts_bytes`).

An A100 and an H100, of compute capability 8.0 and 9.0, take other kernels for float32:

    forward            Y, too, in groups, and where channels do not fill words of 16 numbers or are fewer than 32; an
                       A100 nothing for filters of one pixel at batches of 16 to 127 where channels of X do not fill 64
    data gradient      dX, too; nothing for a filter of several pixels between few channels
    weight gradient    as many sums of dW as fill the GPU: its tiles of 128 by 128, each over so many parts of the
                       pixels that every multiprocessor has one, as long as 256 pixels are left for each; nothing where
                       a filter of one pixel leaves pixels out and channels of X do not fill 64

Few channels are copied there like others, but of a pixel that has fewer than a word nothing is. An A100 copies maps
that lie as N, H, W, C as well: X forward, dY for the data gradient, with what is written in groups, both for dW. And dW
of a depthwise filter of 7 x 7 or more that lies so, of more than 64 channels and 2,048 pixels, takes 8 times X (up to
12 times for small maps; found for filters up to 11 x 11, while 5 x 5 take little).

A backward takes the workspace of its data gradient, gives it back, and takes that of its weight gradient
(aten/src/ATen/native/cudnn/ConvShared.cpp): one that is a little larger than the other finds no room in what that left.

Source: 242 convolutions of 14 networks of torchvision and timm (batch 16), forward and backward in float32 and bfloat16
under autocast, as PyTorch 2.14 with cuDNN 9.24 takes them for a pretended RTX 4090 (`calibration.pretend`). Copies are
exact. Not modelled: dW is summed over one to seventy parts, taken for two; for a third of the filters of one pixel in
float32 nothing is copied; channels last, a rule was found of depthwise dW alone. Of all convolutions with maps as N, C,
H, W together the rule has 106 % of cuDNN's bytes forward and 105 % backward in float32, 91 % and 80 % in bfloat16; by
shape it misses float32 by 60 to 110 %.

For the A100, in the same way, 345 convolutions of 21 of timm's networks in float32 (batch 32), each alone. Held against
246 of 15 other networks at batches of 8, 32 and 128, the rule has 93, 94 and 101 % of cuDNN's bytes forward, 104, 104
and 94 % of the data gradient's, 87, 93 and 96 % of the weight gradient's, and misses a shape by 18, 15 and 10 %, by 7,
6 and 10 %, and by 29, 12 and 7 %; of the H100 (batch 32) by 31, 25 and 13 %. Channels last on the A100 it misses
forward by 32, 14 and 8 %, data gradients by 38, 32 and 28 %, weight gradients by 21, 13 and 9 %.

A sum over the rows of a matrix, as for the gradient of a bias, takes partial sums of many blocks. A thread adds up
values of `vector` columns; a block is 32 wide and so many rows high that it has 512 / vector threads. Where a thread
would have 256 values or more, and the blocks do not fill the GPU, the rows are dealt out to several blocks, until each
thread has 16 values or the GPU is full. Their sums meet in memory, one for each thread of a row:

    bytes = 4 x columns x blocks to a column x 32 x vector

that is 75 MiB for the bias of a layer of 3,072 under 3,152 tokens on an RTX 4090, where the result has 12 KiB.

Source: github.com/pytorch/pytorch, aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, global_memory_size); to the
byte for 36 shapes under PyTorch 2.14 on a pretended RTX 4090. Threads of a multiprocessor: CUDA C++ Programming Guide.
"""

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from vdnnsim.cost.convolution_shape import summed_parts_bytes
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.units import ElementType

WORD_BYTES: Final = 16
"""Bytes that a thread loads at a time."""
FEW_CHANNELS: Final = 32
A100: Final = (8, 0)
H100: Final = (9, 0)
PARTS: Final = 2
_SUM_BYTES: Final = 4
_WORD_OF_CHANNELS: Final = 16
_CHANNELS_OF_A_TILE: Final = 64
_TILE: Final = 128
_PIXELS_OF_A_PART: Final = 256
_BATCHES_IN_PLACE: Final = range(16, 128)
_COPIES_OF_WIDE: Final = 8
_WIDE_WINDOW: Final = 7 * 7
_WIDE_PIXELS: Final = 2048
_THREADS: Final = 512
_WARP: Final = 32
_LARGEST_VECTOR: Final = 4
_LEAST_VALUES: Final = 16
_MOST_VALUES: Final = 256
_RESIDENT: Final = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Threads of a multiprocessor by compute capability, where they are not 2048."""


class _Copies(NamedTuple):
    """Bytes of a copy of each map, of W, and how many outputs of pixels there are."""

    x: int
    y: int
    w: int
    pixels: int


def chosen_workspaces(
    work: ConvolutionWork,
    element_type: ElementType,
    compute_capability: tuple[int, int] | None = None,
    multiprocessors: int = 1,
) -> tuple[int, ...]:
    """Return the workspaces of a convolution on tensor cores: of a backward, one for each of its gradients.

    The compute capability is by default that of an RTX 4090.
    """
    element_bytes = element_type.nbytes
    copies = _copies(work, element_bytes)
    if element_bytes == _SUM_BYTES and _knows_more(work, compute_capability):
        taken = _for_float32_of_servers(work, copies, multiprocessors, is_a100=compute_capability == A100)
    else:
        taken = _usually(work, copies, element_type)
    if not work.computes:
        return (taken["forward"],)
    return tuple(taken[each] for each in work.gradients) or (0,)


def searched_bytes(work: ConvolutionWork, element_bytes: int) -> int:
    """Return the largest workspace of all kernels that cuDNN names: half as much again as copies of X, Y and W.

    Of 345 convolutions on an A100 (see above) it is that in the median, from 1.1 to 2 times the copies for half of
    them, and up to 17 times where images have three channels; on an RTX 4090 alike.
    """
    x, y, w, _ = _copies(work, element_bytes)
    return (x + y + w) * 3 // 2


def _copies(work: ConvolutionWork, element_bytes: int) -> _Copies:
    word, channels = WORD_BYTES // element_bytes, (work.input_channels, work.output_channels)
    pixels = [work.batch_size * prod(each) for each in (work.input_size, work.output_size)]
    x, y = (element_bytes * -(-each // word) * word * number for each, number in zip(channels, pixels, strict=True))
    return _Copies(x, y, element_bytes * work.weights, pixels[1])


def _knows_more(work: ConvolutionWork, compute_capability: tuple[int, int] | None) -> bool:
    """Whether the rule knows what float32 takes on a GPU; of an H100 not where maps lie as N, H, W, C."""
    return compute_capability == A100 or (compute_capability == H100 and not work.channels_last)


def _usually(work: ConvolutionWork, copies: _Copies, element_type: ElementType) -> Counter[str]:
    x, y, w, _ = copies
    is_narrow = element_type.nbytes < _SUM_BYTES
    sums = PARTS * w * (not is_narrow)
    is_few = not is_narrow and max(work.input_channels, work.output_channels) <= FEW_CHANNELS
    if work.is_depthwise and work.channels_last:
        return Counter(weight=summed_parts_bytes(element_type, work.batch_size, work.output_channels, work.kernel))
    if work.is_depthwise or is_few:
        return Counter()
    if work.channels_last:
        return Counter(weight=sums)
    w *= prod(work.kernel) > 1 or not is_narrow
    has_words = work.input_channels * element_type.nbytes >= WORD_BYTES
    return Counter(forward=(x + w + y * is_narrow) * has_words, input=y + w + x * is_narrow, weight=x + y + sums)


def _for_float32_of_servers(
    work: ConvolutionWork, copies: _Copies, multiprocessors: int, *, is_a100: bool
) -> Counter[str]:
    x, y, w, pixels = copies
    channels = work.input_channels, work.output_channels
    if work.is_depthwise:
        # dW of many channels under a wide filter is added up in copies of X.
        has_many = channels[0] > _CHANNELS_OF_A_TILE and work.batch_size * prod(work.input_size) > _WIDE_PIXELS
        is_wide = work.channels_last and prod(work.kernel) >= _WIDE_WINDOW and has_many
        return Counter(weight=_COPIES_OF_WIDE * x * (is_a100 and is_wide))
    if channels[0] * _SUM_BYTES < WORD_BYTES:
        return Counter()
    sums = w * _parts(work, pixels, multiprocessors)
    in_groups = work.groups > 1
    if work.channels_last:
        return Counter(forward=x + w + y * in_groups, input=y + w + x * in_groups, weight=x + y + sums)
    window, stride = prod(work.kernel), max(work.stride)
    fills_no_tile = channels[0] % _CHANNELS_OF_A_TILE > 0
    is_pixel = window == stride == work.groups
    reads_in_place = is_a100 and is_pixel and fills_no_tile and work.batch_size in _BATCHES_IN_PLACE
    are_odd = min(channels) < FEW_CHANNELS or any(each % _WORD_OF_CHANNELS for each in channels)
    copies_y = in_groups or (window > 1 and are_odd)
    are_few = channels[0] <= FEW_CHANNELS and channels[1] <= 2 * FEW_CHANNELS
    is_small = not in_groups and window > 1 == stride and are_few
    skips = window == 1 < stride and fills_no_tile
    return Counter(
        forward=0 if reads_in_place else x + w + y * copies_y,
        input=0 if is_small else x + y + w,
        weight=0 if skips else x + y + sums,
    )


def _parts(work: ConvolutionWork, pixels: int, multiprocessors: int) -> int:
    """Return the number of parts of the pixels of a batch over which tiles of dW are summed."""
    columns = -(-work.input_channels // work.groups * prod(work.kernel) // _TILE)
    tiles = work.groups * columns * -(-work.output_channels // work.groups // _TILE)
    return min(multiprocessors // tiles, pixels // _PIXELS_OF_A_PART)


class SharedSum(NamedTuple):
    """A sum of rows that several blocks share: its workspace, and the parts that each thread of the last one adds."""

    nbytes: int
    steps: int


ALONE: Final = SharedSum(0, 0)
"""A sum that no blocks share."""


def sum_of_rows(
    x: Sequence[int], y: Sequence[int], multiprocessors: int, compute_capability: tuple[int, int]
) -> SharedSum:
    """Return how a sum over the leading dimensions of a contiguous tensor is shared; other sums are said to be not.

    `x` are the sizes of the tensor, `y` those of the result.
    """
    columns, rows = prod(y), prod(x) // max(1, prod(y))
    if columns not in {prod(x[at:]) for at in range(1, len(x))} or columns == 1:
        return ALONE
    vector = next(each for each in (_LARGEST_VECTOR, 2, 1) if columns % each == 0)
    width = min(_power_of_two_below(columns // vector), _WARP)
    height = min(_power_of_two_below(rows), _THREADS // vector // width)
    width = min(_power_of_two_below(columns // vector), _THREADS // vector // height)
    values = -(-rows // height)
    grid = -(-columns // vector // width)
    resident = _RESIDENT.get(compute_capability, 2048)
    blocks = multiprocessors * (resident // (width * height))
    if values < _MOST_VALUES or grid > blocks:
        return ALONE
    parts = max(min(-(-blocks // grid), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return SharedSum(_SUM_BYTES * columns * parts * width * vector, -(-parts // height)) if parts > 1 else ALONE


def _power_of_two_below(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number else 1
