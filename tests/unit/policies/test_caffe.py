"""`caffe` on chains whose bytes can be added up: maps of 10 B, but those of fc and the loss, which hold 2 B.

Beside the input three more batches wait, 30 B.
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    TOY_SERVER,
    replayed,
    toy_chain,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from vdnnsim.analysis.memory import process_bytes
from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.policies.algorithms import kernels_within
from vdnnsim.policies.caffe import WORKSPACE_LIMIT_BYTES, Caffe

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
