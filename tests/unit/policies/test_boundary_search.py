"""`boundary_search` on a chain of four CONV layers with two algorithms, every second and byte worked out by hand.

conv1 to conv4, fc, loss; maps of 10 B but for those of fc and the loss, 2 B; W 126 elements, 252 B, and as much dW. A
CONV kernel takes 3 s by `gemm` and 1 s with a workspace of 100 B by `fft`; there are 4 forward and 7 backward, beside 5
other kernels of 1 s. A map is copied in 10 s. What is held beside 504 B at most, with the first k maps offloaded:

    k   gemm: backward of fc                        fft: backward of conv4
    0   5 maps, gradients of fc and conv4    62 B   input, conv1 to conv3, gradients of conv4 and conv3, 100   160 B
    1   4 maps and the same gradients        52 B   one map less                                               150 B
    2                                               two less; as in conv3, to which conv1 comes back           140 B
"""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, ToyCosts, toy_chain, toy_setting, toy_workload
from vdnnsim.cost.table import ONLY, KernelCost
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Offload
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.boundary_search import BoundarySearch, one_algorithm

CHAIN = toy_workload(toy_chain(4))
GEMM = KernelCost("gemm", 3.0, 0, Origin.ASSUMED)
FFT = KernelCost("fft", 1.0, 100, Origin.ASSUMED)
OTHER = KernelCost(ONLY, 1.0, 0, Origin.ASSUMED)


def costs_of(workload: Workload, fft: KernelCost = FFT, gemm: KernelCost = GEMM) -> ToyCosts:
    return ToyCosts(
        {
            (layer.index, phase): (fft, gemm) if layer.kind is LayerKind.CONV else (OTHER,)
            for layer in workload.graph.layers
            for phase in workload.phases(layer)
        }
    )


def found(capacity_bytes: int, workload: Workload = CHAIN) -> TrainingPlan:
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes)
    return BoundarySearch().plan(toy_setting(workload, costs_of(workload), limits))


def passes(plan: TrainingPlan) -> list[tuple[str, float]]:
    return [(each.name, each.cost_s) for each in plan.passes]


def offloaded(plan: TrainingPlan) -> list[str]:
    return [plan.buffer_names[op.buffer] for op in plan.operations if isinstance(op, Offload)]


@pytest.mark.parametrize(
    ("capacity_bytes", "tried", "first_maps"),
    [
        # 11 CONV kernels of 1 s and 5 others are 16 s; gemm, 38 s, need not be tried.
        (664, [("fft, first 0 of 4", 16)], 0),
        # The input is offloaded in 10 s beside conv1, 9 more, and prefetched in 10 s beside 2 s of conv2, 8 more.
        (663, [("fft, first 1 of 4", 33)], 1),
        # Two times 17 more are slower than gemm.
        (653, [("fft, first 2 of 4", 50), ("gemm, first 0 of 4", 38)], 0),
        # fft fits no more, and is not tried; below 566 B gemm offloads the input: 7 s beyond conv1, 4 s beyond conv2.
        (643, [("gemm, first 0 of 4", 38)], 0),
        (565, [("gemm, first 1 of 4", 49)], 1),
        # Nothing fits: the plan needs the least memory.
        (100, [], 4),
    ],
)
def test_the_faster_of_both_algorithms_offloads_as_little_as_fits(
    capacity_bytes: int, tried: list[tuple[str, float]], first_maps: int
) -> None:
    plan = found(capacity_bytes)
    assert passes(plan) == tried
    assert plan.algorithms == (tried[-1][0] if tried else "gemm, first 4 of 4")
    assert offloaded(plan) == ["map input", "map conv1", "map conv2", "map conv3"][:first_maps]


def test_a_trial_may_show_that_a_slower_algorithm_is_slower() -> None:
    """With 4 B for fft and 2 s for gemm, 27 s of kernels, both offload the input: 16 + 17 s, and 27 + 8 + 6 s."""
    costs = costs_of(CHAIN, replace(FFT, workspace_bytes=4), replace(GEMM, seconds=2.0))
    plan = BoundarySearch().plan(toy_setting(CHAIN, costs, replace(TOY_LIMITS, device_bytes=565)))

    assert passes(plan) == [("fft, first 1 of 4", 33), ("gemm, first 1 of 4", 41)]
    assert plan.algorithms == "fft, first 1 of 4"


@pytest.mark.parametrize(("algorithm", "expected"), [("fft", FFT), ("gemm", GEMM), ("winograd", GEMM)])
def test_a_kernel_without_the_algorithm_takes_the_least_workspace(algorithm: str, expected: KernelCost) -> None:
    kernels = one_algorithm(CHAIN, costs_of(CHAIN).table(CHAIN), algorithm)

    assert {each for key, each in kernels.items() if each is not OTHER} == {expected}
    assert sum(each is OTHER for each in kernels.values()) == 5
