from dataclasses import replace

import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_bytes, bias_s, convolution_bytes, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.maxwell import kernel_s
from vdnnsim.cost.tiled_product import TiledProduct, tiled_product_s
from vdnnsim.cost.transfer import copy_s, pin_s
from vdnnsim.cost.workspace import FFT, FFT_TILING, GEMM, IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server

SMALL = ConvolutionShape(n=1, c=1, k=32, input_size=(8, 8), kernel=(1, 1))
"""X 64, W 32, Y 2048 elements: as a product 32 x 64 over 1, exactly one of the smallest tiles."""


def test_a_product_is_padded_to_whole_tiles(toy_machine: Machine) -> None:
    """33 x 64 over 10 takes two tiles of 32 x 64, or one of 64 x 64: 4096 multiply-adds a step.

    2 x 4096 x 10 FLOPs / 4096 FLOP/s = 20 s; at half the peak 40 s.
    """
    product = TiledProduct(rows=33, columns=64, depth=10)
    assert tiled_product_s(toy_machine.multiplying_at(1.0), product) == 20.0
    assert tiled_product_s(toy_machine.multiplying_at(0.5), product) == 40.0


def test_loads_starts_and_the_tail_cost_time(toy_machine: Machine) -> None:
    """One tile of 32 x 64 over 10; loads of 1 a step and element, 6 steps to start, one wave of tail.

    step 2048 + 96 = 2144; depth 10 + 6 = 16; waves 1 + 1 = 2: 2 x 2 x 2144 x 16 / 4096 = 33.5 s. A larger tile takes
    more: 64 x 64 has a step of 4096 + 128.
    """
    parameters = replace(toy_machine.parameters, tile_load_flop=1.0, tile_start_depth=6.0, idle_tail_waves=1.0)
    machine = replace(toy_machine, parameters=parameters)
    assert tiled_product_s(machine.multiplying_at(1.0), TiledProduct(32, 64, 10)) == 33.5


def test_a_lone_tile_leaves_multiprocessors_idle_unless_its_depth_is_split(toy_machine: Machine) -> None:
    """32 x 128 over 64 on four multiprocessors at 4096 FLOP/s together.

    Unsplit, two tiles of 32 x 64 take one wave: 2 x 2048 x 64 x 4 / 4096 = 256 s, half of the machine idle. Split, four
    tiles of 32 x 128 with a quarter of the depth take 2 x 4096 x 16 x 4 / 4096 = 128 s.
    """
    machine = replace(toy_machine, multiprocessors=4)
    assert tiled_product_s(machine.multiplying_at(1.0), TiledProduct(32, 128, 64)) == 256.0
    assert tiled_product_s(machine.multiplying_at(1.0), TiledProduct(32, 128, 64, splits_depth=True)) == 128.0


def test_each_split_adds_its_part_in_memory(toy_machine: Machine) -> None:
    """As above with a result of 8192 B: a read and a write of it at 512 B/s take 32 s a split.

    Whole: 2 x 4096 x 64 x 4 / 4096 = 512 s and 32 s; in halves 256 s and 64 s; in quarters 128 s and 128 s.
    """
    machine = replace(toy_machine, multiprocessors=4)
    assert (
        tiled_product_s(machine.multiplying_at(1.0), TiledProduct(32, 128, 64, splits_depth=True, summed_bytes=8192))
        == 256.0
    )


def test_a_product_may_have_fewer_tiles_to_choose_from(toy_machine: Machine) -> None:
    """32 x 64 over 1 in a tile of 128 x 64: 2 x 8192 / 4096 = 4 s instead of 1 s."""
    assert tiled_product_s(toy_machine.multiplying_at(1.0), TiledProduct(32, 64, 1)) == 1.0
    assert tiled_product_s(toy_machine.multiplying_at(1.0), TiledProduct(32, 64, 1, tile_rows=(128,))) == 4.0


def test_implicit_gemm_is_bound_by_memory_or_arithmetic(toy_machine: Machine) -> None:
    """Traffic 4 (64 + 32 + 2048) = 8576 B at 512 B/s is 16.75 s; the product 2 x 128 x 64 / 2048 FLOP/s only 8 s.

    With 1000 times the bandwidth the product and the overhead of 1 s remain. With precomputed indices a tile of 32 x 64
    takes 2 x 2048 / 4096 = 1 s.
    """
    assert convolution_s(toy_machine, SMALL, Phase.FORWARD, IMPLICIT_GEMM) == 17.75
    fast_memory = replace(toy_machine, dram_bytes_per_s=1024e3)
    assert convolution_s(fast_memory, SMALL, Phase.FORWARD, IMPLICIT_GEMM) == 9.0
    assert convolution_s(fast_memory, SMALL, Phase.FORWARD, IMPLICIT_PRECOMP_GEMM) == 2.0


