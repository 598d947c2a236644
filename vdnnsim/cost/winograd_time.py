"""How long a 3 x 3 convolution by Winograd's minimal filtering takes, and what it moves through DRAM.

F(m x m, 3 x 3) computes m x m pixels from a square of m + 2, with (m + 2)^2 multiplications for a pair of channels
where the direct method has 9 m^2; each of the (m + 2)^2 points is a matrix product of its own over the squares of all
images.

    fused       m = 2, 16/36 of the multiplications. One kernel transforms in its loop and multiplies, a tiled product
                K x 4 T N over 4 C at winograd_flop_fraction, or the traffic of X, Y and W at stream_dram_fraction,
                whichever takes longer; a small one transforms the filters.
    not fused   m = 4, 36/144 of them. Kernels write X and W transformed, the products read them and write Y
                transformed, another reads that: real maps once and the workspace twice at winograd_dram_fraction, and
                36 tiled products at product_flop_fraction: K x T N over C forward, C x T N over K for the data
                gradient, K x C over T N for the weight gradient.

Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016; the names and the workspaces of
cuDNN (`vdnnsim.cost.workspace`) tell which forms it has.

Known limitation: transforms are counted by their bytes alone.
"""

from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.tiled_product import TiledProduct, tiled_product_s
from vdnnsim.cost.workspace import (
    FLOAT_BYTES,
    WINOGRAD,
    WINOGRAD_NONFUSED,
    WINOGRAD_SIDES,
    winograd_points,
    winograd_tiles,
    workspace_bytes,
)
from vdnnsim.dnn.layers import Phase

FUSED_KERNELS: Final = 2
SEPARATE_KERNELS: Final = 4


def winograd_s(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> float:
    """Return the seconds of one phase, by an algorithm of Winograd's that `algorithms` offers for it."""
    p = machine.parameters
    traffic_s = winograd_bytes(machine, shape, phase, algorithm) / machine.dram_bytes_per_s
    if algorithm == WINOGRAD:
        product_s = tiled_product_s(machine.multiplying_at(p.winograd_flop_fraction), fused_product(shape, phase))
        return max(product_s, traffic_s / p.stream_dram_fraction) + FUSED_KERNELS * p.kernel_overhead_s
    product = separate_product(shape, phase)
    product_s = tiled_product_s(machine.multiplying_at(p.product_flop_fraction), product)
    # The time of the product has the traffic of what it sums in it.
    transforms_s = traffic_s - 2 * product.summed_bytes / machine.dram_bytes_per_s
    return product_s + transforms_s / p.winograd_dram_fraction + SEPARATE_KERNELS * p.kernel_overhead_s


def winograd_bytes(machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str) -> int:
    """Return the DRAM traffic of one phase: X, Y and W, and what is not fused crosses as a write and a read."""
    real_bytes = machine.element_bytes * (shape.x_elements + shape.y_elements + shape.w_elements)
    return real_bytes + 2 * workspace_bytes(shape, phase, algorithm, machine.element_bytes)


def fused_product(shape: ConvolutionShape, phase: Phase) -> TiledProduct:
    """All points as one product over the pixels, each of them computed from fewer multiplications."""
    pixels = WINOGRAD_SIDES[WINOGRAD] ** 2
    squares = shape.n * winograd_tiles(shape, phase, WINOGRAD)
    depth, rows = (shape.k, shape.c) if phase is Phase.BACKWARD_DATA else (shape.c, shape.k)
    return TiledProduct(rows, pixels * squares, depth * winograd_points(WINOGRAD) / pixels)


def separate_product(shape: ConvolutionShape, phase: Phase) -> TiledProduct:
    """One product for each point."""
    points = winograd_points(WINOGRAD_NONFUSED)
    squares = shape.n * winograd_tiles(shape, phase, WINOGRAD_NONFUSED)
    if phase is Phase.FORWARD:
        return TiledProduct(shape.k, squares, shape.c, count=points)
    if phase is Phase.BACKWARD_DATA:
        return TiledProduct(shape.c, squares, shape.k, count=points)
    summed_bytes = FLOAT_BYTES * points * shape.c * shape.k
    return TiledProduct(shape.k, shape.c, squares, splits_depth=True, summed_bytes=summed_bytes, count=points)
