"""Seconds and DRAM traffic of convolutions and products under cuDNN 4 to 6, by hand on the toy machine.

It has 4096 FLOP/s, half of it for implicit GEMM, 1024 B/s, of which kernels sustain half, and an overhead of 1 s.
"""

from dataclasses import replace

import pytest

from tests.machines import shipped_server
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_bytes, bias_s, convolution_bytes, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.maxwell import kernel_s
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.tiled_product import TiledProduct, tiled_product_s
from vdnnsim.cost.workspace import (
    FFT,
    FFT_TILING,
    GEMM,
    IMPLICIT_GEMM,
    IMPLICIT_PRECOMP_GEMM,
    WINOGRAD,
    WINOGRAD_NONFUSED,
)
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
SMALL = ConvolutionShape(n=1, c=1, k=32, input_size=(8, 8), kernel=(1, 1))
"""X 64, W 32, Y 2048 elements, 8576 B together: as a product 32 x 64 over 1, exactly one of the smallest tiles."""
PADDED = replace(SMALL, kernel=(3, 3), padding=(1, 1))
TALL = ConvolutionShape(n=1, c=1, k=1, input_size=(65, 1), kernel=(1, 1))
TILED = ConvolutionShape(n=1, c=1, k=1, input_size=(31, 31), kernel=(3, 3), padding=(1, 1))
SQUARE = ConvolutionShape(n=1, c=2, k=32, input_size=(16, 16), kernel=(3, 3), padding=(1, 1))
"""X 512, W 576, Y 8192 elements, 37,120 B together; 64 squares of 2 x 2 pixels, 16 of 4 x 4."""


@pytest.fixture
def winograd_machine(toy_machine: Machine) -> Machine:
    """The toy with Winograd: fused multiplications at half of the peak, transforms at a quarter of DRAM bandwidth."""
    winograd = {"winograd_flop_fraction": 0.5, "winograd_dram_fraction": 0.25}
    return replace(toy_machine, parameters=replace(toy_machine.parameters, **winograd))


@pytest.mark.parametrize(
    ("multiprocessors", "product", "seconds"),
    [
        # 33 x 64 over 10 takes two tiles of 32 x 64, or one of 64 x 64: 2 x 4096 x 10 FLOPs.
        (1, TiledProduct(33, 64, 10), 20.0),
        # Unsplit, two tiles of 32 x 64 take one wave: 2 x 2048 x 64 x 4 / 4096, half of the machine idle.
        (4, TiledProduct(32, 128, 64), 256.0),
        # Split, four tiles of 32 x 128 with a quarter of the depth: 2 x 4096 x 16 x 4 / 4096.
        (4, TiledProduct(32, 128, 64, splits_depth=True), 128.0),
        # A result of 8192 B is written and read in 32 s by each split: in quarters 128 s beside 128 s.
        (4, TiledProduct(32, 128, 64, splits_depth=True, summed_bytes=8192), 256.0),
        # A tile of 128 x 64 instead of 32 x 64: 2 x 8192 / 4096 s.
        (1, TiledProduct(32, 64, 1), 1.0),
        (1, TiledProduct(32, 64, 1, tile_rows=(128,)), 4.0),
    ],
)
def test_a_product_is_computed_in_whole_tiles(
    toy_machine: Machine, multiprocessors: int, product: TiledProduct, seconds: float
) -> None:
    machine = replace(toy_machine, multiprocessors=multiprocessors)
    assert tiled_product_s(machine.multiplying_at(1.0), product) == seconds
    if not product.summed_bytes:
        assert tiled_product_s(machine.multiplying_at(0.5), product) == 2 * seconds


def test_loads_starts_and_the_tail_cost_time(toy_machine: Machine) -> None:
    """One tile of 32 x 64 over 10; loads of 1 a step and element, 6 steps to start, one wave of tail.

    step 2048 + 96 = 2144; depth 10 + 6 = 16; waves 1 + 1 = 2: 2 x 2 x 2144 x 16 / 4096 = 33.5 s.
    """
    parameters = replace(toy_machine.parameters, tile_load_flop=1.0, tile_start_depth=6.0, idle_tail_waves=1.0)
    machine = replace(toy_machine, parameters=parameters)
    assert tiled_product_s(machine.multiplying_at(1.0), TiledProduct(32, 64, 10)) == 33.5


