"""The reference against plain PyTorch: loss and every gradient, bit for bit."""

from collections.abc import Callable

import pytest
import torch

from calibration.kernels.convolution import EXPLICIT_GEMM
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.cases import alexnet_like, input_readers, three_readers
from tests.calibration.kernels.plain_network import run_plainly
from tests.calibration.kernels.reference import run_reference
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
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
