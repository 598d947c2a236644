"""Peak live bytes of an iteration under `pytorch`, compared with PyTorch."""

import pytest

from tests.networks import each_network
from tests.pytorch_twins.twin import Twin
from tests.toy import toy_costs, toy_setting
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Allocate, Release
from vdnnsim.policies.pytorch import PyTorch

SHARE = 0.01
"""Tolerance: running moments, and gradients of the branches of a concatenation, which are views of its own."""

MEMBERS = ["resnet18", "resnet34", "resnet152", "resnet110", "wrn_8_1", "wrn_28_10"]


def our_peak_bytes(graph: LayerGraph, batch_size: int, *, gradients_kept: bool) -> int:
    workload = Workload(graph, batch_size)
    plan = PyTorch(set_to_none=not gradients_kept).plan(toy_setting(workload, toy_costs(workload, {})))
    live_bytes = peak_bytes = 0
    for operation in plan.operations:
        if isinstance(operation, Allocate):
            live_bytes += plan.buffers[operation.buffer].nbytes
        elif isinstance(operation, Release):
            live_bytes -= plan.buffers[operation.buffer].nbytes
        peak_bytes = max(peak_bytes, live_bytes)
    return peak_bytes


@pytest.mark.sampled(3)
@pytest.mark.parametrize("gradients_kept", [False, True], ids=["set to none", "kept"])
@pytest.mark.parametrize("network", each_network([*NETWORKS, *MEMBERS]))
def test_peak_live_bytes_are_those_of_pytorch(network: str, gradients_kept: bool) -> None:  # noqa: FBT001 - as pytest gives it
    graph = build_network(network)
    ours = our_peak_bytes(graph, 8, gradients_kept=gradients_kept)

    assert ours == pytest.approx(Twin(graph, 8).live_bytes(gradients_kept=gradients_kept).peak.live_bytes, rel=SHARE)
