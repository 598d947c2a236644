"""The DRAM traffic in the cost tables of the Titan X."""

from pathlib import Path

import pytest

from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.workspace import FFT_TILING
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Server


@pytest.fixture(scope="module")
def titan_x() -> Server:
    return read_profile(Path(__file__).parents[3] / "hw_profiles" / "titan_x_maxwell.yaml")


@pytest.mark.parametrize(("network", "batch_size"), [("vgg16", 64), ("googlenet", 128)])
def test_no_kernel_exceeds_the_peak_of_the_dram(titan_x: Server, network: str, batch_size: int) -> None:
    """Of all algorithms on offer, for traffic and seconds come from one model."""
    table = ServerCosts(titan_x).table(Workload(build_network(network), batch_size, optimizer=Optimizer.SGD))
    utilizations = [
        option.dram_bytes / option.seconds / titan_x.gpu.dram_bytes_per_s
        for options in table.kernels.values()
        for option in options
    ]
    assert min(utilizations) > 0
    assert max(utilizations) <= 1 + 1e-12


def test_a_tiled_convolution_moves_all_tiles_twice_and_its_bias(titan_x: Server) -> None:
    """conv1_2 of VGG-16 (64): 64 to 64 channels of 224 x 224 pixels under 3 x 3.

    A tile yields 30 x 30 pixels, so that 8 x 8 cover the map; X and Y have 64 x 64 x 50176 elements each.

        operands    4 (2 x 205,520,896 + 36,864)                      1,644,314,624 B
        tiles       2 x 4352 (64 x 64 + 64 x 64 (64 + 64))            4,599,054,336 B
        bias        2 x 4 x 205,520,896                               1,644,167,168 B

    Together they are 40.7 % of the 336 GB/s of the DRAM over the time of the kernel.
    """
    workload = Workload(build_network("vgg16"), 64)
    conv1_2 = next(layer.index for layer in workload.graph.layers if layer.name == "conv1_2")

    kernel = ServerCosts(titan_x).table(workload).find(conv1_2, Phase.FORWARD, FFT_TILING)

    assert kernel.dram_bytes == 1_644_314_624 + 4_599_054_336 + 1_644_167_168
    assert kernel.dram_bytes / kernel.seconds / 336e9 == pytest.approx(0.407, abs=0.0005)


def test_a_roofline_moves_its_compulsory_traffic(titan_x: Server) -> None:
    workload = Workload(build_network("alexnet"), 128, optimizer=Optimizer.SGD)
    table = ServerCosts(titan_x).table(workload)
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            if layer.kind is not LayerKind.CONV or phase is Phase.UPDATE:
                assert table.fastest(layer.index, phase).dram_bytes == workload.bytes_moved(layer, phase)
