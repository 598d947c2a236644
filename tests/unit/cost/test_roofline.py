"""A machine of which only a datasheet is known: 50 FLOP/s in float32, 100 in bfloat16, 320 B/s, a launch of 1 s.

One image of 5 elements through conv (30 weights) and fc (6 weights): conv forward computes 50 FLOPs and moves 20 + 120
+ 20 = 160 B of float32, fc forward 10 FLOPs and 20 + 24 + 4 = 48 B, the update of fc by SGD 12 FLOPs and 72 B.
"""

from dataclasses import replace

import pytest

from tests.refusals import refusal
from tests.toy import server_with, toy_chain
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.roofline import RooflineCosts
from vdnnsim.cost.table import ONLY, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Figure, Origin
from vdnnsim.units import ElementType

WORKLOAD = Workload(toy_chain(1), 1, optimizer=Optimizer.SGD)
CONV, FC = 0, 1


def kernel(layer: int, phase: Phase, workload: Workload = WORKLOAD, /, **fractions: float) -> KernelCost:
    (found,) = ServerCosts(server_with({"launch_overhead_s": 1.0, **fractions})).table(workload).options(layer, phase)
    return found


def test_a_kernel_takes_the_longer_of_its_flop_and_its_bytes_and_its_launch() -> None:
    """conv: 50 FLOPs take 1 s, 160 B half of it. fc: 0.2 s and 0.15 s. The update: 12 / 50 s and 72 / 320 s.

    At a quarter of the bandwidth 160 B take 2 s, 48 B take 0.6 s.
    """
    assert kernel(CONV, Phase.FORWARD) == KernelCost(ONLY, 2.0, 0, Origin.DATASHEET, dram_bytes=160)
    assert kernel(FC, Phase.FORWARD).seconds == pytest.approx(1.2)
    assert kernel(FC, Phase.UPDATE).seconds == pytest.approx(1.24)
    assert kernel(CONV, Phase.FORWARD, dram_fraction=0.25).seconds == 3.0
    assert kernel(FC, Phase.FORWARD, dram_fraction=0.25).seconds == pytest.approx(1.6)


def test_on_fewer_multiprocessors_arithmetic_takes_longer_and_traffic_does_not() -> None:
    """On three of four, 50 FLOPs of conv take 4 / 3 s; 48 B of fc, at a quarter of the bandwidth, 0.6 s as before."""
    server = server_with({"launch_overhead_s": 1.0, "fc_dram_fraction": 0.25})
    costs = ServerCosts(replace(server, gpu=replace(server.gpu, multiprocessors=4))).on_multiprocessors(3)

    assert costs.table(WORKLOAD).fastest(CONV, Phase.FORWARD).seconds == pytest.approx(1 + 4 / 3)
    assert costs.table(WORKLOAD).fastest(FC, Phase.FORWARD).seconds == pytest.approx(1.6)
    assert kernel(FC, Phase.UPDATE, sgd_dram_fraction=0.5).seconds == pytest.approx(1.45)
    # In bfloat16 50 FLOPs take 0.5 s and 80 B a quarter; at a tenth of the peak 5 s.
    half = replace(WORKLOAD, element_type=ElementType.BFLOAT16)
    assert kernel(CONV, Phase.FORWARD, half) == KernelCost(ONLY, 1.5, 0, Origin.DATASHEET, dram_bytes=80)
    assert kernel(CONV, Phase.FORWARD, half, conv_bfloat16_flop_fraction=0.1).seconds == pytest.approx(6.0)
    assert kernel(CONV, Phase.FORWARD, conv_bfloat16_flop_fraction=0.1).seconds == 2.0


def test_the_nearest_fraction_that_is_stated_counts() -> None:
    """Of 50 FLOPs at 50 FLOP/s: 1 s over a tenth, a fifth, a quarter, a half. fc takes 0.2 s over a quarter."""
    stated = {"conv_float32": 0.1, "conv": 0.2, "float32": 0.25, "": 0.5}
    fractions = {f"{what}_flop_fraction".strip("_"): each for what, each in stated.items()}
    assert kernel(FC, Phase.FORWARD, **fractions).seconds == pytest.approx(1.8)
    found = []
    for nearest in tuple(fractions):
        found.append(kernel(CONV, Phase.FORWARD, **fractions).seconds)
        del fractions[nearest]

    assert found == pytest.approx([11.0, 6.0, 5.0, 3.0])


def test_times_are_as_good_as_the_parameters() -> None:
    fitted = Figure("cost_model.flop_fraction", "0.5", Origin.FITTED, "a fit")
    parameters = {"launch_overhead_s": 1.0, "flop_fraction": 0.5}
    table = RooflineCosts(server_with(parameters, fitted)).table(WORKLOAD)

    assert kernel(CONV, Phase.FORWARD, flop_fraction=0.5).origin is Origin.ASSUMED
    assert table.fastest(CONV, Phase.FORWARD).origin is Origin.FITTED


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "lacks launch_overhead_s"),
        ({"flop_fraction": 0.5}, "lacks launch_overhead_s"),
        ({"conv_flops_fraction": 0.5}, "'conv_flops_fraction' is not a parameter of a roofline; did you mean"),
        ({"swim_flop_fraction": 0.5}, "'swim_flop_fraction' is not a parameter of a roofline"),
        ({"flop_fraction": 0.0}, "flop_fraction: found 0.0"),
        ({"fc_dram_fraction": 1.5}, "fc_dram_fraction: found 1.5"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, float], message: str) -> None:
    overhead = {} if message.startswith("lacks") else {"launch_overhead_s": 1.0}
    said = refusal(ProfileError, RooflineCosts, server_with(overhead | parameters))
    # A parameter out of range is named by its path.
    assert said.replace("cost_model.", "cost_model: ").startswith(f"toy: cost_model: {message}")