@pytest.mark.parametrize(
    ("shape", "phase", "algorithm", "nbytes", "seconds"),
    [
        # 8576 B at 512 B/s are 16.75 s; the product 2 x 128 x 64 / 2048 FLOP/s only 8 s.
        (SMALL, F, IMPLICIT_GEMM, 8576, 17.75),
        # 32 x 1 over 64 in a tile of 32 x 128: 128 s; adding to dW, 128 B, twice 0.5 s; two kernels.
        (SMALL, W, IMPLICIT_PRECOMP_GEMM, 8576, 130.5),
        # A tile of 128 x 128 at half of the rate: 2 x 16384 x 64 / 2048 = 1024 s.
        (SMALL, W, IMPLICIT_GEMM, 8576, 1026.5),
        # 1 x 1 needs no columns: 1 s of product.
        (SMALL, F, GEMM, 8576, 2.0),
        # W has 288 elements, and 576 columns are written and read: 4 (64 + 288 + 2048 + 2 x 576). X 64 and the columns,
        # 2560 B at 512 B/s = 5 s; a product over 9 in 9 s; two kernels.
        (PADDED, F, GEMM, 14208, 16.0),
        # b = 1152 B (16 x 9 complex numbers) for 65 maps, written and read: 158336 B = 309.25 s; 1152 x 32 FLOPs = 9 s.
        (SMALL, F, FFT, 158336, 322.25),
        # b = 66560 B (128 x 65), beyond shared memory: 4 x 66560 x 3 and 524 B; 66560 FLOPs = 16.25 s; four kernels.
        (TALL, F, FFT, 524 + 798720, (524 + 798720) / 512 + 16.25 + 4),
        # 2 x 2 tiles: 7724 + 2 x 4352 (1 + 4 x 2) = 86060 B; 4352 x 4 FLOPs = 4.25 s; four kernels.
        (TILED, D, FFT_TILING, 86060, 86060 / 512 + 4.25 + 4),
    ],
)
def test_traffic_and_seconds_by_algorithm(
    toy_machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str, nbytes: int, seconds: float
) -> None:
    assert convolution_bytes(toy_machine, shape, phase, algorithm) == nbytes
    assert convolution_s(toy_machine, shape, phase, algorithm) == seconds


@pytest.mark.parametrize(
    ("shape", "phase", "algorithm", "seconds"),
    [
        (SMALL, F, IMPLICIT_GEMM, 9.0),
        # With precomputed indices a tile of 32 x 64: 2 x 2048 / 4096 = 1 s.
        (SMALL, F, IMPLICIT_PRECOMP_GEMM, 2.0),
        # 1 channel gathers as 1 x 64 over 32, padded to 32 x 64: 2 x 2048 x 32 / 4096 = 32 s.
        (SMALL, D, IMPLICIT_PRECOMP_GEMM, 33.0),
        # Scattering computes 1 row, padded to 128 x 64, over 32 + 1 steps at half the peak: 2 x 8192 x 33 / 2048.
        (SMALL, D, IMPLICIT_GEMM, 265.0),
        # 8 x 8 pixels with stride 2 leave 4 x 4: the gradient costs as if dY were 8 x 8.
        (replace(SMALL, stride=(2, 2)), D, IMPLICIT_PRECOMP_GEMM, 33.0),
    ],
)
def test_arithmetic_by_algorithm_at_a_thousand_times_the_bandwidth(
    toy_machine: Machine, shape: ConvolutionShape, phase: Phase, algorithm: str, seconds: float
) -> None:
    fast_memory = replace(toy_machine, dram_bytes_per_s=1024e3)
    assert convolution_s(fast_memory, shape, phase, algorithm) == seconds


