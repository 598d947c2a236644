from dataclasses import replace

import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import convolution_bytes, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.workspace import WINOGRAD, WINOGRAD_NONFUSED
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server

SQUARE = ConvolutionShape(n=1, c=2, k=32, input_size=(16, 16), kernel=(3, 3), padding=(1, 1))
"""X 512, W 576, Y 8192 elements: 64 squares of 2 x 2 pixels, 16 of 4 x 4."""


@pytest.fixture
def machine(toy_machine: Machine) -> Machine:
    """4096 FLOP/s, 1024 B/s; multiplications of fused Winograd at half the peak, transforms at a quarter of DRAM's."""
    parameters = replace(toy_machine.parameters, winograd_flop_fraction=0.5, winograd_dram_fraction=0.25)
    return replace(toy_machine, parameters=parameters)


def test_fused_winograd_multiplies_16_of_36_times(machine: Machine) -> None:
    """A product of 32 x 256 over 2 x 16 / 4 = 8: 2 x 32 x 256 x 8 / (4096 / 2) = 64 s.

    Traffic: (512 + 576 + 8192) 4 B and twice the filters, 2 x 64 x 2 x 32 B, are 45,312 B: 88.5 s at 512 B/s, which is
    longer; and two kernels.
    """
    nbytes = 4 * (512 + 576 + 8192) + 2 * 64 * 2 * 32
    assert convolution_bytes(machine, SQUARE, Phase.FORWARD, WINOGRAD) == nbytes == 45_312
    assert convolution_s(machine, SQUARE, Phase.FORWARD, WINOGRAD) == nbytes / 512 + 2
    fast = replace(machine, dram_bytes_per_s=1e9)
    assert convolution_s(fast, SQUARE, Phase.FORWARD, WINOGRAD) == pytest.approx(64 + 2)


def test_winograd_that_is_not_fused_crosses_memory_between_its_steps(machine: Machine) -> None:
    """36 products of 32 x 16, each a tile of 32 x 64, over 2: 36 x 2 x 2048 x 2 / 4096 = 72 s.

    Workspace 144 (64 + 16 x 34) = 87,552 B, written and read, beside 37,120 B: 212,224 B at 256 B/s, and four kernels.
    """
    nbytes = 4 * (512 + 576 + 8192) + 2 * 144 * (2 * 32 + 16 * 34)
    assert convolution_bytes(machine, SQUARE, Phase.FORWARD, WINOGRAD_NONFUSED) == nbytes == 212_224
    assert convolution_s(machine, SQUARE, Phase.FORWARD, WINOGRAD_NONFUSED) == nbytes / 256 + 72 + 4


def test_its_weight_gradient_sums_in_memory(machine: Machine) -> None:
    """36 products of 32 x 2, each a tile of 32 x 128, over 16 squares: 36 x 2 x 4096 x 16 / 4096 = 1152 s unsplit.

    Their result, 36 x 2 x 32 x 4 = 9216 B, is written and read at 512 B/s: 36 s. Split, its parts cost that each, and
    the lone multiprocessor gains nothing. The other 212,224 - 18,432 B take their time at 256 B/s.
    """
    seconds = convolution_s(machine, SQUARE, Phase.BACKWARD_WEIGHTS, WINOGRAD_NONFUSED)
    assert seconds == (212_224 - 18_432) / 256 + 1152 + 36 + 4


def test_the_data_gradient_computes_the_map_of_the_input(machine: Machine) -> None:
    """Without padding Y has 14 x 14 pixels, 4 x 4 squares of 4 as its X of 16 x 16; K and C change places."""
    shape = replace(SQUARE, c=32, padding=(0, 0))
    fast = replace(machine, dram_bytes_per_s=1e9)
    forward, data = (convolution_s(fast, shape, phase, WINOGRAD) for phase in (Phase.FORWARD, Phase.BACKWARD_DATA))
    # 49 squares of 2 x 2 are 196 pixels, four tiles of 64 either way; 64 squares are 256.
    assert forward == pytest.approx(data)


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
