"""Inference and updates under every policy, on a chain with more memory than it needs."""

from dataclasses import replace

import pytest

from tests.toy import replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.registry import known_policies

POLICIES = known_policies()
CHAIN = toy_workload(toy_chain(2))


def trace_of(name: str, workload: Workload) -> IterationTrace:
    costs = toy_costs(workload, {})
    return replay(make_plan(POLICIES[name](), toy_setting(workload, costs)), costs)


@pytest.mark.parametrize("name", POLICIES)
def test_inference_runs_forward_once_and_offloads_nothing(name: str) -> None:
    """Four kernels of 1 s."""
    trace = trace_of(name, replace(CHAIN, mode=Mode.INFERENCE))
    assert [(each.layer, each.phase) for _, each in trace.kernels] == [(at, Phase.FORWARD) for at in range(4)]
    assert not any(isinstance(each, Offload) for each in trace.plan.operations)
    assert trace.iteration_s == 4


@pytest.mark.parametrize(
    ("name", "beside_weights_bytes"),
    [
        # Network-wide: the input, conv1 and conv2 of 10 B, fc and loss of 2 B (Fig. 2: the sum of W and X).
        ("base", 34),
        # X and Y of one layer at a time; Caffe has three more batches; PyTorch's loss reads a label.
        *(("vdnn_all", 20), ("memonger", 20), ("checkpoint", 20 + 8), ("pytorch", 20 + 8)),
        *(("layrub_intra", 30 + 34), ("layrub_hybrid", 30 + 20)),
        # Twice the largest access, of X and Y.
        ("geeps", 40),
    ],
)
def test_inference_takes_weights_and_maps_alone(name: str, beside_weights_bytes: int) -> None:
    """W are 2 x 30 + 6 elements, 132 B."""
    assert maximum_bytes(trace_of(name, replace(CHAIN, mode=Mode.INFERENCE))) == 132 + beside_weights_bytes


@pytest.mark.parametrize("name", POLICIES)
def test_weights_are_updated_once_at_the_end(name: str) -> None:
    plan = trace_of(name, replace(CHAIN, optimizer=Optimizer.SGD)).plan

    kernels = [(plan.layers[each.layer], each.phase) for each in plan.operations if isinstance(each, Compute)]
    updates = [(layer, Phase.UPDATE) for layer in ("conv1", "conv2", "fc")]
    assert [each for each in kernels if each[1] is Phase.UPDATE] == kernels[-3:] == updates
