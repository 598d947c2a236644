"""The reference against plain PyTorch, bit for bit: loss, every gradient, their sums and the second update.

Accumulated gradients are, as in autograd, one sum of two finished gradients for each element; updates are those of
torch.optim, from the same weights, gradient and states.
"""

from collections.abc import Callable

import pytest
import torch

from calibration.kernels.convolution import EXPLICIT_GEMM
from calibration.kernels.interface import given
from calibration.kernels.pytorch import PyTorchLibrary
from calibration.kernels.tensors import dtype_of
from tests.calibration.kernels.cases import added_to, alexnet_like, input_readers, operands, three_readers
from tests.calibration.kernels.plain_network import run_plainly
from tests.calibration.kernels.reference import run_reference
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.units import ElementType

BATCH_SIZE = 3


def assert_plain(workload: Workload, *, channels_last: bool, device_type: str = "cpu") -> None:
    """Compare a run of the reference under the framework's algorithms with plain PyTorch."""
    run = run_reference(workload, PyTorchLibrary(device_type, channels_last=channels_last), device_type=device_type)
    plain = run_plainly(workload, channels_last=channels_last, device_type=device_type)
    assert run.loss == plain.loss
    assert run.gradients.keys() == plain.gradients.keys()
    for index, gradient in plain.gradients.items():
        assert torch.equal(run.gradients[index], gradient), workload.graph.layers[index].name


@pytest.mark.sampled(5)
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("element_type", ElementType)
@pytest.mark.parametrize(
    "network", [tiny_linear, tiny_forked, tiny_residual, alexnet_like, three_readers, input_readers]
)
def test_loss_and_gradients_are_those_of_plain_pytorch(
    network: Callable[[], LayerGraph], element_type: ElementType, *, channels_last: bool
) -> None:
    assert_plain(Workload(network(), BATCH_SIZE, element_type), channels_last=channels_last)


@pytest.mark.parametrize(("network", "images", "threads"), [(alexnet_like, BATCH_SIZE, 2), (three_readers, 1, 1)])
def test_results_on_two_threads_and_of_one_image(network: Callable[[], LayerGraph], images: int, threads: int) -> None:
    """With one small image and one thread PyTorch leaves oneDNN out (`use_mkldnn` in aten/native/Convolution.cpp)."""
    torch.set_num_threads(threads)
    try:
        assert_plain(Workload(network(), images), channels_last=False)
    finally:
        torch.set_num_threads(1)


def explicit_everywhere(layer: Layer, _phase: Phase) -> str | None:
    return EXPLICIT_GEMM if layer.kind is LayerKind.CONV else None


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("network", [tiny_linear, tiny_forked, tiny_residual])
def test_explicit_gemm_everywhere_is_nearly_the_same(network: Callable[[], LayerGraph], *, channels_last: bool) -> None:
    """An error of 1e-5 of the norm is 170 unit roundoffs of float32: a few in each layer; a wrong kernel is off by 1.

    The two runs differ in bits, or the choice was not obeyed.
    """
    workload = Workload(network(), BATCH_SIZE)
    library = PyTorchLibrary("cpu", channels_last=channels_last)
    explicit = run_reference(workload, library, explicit_everywhere)
    framework = run_reference(workload, library)
    assert explicit.loss == pytest.approx(framework.loss, rel=1e-5)
    for index, gradient in framework.gradients.items():
        if workload.graph.layers[index].kind is LayerKind.CONV:
            assert (explicit.gradients[index] - gradient).norm() <= 1e-5 * gradient.norm()
    assert any(not torch.equal(explicit.gradients[index], g) for index, g in framework.gradients.items())


def test_a_loss_of_maps_is_refused() -> None:
    net = GraphBuilder("maps", MapShape(3, 5, 5))
    graph = net.build(net.conv("conv", 0, 4, 3, relu=False))
    with pytest.raises(ExecutionRefused, match="loss: reads maps of 4x3x3"):
        run_reference(Workload(graph, 2), PyTorchLibrary("cpu"))


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
