import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.toy import ROOT, TOY_SERVER, ToyCosts, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.claims.vdnn2016.power import PowerCurve, copy_slowdown_bound, power_curve
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Power, Server
from vdnnsim.policies.base import Base
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.units import ElementType, Precision

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
TITAN = ROOT / "hw_profiles" / "titan_x_maxwell.yaml"


def test_the_bound_of_the_paper() -> None:
    """V-B: 16 GB/s of PCIe over 336 GB/s of DRAM is 4.7 %."""
    assert copy_slowdown_bound(read_profile(TITAN)) == pytest.approx(16 / 336)
    # The bound needs the peak of the link.
    message = "toy: link.peak: is missing, expected the peak rate of the link in one direction"
    with pytest.raises(ProfileError, match=message):
        copy_slowdown_bound(TOY_SERVER)


WORKLOAD = toy_workload(toy_chain(1))
_DRAM_BYTES = {LayerKind.CONV: 80, LayerKind.FC: 24, LayerKind.LOSS: 4}


def costs_of(seconds: Mapping[tuple[str, Phase], float], *, default_s: float = 1.0) -> ToyCosts:
    """Toy costs whose kernels move each operand once, X, W and Y: 10 + 60 + 10, 10 + 12 + 2, and 2 + 2 B."""
    return ToyCosts(
        {
            (layer, phase): tuple(
                replace(one, dram_bytes=_DRAM_BYTES[WORKLOAD.graph.layers[layer].kind]) for one in options
            )
            for (layer, phase), options in toy_costs(WORKLOAD, seconds, default_s=default_s).kernels.items()
        }
    )


COSTS = costs_of({})
BASE = replay(Base().plan(toy_setting(WORKLOAD, COSTS)), COSTS)
POWER = Power(idle_watts=10.0, joules_per_flop=1.0, joules_per_dram_byte=2.0, joules_per_link_byte=3.0)
BASE_WATTS = (220.0, 68.0, 23.0, 23.0, 68.0, 68.0, 220.0)
"""What kernels of 1 s draw, on a machine that reaches any rate:

    conv1 forward, weight gradient    10 + 50 FLOP + 2 (80 B) = 220
    fc forward and both gradients     10 + 10 FLOP + 2 (24 B) = 68
    loss forward, data gradient       10 + 5 FLOP + 2 (4 B) = 23
"""


def server_with(power: Power, *, flop_per_s: float = 1000.0) -> Server:
    gpu = replace(TOY_SERVER.gpu, flop_per_s={ElementType.FLOAT16: flop_per_s})
    return replace(TOY_SERVER, gpu=gpu, power=power)


def test_power_of_kernels_and_copies_up_to_the_limit_of_the_board() -> None:
    """The sum of seven seconds is 690 J, the mean 690 / 7."""
    curve = power_curve(BASE, COSTS, server_with(POWER))
    assert curve == PowerCurve((0, 1, 2, 3, 4, 5, 6), BASE_WATTS, end_s=7.0)
    assert (curve.energy_joules, curve.mean_watts) == (690.0, 690 / 7)
    # 1 B/s costs 3 + 2 W. The offload of 10 B begins with conv1; after 1 s it runs alone until 10 s. The prefetch
    # begins with fc's data gradient at 13 s; fc is done at 15 s, the copy at 23 s, conv1 at 24 s.
    trace = replay(VdnnAll().plan(toy_setting(WORKLOAD, COSTS)), COSTS)
    curve = power_curve(trace, COSTS, server_with(POWER))
    assert list(curve.times_s) == [0, 1, 10, 11, 12, 13, 14, 15, 23]
    assert list(curve.watts) == [225, 15, 68, 23, 23, 73, 73, 15, 220]
    assert curve.end_s == 24
    # At 20 FLOP/s conv1 can do no more than 20 of its 50 FLOP in its second: 190 W; fc's 10 are as before.
    watts = power_curve(BASE, COSTS, server_with(POWER, flop_per_s=20.0)).watts
    assert list(watts) == [190, *BASE_WATTS[1:-1], 190]
    # Power is capped at the limit of the board.
    limited = server_with(replace(POWER, limit_watts=100.0))
    assert power_curve(BASE, COSTS, limited).watts == (100, *BASE_WATTS[1:-1], 100)
    # A kernel without duration draws nothing.
    costs = costs_of({("conv1", Phase.FORWARD): 0.0})
    trace = replay(Base().plan(toy_setting(WORKLOAD, costs)), costs)
    assert power_curve(trace, costs, server_with(POWER)).watts == BASE_WATTS[1:]