def test_data_gradient_gathers_or_scatters(toy_machine: Machine) -> None:
    """1 channel gathers as 1 x 64 over 32, padded to 32 x 64: 2 x 2048 x 32 / 4096 = 32 s.

    Scattering computes C R S = 1 row, padded to 128 x 64, over K = 32 steps and 1 to add them to dX, at half the peak:
    2 x 8192 x 33 / 2048 = 264 s.
    """
    machine = replace(toy_machine, dram_bytes_per_s=1024e3)
    assert convolution_s(machine, SMALL, Phase.BACKWARD_DATA, IMPLICIT_PRECOMP_GEMM) == 33.0
    assert convolution_s(machine, SMALL, Phase.BACKWARD_DATA, IMPLICIT_GEMM) == 265.0


def test_data_gradient_of_a_strided_convolution_multiplies_inserted_zeros(toy_machine: Machine) -> None:
    """8 x 8 pixels with stride 2 leave 4 x 4: the gradient costs as if dY were 8 x 8."""
    machine = replace(toy_machine, dram_bytes_per_s=1024e3)
    strided = replace(SMALL, stride=(2, 2))
    assert convolution_s(machine, strided, Phase.BACKWARD_DATA, IMPLICIT_PRECOMP_GEMM) == 33.0


def test_weight_gradient_reduces_over_positions(toy_machine: Machine) -> None:
    """32 x 1 over 64 positions in one tile of 32 x 128: 2 x 4096 x 64 / 4096 = 128 s.

    Adding to dW, 128 B, twice at 512 B/s: 0.5 s; two kernels 2 s. Implicit GEMM takes a tile of 128 x 128 and has half
    of the rate: 2 x 16384 x 64 / 2048 = 1024 s.
    """
    assert convolution_s(toy_machine, SMALL, Phase.BACKWARD_WEIGHTS, IMPLICIT_PRECOMP_GEMM) == 130.5
    assert convolution_s(toy_machine, SMALL, Phase.BACKWARD_WEIGHTS, IMPLICIT_GEMM) == 1026.5


def test_explicit_gemm_writes_the_columns_and_reads_them(toy_machine: Machine) -> None:
    """1 x 1 needs no columns: 1 s of product and the overhead.

    3 x 3 with padding: X 64 and 64 x 9 = 576 columns, 4 x 640 = 2560 B at 512 B/s = 5 s, a product over 9 in 9 s, and
    the overhead of two kernels.
    """
    assert convolution_s(toy_machine, SMALL, Phase.FORWARD, GEMM) == 2.0
    padded = replace(SMALL, kernel=(3, 3), padding=(1, 1))
    assert convolution_s(toy_machine, padded, Phase.FORWARD, GEMM) == 16.0


def test_fft_reads_real_maps_and_moves_complex_ones_twice(toy_machine: Machine) -> None:
    """8 x 8 pixels transform as 16 x 9 complex numbers: b = 1152 B, for 1 + 32 + 32 = 65 maps.

    8576 + 2 x 1152 x 65 = 158336 B at 512 B/s = 309.25 s; 1152 x 32 FLOPs = 9 s; four kernels 4 s.
    """
    assert convolution_s(toy_machine, SMALL, Phase.FORWARD, FFT) == 322.25


def test_fft_beyond_shared_memory_moves_complex_maps_four_times(toy_machine: Machine) -> None:
    """65 x 1 pixels transform as 128 x 65: b = 66560 B; one map each of X, W and Y.

    4 (65 + 1 + 65) = 524 B and 4 x 66560 x 3 = 798720 B at 512 B/s; 66560 FLOPs = 16.25 s; four kernels.
    """
    shape = ConvolutionShape(1, 1, 1, (65, 1), (1, 1))
    assert convolution_s(toy_machine, shape, Phase.FORWARD, FFT) == (524 + 798720) / 512 + 16.25 + 4


def test_fft_tiling_transforms_tiles(toy_machine: Machine) -> None:
    """31 x 31 pixels under 3 x 3 need 2 x 2 tiles; real bytes 4 (961 + 9 + 961) = 7724.

    7724 + 2 x 4352 (1 + 4 x 2) = 86060 B at 512 B/s; 4352 x 4 FLOPs = 4.25 s; four kernels.
    """
    shape = ConvolutionShape(1, 1, 1, (31, 31), (3, 3), padding=(1, 1))
    assert convolution_s(toy_machine, shape, Phase.BACKWARD_DATA, FFT_TILING) == 86060 / 512 + 4.25 + 4


