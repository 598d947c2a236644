"""cuDNN's plans on a GPU: their workspaces are all that they take, and their results those of PyTorch."""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.kernels.cudnn_library import library_for
from calibration.kernels.cudnn_plans import FFT, WINOGRAD
from calibration.kernels.interface import Kernel, KernelLibrary, KernelTensors
from calibration.kernels.operands import operands_alone
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.pretend,
    pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="nvidia-cudnn-frontend is not installed"),
]

FRAMEWORKS_OWN = 2
"""PyTorch's own and explicit GEMM stand before the plans; the second is exact but for roundings of each sum."""


NO_NUMBERS = "eng72"
"""On an H100 this engine of cuDNN 9.19 returned none, forward in 16 bits; `calibrate` gives it no time."""
TRANSFORMED = 2.0**-9
"""Of Winograd and FFT, which cuDNN does not bound: filters of 5 x 5 in float32 differed by 5e-4 on an H100, and by 1e-3
the gradient of their weights by what PyTorch itself takes there (`eng17`), which has no note that says why."""


@cache
def library(*, channels_last: bool = False, tf32: bool = False) -> KernelLibrary:
    """One for all tests, for it looks for cuDNN's plans of each shape once."""
    return library_for(torch.device("cuda", 0), channels_last=channels_last, tf32=tf32)


def strided() -> Workload:
    """Two convolutions, so that the second has a dX; its stride leaves a rest."""
    net = GraphBuilder("strided", MapShape(8, 31, 29))
    y = net.conv("below", 0, 16, 3, padding=1, relu=False)
    y = net.conv("above", y, 32, 5, stride=2, padding=2, relu=False)
    return Workload(net.build(net.fc("fc", y, 5, relu=False)), 4)


def convolutions(workload: Workload) -> Iterator[tuple[Layer, Phase]]:
    for layer in workload.graph.layers:
        if isinstance(layer.operator, Convolution):
            yield from ((layer, phase) for phase in layer.training_phases)


def run(workload: Workload, layer: Layer, phase: Phase, kernel: Kernel, *, channels_last: bool) -> KernelTensors:
    """Run a kernel on operands that are the same each time, in a workspace of what is no number."""
    tensors = operands_alone(workload, layer, phase, "cuda", channels_last=channels_last)
    workspace = torch.full((kernel.passed_bytes,), 0xFF, dtype=torch.uint8, device="cuda")
    tensors = replace(tensors, workspace=workspace if kernel.passed_bytes else None)
    kernel.run(tensors)
    torch.cuda.synchronize()
    return tensors


def results(tensors: KernelTensors, phase: Phase) -> torch.Tensor:
    found = {
        Phase.FORWARD: tensors.output,
        Phase.BACKWARD_DATA: (*tensors.input_gradients, None)[0],
        Phase.BACKWARD_WEIGHTS: tensors.weight_gradient,
    }[phase]
    assert found is not None
    return found


BESIDE = pytest.mark.hardware("layout and addition were seen with each other, and the host computes both alike")


@pytest.mark.arithmetic
@pytest.mark.parametrize(
    ("element_type", "tf32", "tolerance"),
    [
        # As of explicit GEMM: a few roundings of float32 in each sum.
        (ElementType.FLOAT32, False, 1e-5),
        # Both factors and, in 16 bits, the result are rounded by each of the two; TF32 keeps 11 bits as float16 does.
        (ElementType.FLOAT32, True, 6 * 2.0**-11),
        (ElementType.FLOAT16, False, 6 * 2.0**-11),
        (ElementType.BFLOAT16, False, 6 * 2.0**-8),
    ],
)
@pytest.mark.parametrize(
    ("channels_last", "forked"),
    [*((False, False), (True, True)), *(pytest.param(*each, marks=BESIDE) for each in ((False, True), (True, False)))],
)
def test_every_plan_computes_what_explicit_gemm_does(
    element_type: ElementType, tolerance: float, *, tf32: bool, channels_last: bool, forked: bool
) -> None:
    """In the same arithmetic, in the norm; the forked network adds to a dX."""
    workload = replace(Workload(tiny_forked(), 8) if forked else strided(), element_type=element_type)
    offered = library(channels_last=channels_last, tf32=tf32)
    plans = 0
    with arithmetic(tf32=tf32):
        for layer, phase in convolutions(workload):
            kernels = offered.kernels(workload, layer, phase)
            exact = results(run(workload, layer, phase, kernels[1], channels_last=channels_last), phase).double()
            for kernel in (kernels[0], *kernels[FRAMEWORKS_OWN:]):
                plans += kernel is not kernels[0]
                found = results(run(workload, layer, phase, kernel, channels_last=channels_last), phase).double()
                if kernel.algorithm == NO_NUMBERS and not found.isfinite().all():
                    continue
                is_transformed = kernel.family in (WINOGRAD, FFT) or (
                    phase is Phase.BACKWARD_WEIGHTS and kernel.algorithm.startswith(("pytorch", "eng17"))
                )
                allowed = max(tolerance, TRANSFORMED) if is_transformed else tolerance
                assert (found - exact).norm() <= allowed * exact.norm(), (layer.name, phase, kernel.algorithm)
    assert plans


@pytest.mark.hardware("the bits of a result are those of a plan that ran")
@pytest.mark.parametrize("channels_last", [False, True])
def test_a_plan_gives_the_same_bits_each_time(*, channels_last: bool) -> None:
    workload = strided()
    offered = library(channels_last=channels_last, tf32=True)
    for layer, phase in convolutions(workload):
        for kernel in offered.kernels(workload, layer, phase)[FRAMEWORKS_OWN:]:
            first = results(run(workload, layer, phase, kernel, channels_last=channels_last), phase)
            second = results(run(workload, layer, phase, kernel, channels_last=channels_last), phase)
            assert torch.equal(first, second), (layer.name, phase, kernel.algorithm)


def test_a_plan_that_states_its_workspace_takes_nothing_else() -> None:
    """All but those of dW, behind which dY is summed for the bias."""
    workload = strided()
    offered = library(channels_last=False, tf32=True)
    stated = 0
    for layer, phase in convolutions(workload):
        for kernel in offered.kernels(workload, layer, phase)[FRAMEWORKS_OWN:]:
            if kernel.workspace_bytes is None:
                assert phase is Phase.BACKWARD_WEIGHTS
                continue
            stated += 1
            tensors = operands_alone(workload, layer, phase, "cuda", channels_last=False)
            tensors = replace(tensors, workspace=torch.empty(kernel.passed_bytes, dtype=torch.uint8, device="cuda"))
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            kernel.run(tensors)
            torch.cuda.synchronize()
            assert torch.cuda.max_memory_allocated() == before, (layer.name, phase, kernel.algorithm)
    assert stated
