"""Seconds and DRAM traffic of one convolution by algorithm and phase, with the GPU to itself.

Symbols as in `ConvolutionShape`; F and b as in `vdnnsim.cost.workspace`; names with underscores are `CostParameters`.

Implicit GEMM, both forms, is one tiled matrix product (`vdnnsim.cost.tiled_product`) of rows x columns over a depth:

    forward                     K     x N P Q over C R S
    data gradient, precomputed  C     x N H W over K R S g     g = stride_h stride_w P Q / (H W): it multiplies the
                                                               zeros between the pixels of a strided dY
    data gradient, implicit     C R S x N P Q over K           cuDNN's ALGO_0: it adds each product to dX with atomics,
                                                               which costs scatter_depth more steps a tile
    weight gradient             K     x C R S over N P Q       split along its depth, the parts added to dW; one more
                                                               kernel to clear dW

at product_flop_fraction with precomputed indices, or the traffic of X, Y and W at stream_dram_fraction of DRAM
bandwidth, whichever takes longer. Without precomputed indices fractions are lower and tiles have 128 rows: profiles of
later cuDNN on a V100 name implicit_convolve_sgemm<float, float, 128, 6, 7, ...> and dgrad_engine<float, 128, 6, 7, ...>
(github.com/pytorch/pytorch/issues/13412), read here as tiles of 2^6 x 2^7. That 128 is the side of the filters was
found by the fit: it takes the error of left out networks under cuDNN R2 from 14 to 8 %.

Explicit GEMM writes the columns N C R S P Q, reads them back (a 1 x 1 filter needs none) and multiplies.

FFT reads the real maps and writes complex ones, multiplies each of the F (F / 2 + 1) frequencies as a complex matrix
product of 8 N C K FLOPs, and transforms back:

    (real bytes + x b (N C + N K + C K)) / DRAM rate + b N C K (1 + tile_start_depth / depth) / product rate

x = 2 is one write and one read of each complex map. A transform beyond 64 points a side exceeds the 48 KiB of shared
memory that a block of Maxwell may use (64 x 33 complex numbers take 17 KiB, 128 x 65 take 65 KiB), so rows and columns
are passes of their own over DRAM and x = 4. FFT tiling is the same with F = 32, N C and N K multiplied by the number of
tiles. The depth of the complex product is C, K or N by phase.

Winograd's F(m x m, 3 x 3) computes m x m pixels from a square of m + 2, with (m + 2)^2 multiplications for a pair of
channels where the direct method has 9 m^2; each of the (m + 2)^2 points is a matrix product of its own over the squares
of all images.

    fused       m = 2, 16/36 of the multiplications. One kernel transforms in its loop and multiplies, a tiled product
                K x 4 T N over 4 C at winograd_flop_fraction, or the traffic of X, Y and W at stream_dram_fraction,
                whichever takes longer; a small one transforms the filters.
    not fused   m = 4, 36/144 of them. Kernels write X and W transformed, the products read them and write Y
                transformed, another reads that: real maps once and the workspace twice at winograd_dram_fraction, and
                36 tiled products at product_flop_fraction: K x T N over C forward, C x T N over K for the data
                gradient, K x C over T N for the weight gradient.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016; the names and the workspaces of
cuDNN (`vdnnsim.cost.workspace`) tell which forms it has.

Transforms of Winograd are counted by their bytes alone.

The bytes are those that the passes above read from and write to DRAM, from which the seconds follow; what explicit GEMM
reads and writes while it multiplies counts as well, though only the arithmetic takes time there:

    implicit GEMM         X + Y + W
    explicit GEMM         X + Y + W + 2 N C R S P Q, without the columns for a 1 x 1 filter
    FFT, FFT tiling       the bytes in the formula above
    bias                  2 Y forward, Y in the weight gradient

Known limitations of the bytes: they are those of perfect caches within a pass, and the partial sums of a weight
gradient whose depth is split are in the seconds but not in the bytes. On titan_x_maxwell these sums would add at most
0.5 % of the DRAM's peak to the fastest kernels of VGG-16 (64) and 6 % to those of GoogLeNet (128). A data gradient that
adds to what another layer began is, in seconds and bytes, one that overwrites it.

Known limitations of the seconds, measured with the profile titan_x_maxwell (`python -m vdnnsim.cost.fit` prints every
residual): weight gradients of 1 x 1 filters come out too fast by a fifth in the mean. Of the networks held out,
OverFeat under cuDNN 4 is predicted 11 to 17 % too slow, GoogLeNet's forward pass 3 % and its backward passes 21 and
26 % too fast, and OverFeat by implicit GEMM alone 9 to 19 % too fast.
"""

from dataclasses import replace
from math import prod
from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape, tiled
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.tiled_product import TILE_ROWS, TiledProduct, tiled_product_s
from vdnnsim.cost.workspace import (
    FFT,
    FFT_TILING,
    FLOAT_BYTES,
    GEMM,
    IMPLICIT_GEMM,
    TILE_BYTES,
    WINOGRAD,
    WINOGRAD_NONFUSED,
    WINOGRAD_SIDES,
    complex_maps,
    tiles,
    transform_bytes,
    transform_side,
    winograd_points,
    winograd_tiles,
    workspace_bytes,
)
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