@pytest.mark.parametrize(
    ("phase", "nbytes", "seconds"),
    [(Phase.FORWARD, 16384, 33.0), (Phase.BACKWARD_DATA, 0, 0.0), (Phase.BACKWARD_WEIGHTS, 8192, 17.0)],
)
def test_bias_streams_y(toy_machine: Machine, phase: Phase, nbytes: int, seconds: float) -> None:
    """Y has 8192 B at 512 B/s: forward reads and writes it, the weight gradient reads it; 1 s overhead."""
    assert bias_bytes(toy_machine, SMALL, phase) == nbytes
    assert bias_s(toy_machine, SMALL, phase) == seconds


def test_where_there_is_no_bias_nothing_is_launched_for_it(toy_machine: Machine) -> None:
    assert bias_s(toy_machine, replace(SMALL, bias=False), Phase.FORWARD) == 0.0


PADDED = ConvolutionShape(n=1, c=1, k=32, input_size=(8, 8), kernel=(3, 3), padding=(1, 1))
TALL = ConvolutionShape(n=1, c=1, k=1, input_size=(65, 1), kernel=(1, 1))
TILED = ConvolutionShape(n=1, c=1, k=1, input_size=(31, 31), kernel=(3, 3), padding=(1, 1))


@pytest.mark.parametrize(
    ("shape", "phase", "algorithm", "nbytes"),
    [
        (SMALL, Phase.BACKWARD_WEIGHTS, IMPLICIT_GEMM, 8576),
        (SMALL, Phase.FORWARD, IMPLICIT_PRECOMP_GEMM, 8576),
        (SMALL, Phase.FORWARD, GEMM, 8576),
        (PADDED, Phase.FORWARD, GEMM, 14208),
        (SMALL, Phase.FORWARD, FFT, 158336),
        (TALL, Phase.FORWARD, FFT, 799244),
        (TILED, Phase.BACKWARD_DATA, FFT_TILING, 86060),
    ],
)
def test_traffic_is_that_of_every_pass(
    toy_machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str, nbytes: int
) -> None:
    """The operands of `SMALL` once are 4 (64 + 32 + 2048) = 8576 B; a 1 x 1 filter needs no columns.

    Under 3 x 3, W has 288 elements, and 576 columns are written and read: 4 (64 + 288 + 2048 + 2 x 576) = 14208 B. The
    rest is worked out above, where FFT takes its seconds from it: 8576 + 2 x 1152 x 65, 524 + 4 x 66560 x 3 beyond
    64 points, and 7724 + 2 x 4352 x 9 for all four tiles, of which the workspace holds two columns at a time.
    """
    assert convolution_bytes(toy_machine, shape, phase, algorithm) == nbytes


@pytest.mark.parametrize(
    ("arithmetic", "flop", "nbytes", "seconds"),
    [
        # ACTV and POOL forward, FC backward, its update without FLOPs.
        (Arithmetic.ELEMENTWISE, 4096, 1024, 3.0),
        (Arithmetic.PRODUCT, 40960, 1024, 11.0),
        (Arithmetic.ELEMENTWISE, 0, 512, 2.0),
    ],
)
def test_roofline(toy_machine: Machine, arithmetic: Arithmetic, flop: int, nbytes: int, seconds: float) -> None:
    """Bytes at 512 B/s, or FLOPs at 4096 FLOP/s, and 1 s overhead."""
    assert kernel_s(toy_machine, {arithmetic: flop}, nbytes) == seconds


def test_only_matrix_products_run_below_the_arithmetic_peak(toy_machine: Machine) -> None:
    """40960 FLOPs take 10 s at 4096 FLOP/s, and 20 s at the half of it that FC sustains here."""
    machine = replace(toy_machine, parameters=replace(toy_machine.parameters, product_flop_fraction=0.5))
    assert kernel_s(machine, {Arithmetic.PRODUCT: 40960}, 0) == 21.0
    assert kernel_s(machine, {Arithmetic.ELEMENTWISE: 40960}, 0) == 11.0
    assert kernel_s(machine, {Arithmetic.PRODUCT: 40960, Arithmetic.ELEMENTWISE: 40960}, 0) == 31.0


def test_copies_and_pinning(toy_server: Server) -> None:
    """20 bytes: 1 + 20 / 10 = 3 s to the GPU, 1 + 20 / 5 = 5 s back, 2 + 20 / 4 = 7 s to pin."""
    assert copy_s(toy_server.link, Direction.H2D, 20) == 3.0
    assert copy_s(toy_server.link, Direction.D2H, 20) == 5.0
    assert pin_s(toy_server.host, 20) == 7.0
