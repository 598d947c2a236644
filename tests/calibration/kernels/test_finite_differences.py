"""Gradients against finite differences of the loss, which find an error that autograd and the kernels share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.reference import run_reference
from tests.toy import with_fc
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload


@dataclass
class ShiftedWeights:
    """A library whose forward kernel of one layer first moves that layer's weights."""

    layer: int
    shift: torch.Tensor
    channels_last: bool = False

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        kernels = PyTorchLibrary("cpu").kernels(workload, layer, phase)
        if layer.index != self.layer or phase is not Phase.FORWARD:
            return kernels
        return tuple(replace(kernel, run=self.moving(kernel.run)) for kernel in kernels)

    def moving(self, run: Callable[[KernelTensors], None]) -> Callable[[KernelTensors], None]:
        def moved(tensors: KernelTensors) -> None:
            assert tensors.weights is not None
            tensors.weights.add_(self.shift)
            run(tensors)

        return moved


def smooth_network() -> LayerGraph:
    """Build every operator with weights, a fork and a join, and nothing with a kink."""
    net = GraphBuilder("smooth", MapShape(2, 8, 8))
    y = net.conv("conv", 0, 4, 3, padding=1, relu=False)
    y = net.batch_norm("bn", y, relu=False)
    left = net.conv("left", y, 4, 3, padding=1, bias=False, relu=False)
    y = net.add("add", left, y, relu=False)
    y = net.average_pool("pool", net.concat("join", (y, left)), 4, stride=4)
    return with_fc(net, y, 5)


@pytest.mark.parametrize("name", ["conv", "bn", "left", "fc"])
def test_gradient_is_the_slope_of_the_loss(name: str) -> None:
    """Along its own direction g / |g| a gradient's slope is |g|; the loss a step h to both sides differs by 2 h |g|.

    The loss is about 2 and rounded in some 10 operations to 24 bits, so its difference is off by about 2e-6; with
    h |g| held at 0.01 that is 1e-4 of it. What the curve adds falls with the square of h: it is taken out by a second
    difference at 2 h (Richardson): slope = (4 s(h) - s(2 h)) / 3, which leaves the fourth power. So 0.2 % is allowed.
    """
    workload = Workload(smooth_network(), 4)
    layer = next(layer for layer in workload.graph.layers if layer.name == name)
    gradient = run_reference(workload, PyTorchLibrary("cpu")).gradients[layer.index]
    norm = float(gradient.norm())
    step = min(0.01 / norm, 0.05)

    def loss(distance: float) -> float:
        return run_reference(workload, ShiftedWeights(layer.index, gradient * (distance / norm))).loss

    def slope(distance: float) -> float:
        return (loss(distance) - loss(-distance)) / (2 * distance)

    assert (4 * slope(step) - slope(2 * step)) / 3 == pytest.approx(norm, rel=2e-3)