_IMPLICIT_TILE_ROWS: Final = (128,)
_SINGLE_PASS_SIDE: Final = 64
_FFT_KERNELS: Final = 4
"""Two transforms, the product, the transform back."""
FUSED_KERNELS: Final = 2
SEPARATE_KERNELS: Final = 4


def convolution_s(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> float:
    """Return the seconds of one phase without the bias, by an algorithm that `algorithms` offers for it."""
    if algorithm == GEMM:
        return _explicit_s(machine, shape)
    if algorithm in (FFT, FFT_TILING):
        return _fourier_s(machine, shape, phase, algorithm)
    if algorithm in WINOGRAD_SIDES:
        return _winograd_s(machine, shape, phase, algorithm)
    product_s = _implicit_product_s(machine, shape, phase, implicit=algorithm == IMPLICIT_GEMM)
    nbytes = convolution_bytes(machine, shape, phase, algorithm)
    traffic_s = nbytes / (machine.dram_bytes_per_s * machine.parameters.stream_dram_fraction)
    return max(product_s, traffic_s) + machine.parameters.kernel_overhead_s


def convolution_bytes(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> int:
    """Return the DRAM traffic of one phase without the bias, which `convolution_s` takes its time from."""
    real_bytes = machine.element_bytes * (shape.x_elements + shape.y_elements + shape.w_elements)
    if algorithm == GEMM:
        return real_bytes + 2 * _columns_bytes(machine, shape)
    if algorithm == FFT:
        crossings = 2 if transform_side(shape, phase) <= _SINGLE_PASS_SIDE else 4
        return real_bytes + crossings * transform_bytes(shape, phase) * complex_maps(shape)
    if algorithm == FFT_TILING:
        down, across = tiles(shape, phase)
        complex_tiles = shape.c * shape.k + down * across * shape.n * (shape.c + shape.k)
        return real_bytes + 2 * TILE_BYTES * complex_tiles
    if algorithm in WINOGRAD_SIDES:
        return _winograd_bytes(machine, shape, phase, algorithm)
    return real_bytes


def bias_s(machine: Machine, shape: ConvolutionShape, phase: Phase) -> float:
    """Return the seconds of the bias: forward adds it to Y in place, the weight gradient sums dY, dX has none."""
    nbytes = bias_bytes(machine, shape, phase)
    if not nbytes:
        return 0.0
    parameters = machine.parameters
    return nbytes / (machine.dram_bytes_per_s * parameters.stream_dram_fraction) + parameters.kernel_overhead_s


def bias_bytes(machine: Machine, shape: ConvolutionShape, phase: Phase) -> int:
    """Return the DRAM traffic of the bias: forward reads and writes Y, the weight gradient reads dY."""
    if not shape.bias:
        return 0
    passes = {Phase.FORWARD: 2, Phase.BACKWARD_DATA: 0, Phase.BACKWARD_WEIGHTS: 1}[phase]
    return passes * machine.element_bytes * shape.y_elements


def _implicit_product_s(machine: Machine, shape: ConvolutionShape, phase: Phase, *, implicit: bool) -> float:
    p = machine.parameters
    positions = shape.n * shape.output_pixels
    filter_elements = shape.c * shape.window
    tile_rows = _IMPLICIT_TILE_ROWS if implicit else TILE_ROWS
    backward_fraction = p.implicit_backward_flop_fraction if implicit else p.product_flop_fraction
    if phase is Phase.FORWARD:
        fraction = p.implicit_forward_flop_fraction if implicit else p.product_flop_fraction
        product = TiledProduct(shape.k, positions, filter_elements, tile_rows=tile_rows)
        return tiled_product_s(machine.multiplying_at(fraction), product)
    if phase is Phase.BACKWARD_WEIGHTS:
        weights_bytes = machine.element_bytes * shape.w_elements
        product = TiledProduct(
            shape.k, filter_elements, positions, splits_depth=True, summed_bytes=weights_bytes, tile_rows=tile_rows
        )
        return tiled_product_s(machine.multiplying_at(backward_fraction), product) + p.kernel_overhead_s
    if implicit:
        product = TiledProduct(filter_elements, positions, shape.k, extra_depth=p.scatter_depth, tile_rows=tile_rows)
    else:
        dense = prod(shape.stride) * shape.output_pixels / shape.input_pixels
        product = TiledProduct(shape.c, shape.n * shape.input_pixels, shape.k * shape.window * dense)
    return tiled_product_s(machine.multiplying_at(backward_fraction), product)


def _explicit_s(machine: Machine, shape: ConvolutionShape) -> float:
    p = machine.parameters
    positions, filter_elements = shape.n * shape.output_pixels, shape.c * shape.window
    product = TiledProduct(shape.k, positions, filter_elements)
    product_s = tiled_product_s(machine.multiplying_at(p.product_flop_fraction), product)
    if shape.window == 1:
        return product_s + p.kernel_overhead_s
    pass_bytes = machine.element_bytes * shape.x_elements + _columns_bytes(machine, shape)
    columns_s = pass_bytes / (machine.dram_bytes_per_s * p.stream_dram_fraction)
    return product_s + columns_s + 2 * p.kernel_overhead_s


def _columns_bytes(machine: Machine, shape: ConvolutionShape) -> int:
    """Bytes of the columns of explicit GEMM; to a 1 x 1 filter X is its own columns."""
    if shape.window == 1:
        return 0
    return machine.element_bytes * shape.n * shape.output_pixels * shape.c * shape.window


def _fourier_s(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> float:
    p = machine.parameters
    nbytes = convolution_bytes(machine, shape, phase, algorithm)
    transforms_s = nbytes / (machine.dram_bytes_per_s * p.fft_dram_fraction)
    transformed = transform_bytes(shape, phase) if algorithm == FFT else TILE_BYTES * prod(tiles(shape, phase))
    depth = {Phase.FORWARD: shape.c, Phase.BACKWARD_DATA: shape.k, Phase.BACKWARD_WEIGHTS: shape.n}[phase]
    flop = transformed * (shape.n * shape.c * shape.k * (1 + p.tile_start_depth / depth))
    return transforms_s + flop / (machine.flop_per_s * p.product_flop_fraction) + _FFT_KERNELS * p.kernel_overhead_s


def _winograd_s(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> float:
    """Return the seconds of one phase, by an algorithm of Winograd's that `algorithms` offers for it."""
    p = machine.parameters
    traffic_s = _winograd_bytes(machine, shape, phase, algorithm) / machine.dram_bytes_per_s
    if algorithm == WINOGRAD:
        product_s = tiled_product_s(machine.multiplying_at(p.winograd_flop_fraction), fused_product(shape, phase))
        return max(product_s, traffic_s / p.stream_dram_fraction) + FUSED_KERNELS * p.kernel_overhead_s
    product = separate_product(shape, phase)
    product_s = tiled_product_s(machine.multiplying_at(p.product_flop_fraction), product)
    # The time of the product includes the traffic of its sums.
    transforms_s = traffic_s - 2 * product.summed_bytes / machine.dram_bytes_per_s
    return product_s + transforms_s / p.winograd_dram_fraction + SEPARATE_KERNELS * p.kernel_overhead_s


def _winograd_bytes(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> int:
    """Return the DRAM traffic of one phase: X, Y and W, and the workspace twice."""
    real_bytes = machine.element_bytes * (shape.x_elements + shape.y_elements + shape.w_elements)
    return real_bytes + 2 * workspace_bytes(shape, phase, algorithm, machine.element_bytes)


def fused_product(shape: ConvolutionShape, phase: Phase) -> TiledProduct:
    """Return fused Winograd as one product over the pixels, with fewer multiplications."""
    pixels = WINOGRAD_SIDES[WINOGRAD] ** 2
    squares = shape.n * winograd_tiles(shape, phase, WINOGRAD)
    depth, rows = (shape.k, shape.c) if phase is Phase.BACKWARD_DATA else (shape.c, shape.k)
    return TiledProduct(rows, pixels * squares, depth * winograd_points(WINOGRAD) / pixels)


def separate_product(shape: ConvolutionShape, phase: Phase) -> TiledProduct:
    """Return Winograd that is not fused: one product for each point."""
    points = winograd_points(WINOGRAD_NONFUSED)
    squares = shape.n * winograd_tiles(shape, phase, WINOGRAD_NONFUSED)
    if phase is Phase.FORWARD:
        return TiledProduct(shape.k, squares, shape.c, count=points)
    if phase is Phase.BACKWARD_DATA:
        return TiledProduct(shape.c, squares, shape.k, count=points)
    summed_bytes = FLOAT_BYTES * points * shape.c * shape.k
    return TiledProduct(shape.k, shape.c, squares, splits_depth=True, summed_bytes=summed_bytes, count=points)


def gemm_product(shape: ConvolutionShape, groups: int, phase: Phase) -> TiledProduct:
    """Return implicit GEMM of all groups at once; `shape` is that of one."""
    positions, filter_elements = shape.n * shape.output_pixels, shape.c * shape.window
    if phase is Phase.FORWARD:
        return TiledProduct(shape.k, positions, filter_elements, count=groups)
    if phase is Phase.BACKWARD_DATA:
        depth = shape.k * shape.window * shape.output_pixels / shape.input_pixels
        return TiledProduct(shape.c, shape.n * shape.input_pixels, depth, count=groups)
    summed_bytes = FLOAT_BYTES * groups * shape.w_elements
    return TiledProduct(shape.k, filter_elements, positions, splits_depth=True, summed_bytes=summed_bytes, count=groups)


def tensor_product(element_type: ElementType, shape: ConvolutionShape, groups: int, phase: Phase) -> TiledProduct:
    """Return the same on tensor cores, whose tiles of volumes have 64 rows or more."""
    product = gemm_product(*tiled(element_type, shape, groups), phase)
    return replace(product, tile_rows=TILE_ROWS[1:]) if shape.is_volume else product
