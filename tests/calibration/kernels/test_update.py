"""Updates against torch.optim: the second step from the same weights, gradient and states, bit for bit."""

import pytest
import torch

from calibration.kernels.interface import given
from calibration.kernels.pytorch import PyTorchLibrary
from calibration.kernels.tensors import dtype_of
from tests.calibration.kernels.cases import operands, three_readers
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.units import ElementType


def optimizer_of(kind: Optimizer, weights: torch.Tensor, states: tuple[torch.Tensor, ...]) -> torch.optim.Optimizer:
    """Return torch's optimizer as it is after its first step left these states."""
    match kind:
        case Optimizer.SGD:
            return torch.optim.SGD([weights], lr=0.01, foreach=False)
        case Optimizer.MOMENTUM:
            momentum = torch.optim.SGD([weights], lr=0.01, momentum=0.9, foreach=False)
            momentum.state[weights] = {"momentum_buffer": states[0]}
            return momentum
        case _:
            adam = torch.optim.Adam([weights], lr=0.001, foreach=False)
            adam.state[weights] = {"step": torch.tensor(1.0), "exp_avg": states[0], "exp_avg_sq": states[1]}
            return adam


@pytest.mark.parametrize("element_type", ElementType)
@pytest.mark.parametrize("kind", [Optimizer.SGD, Optimizer.MOMENTUM, Optimizer.ADAM])
def test_update_is_that_of_torch_optim(kind: Optimizer, element_type: ElementType) -> None:
    workload = Workload(three_readers(), 2, element_type, kind)
    layer = workload.graph.layers[0]
    (kernel,) = PyTorchLibrary("cpu").kernels(workload, layer, Phase.UPDATE)
    tensors = operands(workload, layer, Phase.UPDATE, kernel, channels_last=False)
    weights = given(tensors.weights).clone().requires_grad_()
    weights.grad = given(tensors.weight_gradient).clone()
    states = tuple(state.clone() for state in tensors.states)
    assert len(states) == kind.states
    assert weights.dtype is dtype_of(element_type)
    optimizer_of(kind, weights, states).step()
    kernel.run(tensors)
    assert torch.equal(given(tensors.weights), weights)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(tensors.states, states, strict=True))
