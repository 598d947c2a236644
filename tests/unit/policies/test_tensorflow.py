"""`tensorflow` on a chain, every second and byte worked out by hand.

conv1, conv2, fc, loss; maps of 10 B but for those of fc and the loss, 2 B; 264 B of W and dW; 10 kernels of 1 s. Most
is held in backward of fc: the input, conv1, conv2, the gradients of fc, 2 B, and of conv2: 42 B.
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    ToyCosts,
    overflow_of,
    replay,
    replayed,
    toy_chain,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.units import GIB

CHAIN = toy_workload(toy_chain(2))
W = Phase.BACKWARD_WEIGHTS


def with_options(*options: tuple[str, float, int]) -> ToyCosts:
    """Algorithms for the weight gradient of conv1, the fastest first; kernels of 1 s without workspace beside it."""
    choices = tuple(KernelCost(name, seconds, nbytes, Origin.ASSUMED) for name, seconds, nbytes in options)
    return ToyCosts({**toy_costs(CHAIN, {}).kernels, (0, W): choices})


def algorithm_of(plan: TrainingPlan) -> str:
    """What computes the weight gradient of conv1."""
    (name,) = (op.algorithm for op in plan.operations if isinstance(op, Compute) and (op.layer, op.phase) == (0, W))
    return name


def test_nothing_is_copied_and_nothing_waits() -> None:
    trace = replayed(TensorFlow(), CHAIN)
    assert trace.iteration_s == 10
    assert maximum_bytes(trace) == 264 + 42
    assert trace.host_bytes == 0
    # They are allocated with the forward of bn, after W, the input and conv1, and released before dW.
    workload = toy_workload(toy_graph("conv1 conv; bn bn"))
    plan = TensorFlow().plan(toy_setting(workload, toy_costs(workload, {})))
    buffer = plan.buffer_names.index("statistics of bn")
    (taken,) = (op for op in plan.operations if isinstance(op, Allocate) and op.buffer == buffer)
    assert (plan.layers[taken.layer], taken.phase) == ("bn", Phase.FORWARD)
    released = plan.operations.index(Release(buffer))
    assert any(isinstance(op, Compute) for op in plan.operations[released:])


@pytest.mark.parametrize(
    ("capacity_bytes", "algorithm", "seconds"), [(984, "fast", 10), (983, "slow", 12), (384, "slow", 12)]
)
def test_a_convolution_takes_the_fastest_algorithm_with_room(
    capacity_bytes: int, algorithm: str, seconds: float
) -> None:
    """With its weight gradient conv1 holds the input and a gradient: 284 B, and 700 B by the fast algorithm."""
    costs, limits = with_options(("fast", 1, 700), ("slow", 3, 100)), replace(TOY_LIMITS, device_bytes=capacity_bytes)
    plan = TensorFlow().plan(toy_setting(CHAIN, costs, limits))

    assert algorithm_of(plan) == algorithm
    assert replay(plan, costs, limits=limits).iteration_s == seconds


@pytest.mark.parametrize(("capacity_bytes", "buffer"), [(383, "workspace of conv1"), (270, "map input")])
def test_a_request_that_no_algorithm_can_help_overflows(capacity_bytes: int, buffer: str) -> None:
    costs, limits = with_options(("fast", 1, 700), ("slow", 3, 100)), replace(TOY_LIMITS, device_bytes=capacity_bytes)
    refusal = overflow_of(TensorFlow().plan(toy_setting(CHAIN, costs, limits)), limits)
    assert refusal.plan.buffers[refusal.buffer].name == buffer


@pytest.mark.parametrize(
    ("options", "algorithm"),
    [
        ((("huge", 1, 4 * GIB + 1), ("large", 2, 4 * GIB), ("small", 3, 0)), "large"),
        ((("huge", 1, 6 * GIB), ("large", 2, 5 * GIB)), "large"),
    ],
)
def test_no_workspace_exceeds_4_gib_unless_there_is_no_other(
    options: tuple[tuple[str, float, int], ...], algorithm: str
) -> None:
    limits = replace(TOY_LIMITS, device_bytes=100 * GIB)

    assert algorithm_of(TensorFlow().plan(toy_setting(CHAIN, with_options(*options), limits))) == algorithm