@pytest.mark.parametrize(("phase", "nbytes", "seconds"), [(F, 16384, 33.0), (D, 0, 0.0), (W, 8192, 17.0)])
def test_bias_streams_y(toy_machine: Machine, phase: Phase, nbytes: int, seconds: float) -> None:
    """Y has 8192 B at 512 B/s: forward reads and writes it, the weight gradient reads it; 1 s overhead."""
    assert bias_bytes(toy_machine, SMALL, phase) == nbytes
    assert bias_s(toy_machine, SMALL, phase) == seconds
    assert bias_s(toy_machine, replace(SMALL, bias=False), phase) == 0.0


@pytest.mark.parametrize(
    ("flop", "nbytes", "seconds"),
    [
        ({Arithmetic.ELEMENTWISE: 4096}, 1024, 3.0),
        ({Arithmetic.ELEMENTWISE: 0}, 512, 2.0),
        # Products sustain half of the peak here: 20 s instead of 10.
        ({Arithmetic.PRODUCT: 40960}, 1024, 21.0),
        ({Arithmetic.ELEMENTWISE: 40960}, 0, 11.0),
        ({Arithmetic.PRODUCT: 40960, Arithmetic.ELEMENTWISE: 40960}, 0, 31.0),
    ],
)
def test_other_kernels_are_a_roofline(
    toy_machine: Machine, flop: dict[Arithmetic, int], nbytes: int, seconds: float
) -> None:
    """Bytes at 512 B/s, or FLOPs at 4096 FLOP/s, and 1 s overhead."""
    machine = replace(toy_machine, parameters=replace(toy_machine.parameters, product_flop_fraction=0.5))
    assert kernel_s(machine, flop, nbytes) == seconds


@pytest.mark.parametrize(
    ("phase", "algorithm", "nbytes", "seconds", "fast_s"),
    [
        # Multiplies 16 of 36 times, 32 x 256 over 2 x 16 / 4 = 8: 2 x 32 x 256 x 8 / 2048 = 64 s. The filters are
        # written and read, 2 x 64 x 2 x 32 B, in two kernels.
        (F, WINOGRAD, 37_120 + 8_192, 45_312 / 512 + 2, 64 + 2),
        # 36 products of 32 x 16, each a tile of 32 x 64, over 2: 36 x 2 x 2048 x 2 / 4096 = 72 s. The workspace,
        # 144 (64 + 16 x 34) B, is written and read.
        (F, WINOGRAD_NONFUSED, 212_224, 212_224 / 256 + 72 + 4, 72 + 4),
        # 36 products of 32 x 2, each a tile of 32 x 128, over 16 squares: 1152 s; their result, 9216 B, is written and
        # read at 512 B/s in 36 s.
        (W, WINOGRAD_NONFUSED, 212_224, (212_224 - 18_432) / 256 + 1152 + 36 + 4, 1152 + 4),
    ],
)
def test_winograd_multiplies_less_and_moves_what_it_transforms(
    winograd_machine: Machine, phase: Phase, algorithm: str, nbytes: int, seconds: float, fast_s: float
) -> None:
    assert convolution_bytes(winograd_machine, SQUARE, phase, algorithm) == nbytes
    assert convolution_s(winograd_machine, SQUARE, phase, algorithm) == seconds
    fast_memory = replace(winograd_machine, dram_bytes_per_s=1e12)
    assert convolution_s(fast_memory, SQUARE, phase, algorithm) == pytest.approx(fast_s)


def test_the_data_gradient_of_winograd_computes_the_map_of_the_input(winograd_machine: Machine) -> None:
    """Without padding Y has 14 x 14 pixels: 49 squares of 2 x 2 are four tiles of 64 pixels, as 64 squares are."""
    shape = replace(SQUARE, c=32, padding=(0, 0))
    fast = replace(winograd_machine, dram_bytes_per_s=1e9)
    assert convolution_s(fast, shape, F, WINOGRAD) == pytest.approx(convolution_s(fast, shape, D, WINOGRAD))


