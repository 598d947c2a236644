"""`caffe` and `tensorflow` on chains whose bytes and seconds can be added up.

Maps are of 10 B, but those of fc and the loss, which hold 2 B. Under `caffe` three more batches wait beside the input,
30 B. `tensorflow` runs conv1, conv2, fc, loss with 264 B of W and dW in 10 kernels of 1 s. Most is held in backward of
fc: the input, conv1, conv2, the gradients of fc, 2 B, and of conv2: 42 B.
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    TOY_SERVER,
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
from vdnnsim.analysis.memory import maximum_bytes, process_bytes
from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.caffe import WORKSPACE_LIMIT_BYTES, Caffe
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.units import GIB

FORKED = toy_graph("conv1 conv; conv2 conv; add add conv2 conv1")
NORMALIZED = toy_graph("conv conv unbiased; bn bn")


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        # W and dW: two CONV of 60 B and fc of 12 B, twice, 264 B. Maps: 10 + 10 + 10 + 2 + 2 = 34 B.
        # Gradients: of conv1, conv2 and fc, 22 B; the input and the loss have none.
        (toy_workload(toy_chain(2)), 264 + 34 + 22),
        # Maps: input, conv1, conv2, add of 10 B, fc and loss of 2 B: 44 B. A map of two readers has three diffs: 3 x 10
        # B of conv1, 10 B of conv2, 10 B of the sum, 2 B of fc.
        (toy_workload(FORKED), 264 + 44 + 52),
        # W: 50, 20 and 12 B, twice: 164 B. Maps: 10 + 10 + 10 + 2 + 2 = 34 B, gradients 10 + 10 + 2 = 22 B.
        # Statistics: mean and inverse deviation of 5 channels in float32, 40 B, beside two temporary maps of 10 B.
        (toy_workload(NORMALIZED), 164 + 34 + 22 + 60),
        # Inference has no gradients and keeps no temporary map.
        (replace(toy_workload(NORMALIZED), mode=Mode.INFERENCE), 82 + 34 + 40),
    ],
    ids=["chain", "forked", "normalized", "inference"],
)
def test_every_map_has_its_gradient(workload: Workload, expected: int) -> None:
    trace = replayed(Caffe(), workload)
    assert trace.pool_bytes == 30 + expected
    assert sum(change.delta_bytes for change in trace.memory if change.time_s == 0) == 30 + expected


def test_kernels_workspace_and_process_memory() -> None:
    """Four kernels forward, six backward: the first CONV has no data gradient."""
    assert replayed(Caffe(), toy_workload(toy_chain(2))).iteration_s == 10
    # Of 7 B and 4 B the larger one is held throughout, beside the 350 B of the chain.
    workload = toy_workload(toy_chain(2))
    wanted = {("conv1", Phase.FORWARD): 4, ("conv2", Phase.BACKWARD_WEIGHTS): 7}
    assert replayed(Caffe(), workload, toy_costs(workload, {}, workspace_bytes=wanted)).pool_bytes == 357
    # 350 B of the chain, a context of 100 B, and six handles of 5 B.
    gpu = replace(TOY_SERVER.gpu, context_bytes=100, handle_bytes=5)
    assert process_bytes(replayed(Caffe(), toy_workload(toy_chain(2))), gpu) == 480


def test_the_fastest_kernel_within_8_mib_is_taken_else_the_least_workspace() -> None:
    """Of three algorithms the fastest needs a byte too many: the second is taken. Without it, the least workspace."""
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})

    def kernel(name: str, seconds: float, workspace_bytes: int) -> KernelCost:
        return KernelCost(name, seconds, workspace_bytes, Origin.ASSUMED)

    greedy = kernel("greedy", 1, WORKSPACE_LIMIT_BYTES + 1)
    within, least = kernel("within", 2, WORKSPACE_LIMIT_BYTES), kernel("least", 3, WORKSPACE_LIMIT_BYTES + 2)
    forward = (0, Phase.FORWARD)

    def chosen(*options: KernelCost) -> str:
        table = CostTable({**costs.kernels, forward: options})
        return kernels_within(workload, table, WORKSPACE_LIMIT_BYTES)[forward].algorithm

    assert chosen(greedy, within, least) == "within"
    assert chosen(least, greedy) == "greedy"


@pytest.mark.parametrize(("handle_bytes", "fits"), [(20, True), (21, False)])
def test_each_conv_layer_opens_three_handles(handle_bytes: int, *, fits: bool) -> None:
    """Two CONV layers open six; of 470 B the 350 B of the chain leave 20 B for each."""
    workload = toy_workload(toy_chain(2))
    limits = replace(TOY_LIMITS, device_bytes=470, handle_bytes=handle_bytes)
    plan = Caffe().plan(toy_setting(workload, toy_costs(workload, {})))

    placement = place_plan(plan, limits)

    assert plan.handles == 6
    assert isinstance(placement, DoesNotFit) is not fits
    if isinstance(placement, DoesNotFit):
        assert placement.capacity_bytes == 470 - 6 * 21


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
