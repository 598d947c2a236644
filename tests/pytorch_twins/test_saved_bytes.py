"""What we say that autograd saves, against what it saves."""

import pytest

from tests.pytorch_twins.twin import Twin
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload

OTHER_BYTES = 100
"""The weight of the loss, 4 B, is no storage of ours."""

MEMBERS = ["resnet18", "resnet34", "resnet101", "resnet152", "resnet20", "resnet110", "wrn_8_1", "wrn_16_4"]


@pytest.mark.parametrize("network", [*NETWORKS, *MEMBERS])
def test_we_say_what_autograd_saves(network: str) -> None:
    graph = build_network(network)
    ours = Workload(graph, 8).saved_by(SavingRule.AUTOGRAD).step.saved_bytes

    assert ours == pytest.approx(Twin(graph, 8).saved_bytes(), abs=OTHER_BYTES)
