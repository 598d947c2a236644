"""Convolution of any shape: the framework's bit for bit, explicit GEMM within what rounding allows."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from calibration.kernels.convolution import EXPLICIT_GEMM, PYTORCH
from calibration.kernels.interface import KernelTensors
from calibration.kernels.interface import given as present
from calibration.kernels.pytorch import PyTorchLibrary
from calibration.kernels.tensors import weight_views
from tests.calibration.kernels.cases import operands, with_workspace
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType

UNIT_ROUNDOFF = {ElementType.FLOAT32: 2.0**-24, ElementType.BFLOAT16: 2.0**-8, ElementType.FLOAT16: 2.0**-11}
SMALLEST_STEP = 2.0**-24
"""Of float16 where it is subnormal, the coarsest of the three there."""


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Draw a convolution over a map that wants a gradient, of odd sizes, with a stride that may leave a rest.

    In bfloat16 every place of the filter meets the map: where one meets nothing but padding, oneDNN of PyTorch 2.13
    leaves its gradient as the memory was, which is 0 most of the time.
    """
    kernel = draw(st.integers(1, 5))
    padding = draw(st.integers(0, kernel // 2))
    size = st.integers(max(1, kernel - 2 * padding), 9)
    net = GraphBuilder("convolution", MapShape(draw(st.integers(1, 4)), draw(size), draw(size)))
    y = net.conv("below", 0, draw(st.integers(1, 4)), 1)
    stride, bias = draw(st.integers(1, 3)), draw(st.booleans())
    y = net.conv("conv", y, draw(st.integers(1, 5)), kernel, stride=stride, padding=padding, bias=bias, relu=False)
    graph = net.build(net.fc("fc", y, 3, relu=False))
    element_type = draw(st.sampled_from(sorted(UNIT_ROUNDOFF, key=str)))
    (x,) = graph.layers[2].in_shapes
    for length in (x.height, x.width) if element_type is ElementType.BFLOAT16 else ():
        starts = range(-padding, length + padding - kernel + 1, stride)
        assume(all(any(0 <= start + place < length for start in starts) for place in range(kernel)))
    return Workload(graph, draw(st.integers(1, 3)), element_type)


def run(
    workload: Workload, algorithm: str, *, channels_last: bool
) -> tuple[KernelTensors, KernelTensors, KernelTensors]:
    layer = workload.graph.layers[2]
    ran = []
    for phase in layer.training_phases:
        kernels = PyTorchLibrary("cpu", channels_last=channels_last).kernels(workload, layer, phase)
        kernel = next(kernel for kernel in kernels if kernel.algorithm == algorithm)
        tensors = operands(workload, layer, phase, kernel, channels_last=channels_last)
        kernel.run(tensors)
        ran.append(tensors)
    forward, data, weights = ran
    return forward, data, weights


def results(forward: KernelTensors, data: KernelTensors, weights: KernelTensors) -> tuple[torch.Tensor, ...]:
    return present(forward.output), present(data.input_gradients[0]), present(weights.weight_gradient)


@settings(max_examples=40)
@given(workload=workloads(), channels_last=st.booleans())
def test_framework_convolution_is_that_of_autograd(workload: Workload, *, channels_last: bool) -> None:
    layer = workload.graph.layers[2]
    forward, data, weights = run(workload, PYTORCH, channels_last=channels_last)
    x = forward.inputs[0].clone().requires_grad_()
    views = weight_views(layer, present(forward.weights), channels_last=channels_last)
    w, bias = (None if view is None else view.clone().requires_grad_() for view in views)
    assert w is not None
    operator = layer.operator
    assert isinstance(operator, Convolution)
    y = functional.conv2d(x, w, bias, operator.stride, operator.padding)
    y.backward(data.output_gradient)  # type: ignore[no-untyped-call]
    dw, dbias = weight_views(layer, present(weights.weight_gradient), channels_last=channels_last)
    assert torch.equal(forward.output, y)  # type: ignore[arg-type]
    assert torch.equal(data.input_gradients[0], x.grad)  # type: ignore[arg-type]
    assert torch.equal(dw, w.grad)  # type: ignore[arg-type]
    assert bias is None or torch.equal(dbias, bias.grad)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(workload=workloads(), channels_last=st.booleans())
def test_explicit_gemm_agrees_with_the_framework(workload: Workload, *, channels_last: bool) -> None:
    """Both sum the same products: each is off by at most g = n u / (1 - n u) of the sum of their magnitudes.

    u is the unit roundoff, n the number of roundings that a product passes on its way: the product and each sum that it
    enters, at most as many as there are terms, and one more where the result is stored (Higham, Accuracy and Stability
    of Numerical Algorithms, 3.1). Y sums C R S products and a bias; dX K R S; dW N P Q, its bias as many values. The
    sums of magnitudes are computed in float64 by the framework, of the magnitudes of the operands. Below the smallest
    normal number each of the n roundings is off by half a smallest step more.
    """
    layer = workload.graph.layers[2]
    operator, u = layer.operator, UNIT_ROUNDOFF[workload.element_type]
    forward, data, _ = theirs = run(workload, PYTORCH, channels_last=channels_last)
    x = forward.inputs[0].double().abs().requires_grad_()
    views = weight_views(layer, present(forward.weights), channels_last=channels_last)
    w, bias = (None if view is None else view.double().abs().requires_grad_() for view in views)
    assert w is not None
    assert isinstance(operator, Convolution)
    y = functional.conv2d(x, w, bias, operator.stride, operator.padding)
    y.backward(present(data.output_gradient).double().abs())  # type: ignore[no-untyped-call]
    windows = layer.out_shape.height * layer.out_shape.width * workload.batch_size
    filter_area = layer.work.filter_elements // layer.in_shapes[0].channels
    dw = present(w.grad)
    grads = [(dw.permute(0, 2, 3, 1) if channels_last else dw).flatten()]
    if bias is not None:
        grads.append(present(bias.grad))
    bounds = (
        (y, layer.work.filter_elements + 3),
        (present(x.grad), layer.out_shape.channels * filter_area + 2),
        (torch.cat(grads), windows + 2),
    )
    ours = run(workload, EXPLICIT_GEMM, channels_last=channels_last)
    for our, their, (magnitude, roundings) in zip(results(*ours), results(*theirs), bounds, strict=True):
        if roundings * u >= 0.5:
            continue  # the bound says nothing: as many roundings as a bfloat16 has values between 1 and 2
        allowed = 2 * (roundings * u / (1 - roundings * u) * magnitude + roundings * SMALLEST_STEP)
        assert ((our.double() - their.double()).abs() <= allowed).all()


@pytest.mark.parametrize("channels_last", [False, True])
def test_columns_of_one_image_lie_in_the_workspace(*, channels_last: bool) -> None:
    """Columns of 3 x 3 windows of 6 channels at 4 x 4 places: 6 * 9 * 16 * 4 = 3,456 B, however large the batch.

    With a border of 1 the image of 7 x 7 lies there as 6 x 9 x 9 too, 1,944 B; at stride 2 it has 4 x 4 windows.
    """
    for batch_size in (1, 5):
        net = GraphBuilder("columns", MapShape(6, 7, 7))
        y = net.conv("conv", 0, 5, 3, stride=2, padding=1, relu=False)
        graph = net.build(net.fc("fc", y, 3, relu=False))
        library = PyTorchLibrary("cpu", channels_last=channels_last)
        kernel = library.kernels(Workload(graph, batch_size), graph.layers[0], Phase.FORWARD)[1]
        assert (kernel.algorithm, kernel.family) == (EXPLICIT_GEMM, "explicit GEMM")
        assert kernel.passed_bytes == 3456 + 1944
        assert kernel.workspace_bytes == kernel.passed_bytes


def test_backward_data_does_not_read_x() -> None:
    """A plan releases X before it, so its values must not matter: the same dX with X gone."""
    net = GraphBuilder("no_x", MapShape(3, 6, 6))
    y = net.conv("below", 0, 4, 3)
    graph = net.build(net.conv("conv", y, 3, 4, relu=False))
    workload, layer = Workload(graph, 2), graph.layers[2]
    for kernel in PyTorchLibrary("cpu").kernels(workload, layer, Phase.BACKWARD_DATA):
        tensors = operands(workload, layer, Phase.BACKWARD_DATA, kernel, channels_last=False)
        kernel.run(tensors)
        again = operands(workload, layer, Phase.BACKWARD_DATA, kernel, channels_last=False)
        kernel.run(with_workspace(replace(again, inputs=()), kernel))
        assert torch.equal(tensors.input_gradients[0], again.input_gradients[0])  # type: ignore[arg-type]
