"""Kernels on a GPU: bit for bit those of plain PyTorch there, and what its convolutions take as workspace."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.operands import operands_alone
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.reference import run_reference
from tests.calibration.kernels.test_reference import assert_plain, explicit_everywhere
from tests.gpu.test_cudnn import TRANSFORMED
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.networks.vgg import vgg_paper
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.units import ElementType

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]


@pytest.mark.arithmetic
@pytest.mark.parametrize("allow_tf32", [False, True])
@pytest.mark.parametrize("element_type", ElementType)
@pytest.mark.parametrize(
    ("network", "channels_last"),
    [
        (tiny_linear, False),
        (tiny_forked, False),
        (tiny_residual, False),
        (tiny_linear, True),
        # Not tiny_forked: where windows overlap and the channels lie last, PyTorch's maximum pooling adds to dX in an
        # order that is another each time.
        (tiny_residual, True),
    ],
)
def test_loss_and_gradients_are_those_of_plain_pytorch(
    network: Callable[[], LayerGraph], element_type: ElementType, *, channels_last: bool, allow_tf32: bool
) -> None:
    with arithmetic(tf32=allow_tf32):
        assert_plain(Workload(network(), 8, element_type), channels_last=channels_last, device_type="cuda")


@pytest.mark.arithmetic
@pytest.mark.parametrize("channels_last", [False, True])
def test_explicit_gemm_gives_nearly_the_same(*, channels_last: bool) -> None:
    """As on the CPU: a few roundings of float32 in each layer, without TF32.

    But for the first filter of 5 x 5, whose gradient cuDNN computes to 1e-3 (see test_cudnn.py).
    """
    workload = Workload(tiny_residual(), 8)
    library = PyTorchLibrary("cuda", channels_last=channels_last)
    with arithmetic(tf32=False):
        explicit = run_reference(workload, library, explicit_everywhere, device_type="cuda")
        framework = run_reference(workload, library, device_type="cuda")
    for index, gradient in framework.gradients.items():
        if workload.graph.layers[index].kind is LayerKind.CONV:
            allowed = TRANSFORMED if index == 0 else 1e-5
            assert (explicit.gradients[index] - gradient).norm() <= allowed * gradient.norm()


@pytest.mark.parametrize("network", [tiny_forked, tiny_residual])
def test_workspace_that_is_known_is_all_that_is_taken(network: Callable[[], LayerGraph]) -> None:
    """Where a kernel states its workspace, it takes nothing but what it is passed."""
    workload = Workload(network(), 8, optimizer=Optimizer.ADAM)
    library = PyTorchLibrary("cuda")
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            for kernel in library.kernels(workload, layer, phase):
                if kernel.workspace_bytes is not None:
                    assert kernel.workspace_bytes == kernel.passed_bytes
                    assert bytes_taken(kernel, operands(workload, layer, phase, kernel)) == 0, (layer.name, phase)


def test_conv2_1_of_vgg16_takes_the_workspace_that_cudnn_said_without_a_gpu() -> None:
    """Asked for an H200 without having one, cuDNN 9.19 plans 205,815,824 B for NCHW in TF32 at batch 64."""
    if "H200" not in torch.cuda.get_device_name():
        pytest.skip(f"the prediction is of an H200, this is {torch.cuda.get_device_name()}")
    workload = Workload(vgg_paper(16), 64)
    layer = next(layer for layer in workload.graph.layers if layer.name == "conv2_1")
    kernel, *_ = PyTorchLibrary("cuda").kernels(workload, layer, Phase.FORWARD)
    tensors = operands(workload, layer, Phase.FORWARD, kernel)
    with arithmetic(tf32=True):
        taken = bytes_taken(kernel, tensors)
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    assert taken == 205_815_824, f"cuDNN {version} takes {taken:,} B"


def operands(workload: Workload, layer: Layer, phase: Phase, kernel: Kernel) -> KernelTensors:
    """Return operands on the GPU, the workspace included."""
    tensors = operands_alone(workload, layer, phase, "cuda", channels_last=False)
    return replace(tensors, workspace=torch.empty(kernel.passed_bytes, dtype=torch.uint8, device="cuda"))


def bytes_taken(kernel: Kernel, tensors: KernelTensors) -> int:
    """Return the maximum that a kernel asked PyTorch's allocator for, after a run that loads what it keeps."""
    kernel.run(tensors)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    kernel.run(tensors)
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"] - before)