@pytest.mark.parametrize(
    ("window_s", "watts"),
    [(0.5, 220), (2.0, 220), (3.0, (220 + 220 + 68) / 3), (7.0, 690 / 7), (9.0, (690 + 440) / 9), (14.0, 690 / 7)],
)
def test_a_sample_is_a_mean_over_its_window(window_s: float, watts: float) -> None:
    """Iterations follow each other, so that conv1's weight gradient and the next forward make 2 s at 220 W.

    In 3 s there is one second of fc besides, on either side. 9 s hold a whole iteration and those 2 s.
    """
    sampled = power_curve(BASE, COSTS, server_with(POWER)).maximum_watts(window_s)
    assert sampled == pytest.approx(watts, rel=1e-12)


def test_the_default_window_is_that_of_nvprof() -> None:
    """Steps of 30 ms: in 50 ms there are 30 ms at 220 W and 20 ms at 100 W, 172 W."""
    curve = PowerCurve((0.0, 0.03, 0.06), (100.0, 220.0, 100.0), end_s=0.09)
    costs = costs_of({}, default_s=0.03)
    trace = replay(Base().plan(toy_setting(WORKLOAD, costs)), costs)
    server = server_with(replace(POWER, joules_per_flop=0.0, joules_per_dram_byte=0.0))
    assert curve.maximum_watts(0.05) == pytest.approx(172.0, rel=1e-12)
    assert power_curve(trace, costs, server).maximum_watts() == pytest.approx(10.0, rel=1e-12)


def test_a_profile_without_power_is_refused() -> None:
    assert Power(1.0, 1.0, 1.0, 1.0).limit_watts == math.inf
    message = "toy: power: is missing, expected the section with idle, flop, dram and link"
    with pytest.raises(ProfileError, match=message):
        power_curve(BASE, COSTS, TOY_SERVER)


@pytest.mark.parametrize(
    ("precision", "peaks", "watts"),
    [
        # conv1 and fc may reach 8 FLOP/s in bfloat16, the loss 3 in float32; casts compute nothing.
        (Precision.AMP_BFLOAT16, {"float32": 3.0, "bfloat16": 8.0}, (10.0, 18.0, 18.0, 10.0, 13.0)),
        # Where the profile states no peak of the narrow type, kernels were timed with that of float32.
        (Precision.AMP_BFLOAT16, {"float32": 3.0}, (10.0, 13.0, 13.0, 10.0, 13.0)),
        # Products alone are multiplied in TF32; a profile whose table was measured in it may state no peak.
        (Precision.TF32, {"float32": 3.0, "tf32": 6.0}, (16.0, 16.0, 13.0)),
        (Precision.TF32, {"float32": 3.0}, (13.0, 13.0, 13.0)),
    ],
)
def test_peaks_by_arithmetic(precision: Precision, peaks: Mapping[str, float], watts: tuple[float, ...]) -> None:
    """conv1 has 50 FLOP, fc 10 and the loss 5, more than any peak allows in the second that each takes.

    Idle power is 10 W, a FLOP takes 1 J and bytes nothing.
    """
    workload = Workload.in_precision(toy_chain(1), 1, precision, mode=Mode.INFERENCE)
    costs = toy_costs(workload, {})
    gpu = replace(TOY_SERVER.gpu, flop_per_s={ElementType(name): rate for name, rate in peaks.items()})
    server = replace(TOY_SERVER, gpu=gpu, power=replace(POWER, joules_per_dram_byte=0.0))
    assert power_curve(replay(PyTorch().plan(toy_setting(workload, costs)), costs), costs, server).watts == watts