def test_a_profile_says_whether_its_library_has_winograd(toy_server: Server, toy_parameters: CostParameters) -> None:
    """VGG's second layer: 32 images of 64 to 64 channels; the toy without has none of them."""
    workload = Workload(build_network("vgg16"), 32)
    winograd = {"winograd_flop_fraction": 0.5, "winograd_dram_fraction": 0.25}
    layer = next(layer.index for layer in workload.graph.layers if layer.name == "conv1_2")

    def offered(server: Server) -> set[str]:
        return {option.algorithm for option in ServerCosts(server).table(workload).options(layer, Phase.FORWARD)}

    without = offered(toy_server)
    assert not toy_parameters.has_winograd
    assert not without & {WINOGRAD, WINOGRAD_NONFUSED}
    having = replace(toy_server, cost_model={**toy_server.cost_model, **winograd})
    assert offered(having) == without | {WINOGRAD, WINOGRAD_NONFUSED}


def test_both_parameters_of_winograd_are_stated_or_none(toy_server: Server) -> None:
    stated = {name: value for name, value in toy_server.cost_model.items() if not name.startswith("winograd")}
    assert CostParameters.from_mapping("toy", stated) == CostParameters.from_mapping("toy", toy_server.cost_model)
    with pytest.raises(ProfileError, match="lacks winograd_dram_fraction"):
        CostParameters.from_mapping("toy", {**stated, "winograd_flop_fraction": 0.5})
    with pytest.raises(ProfileError, match="winograd_dram_fraction: found 0"):
        CostParameters.from_mapping("toy", {**stated, "winograd_flop_fraction": 0.5, "winograd_dram_fraction": 0.0})


@pytest.mark.parametrize(("network", "batch_size"), [("vgg16", 64), ("googlenet", 128)])
def test_no_kernel_exceeds_the_peak_of_the_dram(network: str, batch_size: int) -> None:
    """Of all algorithms on offer, for traffic and seconds come from one model; rooflines move what is compulsory."""
    titan_x = shipped_server("titan_x_maxwell")
    workload = Workload(build_network(network), batch_size, optimizer=Optimizer.SGD)
    table = ServerCosts(titan_x).table(workload)
    for (index, phase), options in table.kernels.items():
        assert all(0 < each.dram_bytes / each.seconds <= 336e9 * (1 + 1e-12) for each in options)
        layer = workload.graph.layers[index]
        if layer.kind is not LayerKind.CONV or phase is Phase.UPDATE:
            assert options[0].dram_bytes == workload.bytes_moved(layer, phase)


def test_a_tiled_convolution_moves_all_tiles_twice_and_its_bias() -> None:
    """conv1_2 of VGG-16 (64): 64 to 64 channels of 224 x 224 pixels under 3 x 3.

    A tile yields 30 x 30 pixels, so that 8 x 8 cover the map; X and Y have 64 x 64 x 50176 elements each.

        operands    4 (2 x 205,520,896 + 36,864)                      1,644,314,624 B
        tiles       2 x 4352 (64 x 64 + 64 x 64 (64 + 64))            4,599,054,336 B
        bias        2 x 4 x 205,520,896                               1,644,167,168 B

    Together they are 40.7 % of the 336 GB/s of the DRAM over the time of the kernel.
    """
    workload = Workload(build_network("vgg16"), 64)
    conv1_2 = next(layer.index for layer in workload.graph.layers if layer.name == "conv1_2")
    titan_x = shipped_server("titan_x_maxwell")
    kernel = ServerCosts(titan_x).table(workload).find(conv1_2, Phase.FORWARD, FFT_TILING)
    assert kernel.dram_bytes == 1_644_314_624 + 4_599_054_336 + 1_644_167_168
    assert kernel.dram_bytes / kernel.seconds / 336e9 == pytest.approx(0.407, abs=0.0005)
    with pytest.raises(KeyError, match="no algorithm 'winograd'"):
        ServerCosts(titan_x).table(workload).find(conv1_2, Phase.FORWARD, WINOGRAD)
