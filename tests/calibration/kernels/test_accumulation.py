"""Accumulated gradients are, as in autograd, one sum of two finished gradients for each element."""

from collections.abc import Callable

import pytest
import torch

from calibration.kernels.interface import given
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.cases import added_to, operands
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType

READERS: dict[str, Callable[[GraphBuilder, int], int]] = {
    "convolution": lambda net, x: net.conv("layer", x, 4, 3, relu=False),
    "padded convolution": lambda net, x: net.conv("layer", x, 4, 3, padding=1, stride=2, relu=False),
    "maximum": lambda net, x: net.pool("layer", x, 3, stride=2),
    "average": lambda net, x: net.average_pool("layer", x, 3, stride=2),
    "fully connected": lambda net, x: net.fc("layer", x, 7, relu=False),
    "concat": lambda net, x: net.concat("layer", (0, x)),
    "batch normalization": lambda net, x: net.batch_norm("layer", x, relu=False),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("element_type", [ElementType.FLOAT32, ElementType.BFLOAT16])
@pytest.mark.parametrize("reader", READERS)
def test_adding_is_one_sum_of_all_gradients(reader: str, element_type: ElementType, *, channels_last: bool) -> None:
    library = PyTorchLibrary("cpu", channels_last=channels_last)
    (adding, layer), (writing, same_layer) = added_to(READERS[reader])
    workload = Workload(adding, 2, element_type)
    phase = Phase.BACKWARD if Phase.BACKWARD in layer.backward_phases else Phase.BACKWARD_DATA
    position = len(layer.inputs) - 1
    assert workload.accumulates(layer, layer.inputs[position])
    written = library.kernels(Workload(writing, 2, element_type), same_layer, phase)
    for adds, writes in zip(library.kernels(workload, layer, phase), written, strict=True):
        sums = operands(workload, layer, phase, adds, channels_last=channels_last)
        alone = operands(Workload(writing, 2, element_type), same_layer, phase, writes, channels_last=channels_last)
        total, gradient = given(sums.input_gradients[position]), given(alone.input_gradients[position])
        standing = total.clone()
        gradient.fill_(torch.nan)
        adds.run(sums)
        writes.run(alone)
        assert torch.equal(total, standing + gradient), adds.algorithm
        assert not torch.equal(total, standing)
