"""Saved bytes by the autograd rule, compared with PyTorch."""

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.networks import each_network
from tests.pytorch_twins.twin import Twin
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload, under_autocast
from vdnnsim.units import ElementType

OTHER_BYTES = 100
"""The weight of the loss, 4 B, is no storage of ours."""

MEMBERS = ["resnet18", "resnet34", "resnet101", "resnet152", "resnet20", "resnet110", "wrn_8_1", "wrn_16_4"]

OF_CUDA_ALONE = {"p3d_resnet199", "caffenet", "lstm_cnn"}
"""Autocast has other lists on the CPU: there pooling in time is in float32, the power of an LRN is not."""


@pytest.mark.parametrize("network", each_network([*NETWORKS, *MEMBERS]))
def test_saved_bytes_are_those_of_autograd(network: str) -> None:
    graph = build_network(network)
    ours = Workload(graph, 8).saved_by(SavingRule.AUTOGRAD).step.saved_bytes

    assert ours == pytest.approx(Twin(graph, 8).saved_bytes(), abs=OTHER_BYTES)


@pytest.mark.parametrize("network", each_network(each for each in [*NETWORKS, *MEMBERS] if each not in OF_CUDA_ALONE))
def test_saved_bytes_are_those_of_autograd_under_autocast(network: str) -> None:
    """Narrow maps and the narrow copies of weights, which PyTorch's CPU casts as its CUDA does."""
    graph = build_network(network)
    ours = Workload(under_autocast(graph, ElementType.BFLOAT16), 8).saved_by(SavingRule.AUTOGRAD).step.saved_bytes

    assert ours == pytest.approx(Twin(graph, 8, FakeTensorMode(), amp=True).saved_bytes(), abs=OTHER_BYTES)
