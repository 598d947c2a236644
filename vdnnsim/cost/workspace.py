"""The convolution algorithms of cuDNN 4 to 6: their constraints and workspaces.

Symbols as in `ConvolutionShape`; all sizes in bytes.

    implicit GEMM           0
    implicit precomp GEMM   6 (A + 1), rounded up to 4, with A the pixels of the map that is computed over:
                            P Q, or H W where the data gradient is computed; one 4 byte and one 2 byte index per pixel
    explicit GEMM           e N C R S P Q with e bytes per element: the whole batch as columns
    FFT                     b (N C + K N + C K), b = 8 F (F / 2 + 1): complex float32 halves of every map and filter, F
                            the power of two at or above max(16, extent)
    FFT tiling              4352 (C K + min(tiles across, 2) N (C + K)), 4352 = 8 x 32 x 17: the same with F = 32 for at
                            most two columns of tiles at a time; a tile yields 32 - S + 1 output pixels across
    Winograd                64 d ceil(k / 32) 32: the filters as 4 x 4 float32, k the channels that are computed (K, or
                            C where the data gradient is computed), d the others
    Winograd, not fused     144 (C K + T N (C + K)): W, X and Y as 6 x 6 float32, T the 4 x 4 tiles of the computed map

The extent that FFT transforms is H + 2 pad where X meets W or dY, and P + 2 (R - 1 - pad) where dY, padded for the full
correlation, meets W; the larger of height and width, since transforms are square. Both agree for convolutions that keep
the size.

Sources: explicit and precomputed GEMM and FFT tiling reproduce sizes published for cuDNN 7.5
(github.com/Slimakanzer/cudnn-benchmark, out_example.txt at 652d8e08): to the byte; to the byte but for 1 x 1 maps;
within 0.1 % where filters exceed 1 x 1. FFT follows from the complex maps that must be held. Winograd that is not fused
reproduces all 36 sizes of that file to the byte, Winograd the five that were logged with cuDNN 5
(github.com/nagadomi/waifu2x/issues/122) and the one of github.com/LBANN/lbann/pull/437; cuDNN 7.5 takes about 100
instead of 64 bytes. The constraints are those of the cuDNN 4 manual: stride 1, padding below the kernel, no padded side
above 256 for FFT, no filter side above 32 for FFT tiling. Winograd is for 3 x 3 filters with stride 1, and the weight
gradient has only the form that is not fused. cuDNN 4 has neither Winograd nor an FFT tiling for the weight gradient.

Known limitations: the precomputed workspaces of backward are a few KiB and follow no published rule. FFT computes in
float32 whatever the element type. Winograd for 5 x 5 filters, which cuDNN 6 has, is left out: FFT stands for it.
"""

from collections.abc import Callable, Mapping

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase

IMPLICIT_GEMM = "implicit_gemm"
IMPLICIT_PRECOMP_GEMM = "implicit_precomp_gemm"
GEMM = "gemm"
FFT = "fft"
FFT_TILING = "fft_tiling"
WINOGRAD = "winograd"
WINOGRAD_NONFUSED = "winograd_nonfused"

