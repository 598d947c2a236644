"""The reference against plain PyTorch: loss and every gradient, bit for bit."""

from collections.abc import Callable

import pytest
import torch

from calibration.kernels.pytorch import PyTorchLibrary
from calibration.reference import run_reference
from tests.calibration.kernels.plain_network import run_plainly
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType

BATCH_SIZE = 3


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("element_type", ElementType)
@pytest.mark.parametrize("network", [tiny_linear, tiny_forked, tiny_residual])
def test_loss_and_gradients_are_those_of_plain_pytorch(
    network: Callable[[], LayerGraph], element_type: ElementType, *, channels_last: bool
) -> None:
    workload = Workload(network(), BATCH_SIZE, element_type)
    library = PyTorchLibrary("cpu", channels_last=channels_last)
    run = run_reference(workload, library, channels_last=channels_last)
    plain = run_plainly(workload, channels_last=channels_last)
    assert run.loss == plain.loss
    assert run.gradients.keys() == plain.gradients.keys()
    for index, gradient in plain.gradients.items():
        assert torch.equal(run.gradients[index], gradient), workload.graph.layers[index].name
