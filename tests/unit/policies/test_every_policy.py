"""Memory of inference, on a chain with more than it needs; what all policies do is in `tests/properties`."""

from dataclasses import replace

import pytest

from tests.toy import replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.registry import known_policies

POLICIES = known_policies()
CHAIN = toy_workload(toy_chain(2))


def trace_of(name: str, workload: Workload) -> IterationTrace:
    costs = toy_costs(workload, {})
    return replay(make_plan(POLICIES[name](), toy_setting(workload, costs)), costs)


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