FLOAT_BYTES = 4
TILE_SIDE = 32
TILE_BYTES = 8 * TILE_SIDE * (TILE_SIDE // 2 + 1)
WINOGRAD_SIDES: Mapping[str, int] = {WINOGRAD: 2, WINOGRAD_NONFUSED: 4}
"""Side of the square of pixels that Winograd computes at a time, from a square of 2 more."""

_OFFERED: Mapping[Phase, tuple[str, ...]] = {
    Phase.FORWARD: (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM, FFT, FFT_TILING),
    Phase.BACKWARD_DATA: (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, FFT, FFT_TILING),
    Phase.BACKWARD_WEIGHTS: (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, FFT),
}
_WINOGRAD_OFFERED: Mapping[Phase, tuple[str, ...]] = {
    Phase.FORWARD: (WINOGRAD, WINOGRAD_NONFUSED),
    Phase.BACKWARD_DATA: (WINOGRAD, WINOGRAD_NONFUSED),
    Phase.BACKWARD_WEIGHTS: (WINOGRAD_NONFUSED,),
}
_WINOGRAD_KERNEL = (3, 3)
_WINOGRAD_CHANNELS = 32
_SMALLEST_TRANSFORM = 16
_LARGEST_TRANSFORM = 256


def algorithms(shape: ConvolutionShape, phase: Phase, *, winograd: bool = False) -> tuple[str, ...]:
    """Return the algorithms that can compute a phase; Winograd's are in cuDNN from version 5."""
    possible: Mapping[str, Callable[[], bool]] = {
        FFT: lambda: _padding_below_kernel(shape) and transform_side(shape, phase) <= _LARGEST_TRANSFORM,
        FFT_TILING: lambda: _padding_below_kernel(shape) and shape.window > 1 and max(shape.kernel) <= TILE_SIDE,
    }
    offered = tuple(
        name for name in _OFFERED[phase] if name not in possible or (shape.stride == (1, 1) and possible[name]())
    )
    fits_winograd = (shape.kernel, shape.stride) == (_WINOGRAD_KERNEL, (1, 1)) and _padding_below_kernel(shape)
    return (*offered, *_WINOGRAD_OFFERED[phase]) if winograd and fits_winograd else offered


def workspace_bytes(shape: ConvolutionShape, phase: Phase, algorithm: str, element_bytes: int) -> int:
    """Return the workspace of an algorithm that `algorithms` offers for this phase."""
    match algorithm:
        case "implicit_precomp_gemm":
            pixels = shape.input_pixels if phase is Phase.BACKWARD_DATA else shape.output_pixels
            return (6 * (pixels + 1) + 3) // 4 * 4
        case "gemm":
            return element_bytes * shape.n * shape.c * shape.window * shape.output_pixels
        case "fft":
            return transform_bytes(shape, phase) * complex_maps(shape)
        case "fft_tiling":
            columns = min(tiles(shape, phase)[1], 2)
            return TILE_BYTES * (shape.c * shape.k + columns * shape.n * (shape.c + shape.k))
        case "winograd":
            computed, others = (shape.c, shape.k) if phase is Phase.BACKWARD_DATA else (shape.k, shape.c)
            padded = -(-computed // _WINOGRAD_CHANNELS) * _WINOGRAD_CHANNELS
            return FLOAT_BYTES * winograd_points(algorithm) * others * padded
        case "winograd_nonfused":
            squares = shape.n * winograd_tiles(shape, phase, algorithm)
            return FLOAT_BYTES * winograd_points(algorithm) * (shape.c * shape.k + squares * (shape.c + shape.k))
        case _:
            return 0


def complex_maps(shape: ConvolutionShape) -> int:
    """Return the number of single-channel maps that FFT transforms: those of X, of Y and of W."""
    return shape.n * shape.c + shape.n * shape.k + shape.c * shape.k


def transform_side(shape: ConvolutionShape, phase: Phase) -> int:
    """Return F, the side of the square that FFT transforms."""
    extent = max(_extents(shape, phase))
    return max(_SMALLEST_TRANSFORM, 1 << (extent - 1).bit_length())


def transform_bytes(shape: ConvolutionShape, phase: Phase) -> int:
    """Return b, the bytes of one transformed map; the other half follows from its symmetry."""
    side = transform_side(shape, phase)
    return 8 * side * (side // 2 + 1)


def tiles(shape: ConvolutionShape, phase: Phase) -> tuple[int, int]:
    """Return how many 32 x 32 tiles cover the computed map, down and across."""
    computed = shape.input_size if phase is Phase.BACKWARD_DATA else shape.output_size
    down, across = (-(-side // (TILE_SIDE - window + 1)) for side, window in zip(computed, shape.kernel, strict=True))
    return down, across


def winograd_tiles(shape: ConvolutionShape, phase: Phase, algorithm: str) -> int:
    """Return how many squares Winograd cuts the computed map of one channel into."""
    computed = shape.input_size if phase is Phase.BACKWARD_DATA else shape.output_size
    down, across = (-(-side // WINOGRAD_SIDES[algorithm]) for side in computed)
    return down * across


def winograd_points(algorithm: str) -> int:
    """Return the elements of a transformed square, which is as many matrix products."""
    return (WINOGRAD_SIDES[algorithm] + _WINOGRAD_KERNEL[0] - 1) ** 2


def _extents(shape: ConvolutionShape, phase: Phase) -> tuple[int, ...]:
    if phase is Phase.BACKWARD_DATA:
        sides = zip(shape.output_size, shape.kernel, shape.padding, strict=True)
        return tuple(side + 2 * (window - 1 - pad) for side, window, pad in sides)
    return tuple(side + 2 * pad for side, pad in zip(shape.input_size, shape.padding, strict=True))


def _padding_below_kernel(shape: ConvolutionShape) -> bool:
    return all(pad < window for pad, window in zip(shape.padding, shape.kernel, strict=True))
