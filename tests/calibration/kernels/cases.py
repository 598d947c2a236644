"""Graphs of a few layers for the tests of kernels, and their operands."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.operands import operands_alone
from tests.toy import with_fc
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload

GARBAGE = 0xFF
"""A byte that makes any floating-point number of it not a number."""


def alexnet_like() -> LayerGraph:
    """Build large strided filters, overlapping pooling whose last window is left out, and two FC layers."""
    net = GraphBuilder("alexnet_like", MapShape(3, 35, 37))
    y = net.conv("conv1", 0, 8, 11, stride=4, padding=2)
    y = net.pool("pool1", y, 3, stride=2)
    y = net.conv("conv2", y, 12, 5, padding=2)
    y = net.pool("pool2", y, 3, stride=1, padding=1)
    net.begin_classifier()
    y = net.fc("fc1", y, 20, relu=True)
    return net.build(net.fc("fc2", y, 7, relu=False))


def three_readers() -> LayerGraph:
    """Build a map that three layers read, so that the order in which its gradient is summed decides its bits."""
    net = GraphBuilder("three_readers", MapShape(3, 9, 9))
    y = net.conv("conv", 0, 6, 3, padding=1)
    branches = (net.conv("a", y, 6, 3, padding=1), net.pool("b", y, 3, stride=1, padding=1), net.conv("c", y, 4, 1))
    y = net.concat("join", (*branches, y))
    return with_fc(net, y, 5)


def input_readers() -> LayerGraph:
    """Build a normalization, a join and a sum over the input batch, whose gradient nobody computes.

    A rectifier stands before the join: without one autograd hands the normalization a slice of the join's gradient,
    which aten sums in another order than a map of its own.
    """
    net = GraphBuilder("input_readers", MapShape(4, 8, 8))
    y = net.batch_norm("bn", 0, relu=False)
    y = net.add("add", y, 0, relu=True)
    y = net.concat("join", (y, 0))
    return with_fc(net, y, 5)


def added_to(reader: Callable[[GraphBuilder, int], int]) -> Iterator[tuple[LayerGraph, Layer]]:
    """Build a graph in which a layer's dX is added to that of a layer behind it, and one in which it is written."""
    for behind in (True, False):
        net = GraphBuilder("added_to", MapShape(3, 8, 8))
        y = net.conv("conv", 0, 6, 3, padding=1)
        result = reader(net, y)
        if behind:
            net.pool("behind", y, 2, stride=2)
        graph = net.build(net.fc("fc", result, 5, relu=False))
        yield graph, graph.layers[2]


def with_workspace(tensors: KernelTensors, kernel: Kernel) -> KernelTensors:
    """Return operands with a workspace of what stood there before."""
    return replace(tensors, workspace=torch.full((kernel.passed_bytes,), GARBAGE, dtype=torch.uint8))


def operands(workload: Workload, layer: Layer, phase: Phase, kernel: Kernel, *, channels_last: bool) -> KernelTensors:
    """Return operands of their own for a kernel, its workspace included."""
    return with_workspace(operands_alone(workload, layer, phase, "cpu", channels_last=channels_last), kernel)
