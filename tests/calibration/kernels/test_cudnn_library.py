"""Kernels made of cuDNN's plans, without cuDNN: PyTorch's convolution on the CPU stands in for a plan."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from calibration.kernels.convolution import EXPLICIT_GEMM
from calibration.kernels.cudnn_library import CudnnLibrary, PlanExecution, library_for
from calibration.kernels.cudnn_plans import ConvolutionPlan
from calibration.kernels.interface import Kernel, KernelTensors, Site, given
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.cases import added_to, operands
from tests.calibration.kernels.frontend_double import Engine, Frontend, Note
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError

OWN_BYTES = 100
PLAN = ConvolutionPlan("eng1", OWN_BYTES, frozenset())

Tensors = dict[str, torch.Tensor]


def conv(net: GraphBuilder, y: int) -> int:
    return net.conv("under test", y, 4, 3, padding=1, relu=False)


def written_and_added() -> tuple[tuple[Workload, Layer], ...]:
    return tuple((Workload(graph, 2), layer) for graph, layer in added_to(conv))


def backward(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, which: int) -> torch.Tensor:
    """Return dX (0) or dW (1)."""
    mask, transposed = (which == 0, which == 1, False), False
    gradients: tuple[torch.Tensor, ...] = torch.ops.aten.convolution_backward(
        dy, x, w, None, (1, 1), (1, 1), (1, 1), transposed, (0, 0), 1, mask
    )
    return gradients[which]


def execute_on_cpu(phase: Phase) -> Callable[[Tensors, torch.Tensor | None], None]:
    """Return what computes a phase of the convolution, without bias, and spoils the plan's own workspace."""

    def execute(tensors: Tensors, workspace: torch.Tensor | None) -> None:
        assert workspace is not None
        workspace[:OWN_BYTES] = 0x55
        match phase:
            case Phase.FORWARD:
                tensors["Y"].copy_(functional.conv2d(tensors["X"], tensors["W"], padding=1))
            case Phase.BACKWARD_DATA:
                tensors["dX"].copy_(backward(tensors["dY"], tensors["dX"], tensors["W"], 0))
            case _:
                tensors["dW"].copy_(backward(tensors["dY"], tensors["X"], tensors["dW"], 1))

    return execute


def run(workload: Workload, layer: Layer, phase: Phase, *, channels_last: bool = False) -> KernelTensors:
    site = Site(workload, layer, channels_last, "cpu")
    execution = PlanExecution(site, PLAN, execute_on_cpu(phase))
    runs = {
        Phase.FORWARD: execution.forward,
        Phase.BACKWARD_DATA: execution.backward_data,
        Phase.BACKWARD_WEIGHTS: execution.backward_weights,
    }
    x_bytes = layer.in_shapes[0].elements * workload.batch_size * 4
    kernel = Kernel("eng1", "", None, 256 + x_bytes, runs[phase])
    tensors = operands(workload, layer, phase, kernel, channels_last=channels_last)
    kernel.run(tensors)
    return tensors


def framework(workload: Workload, layer: Layer, phase: Phase, *, channels_last: bool = False) -> KernelTensors:
    kernel = PyTorchLibrary("cpu", channels_last=channels_last).kernels(workload, layer, phase)[0]
    tensors = operands(workload, layer, phase, kernel, channels_last=channels_last)
    kernel.run(tensors)
    return tensors


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("accumulates", [False, True])
def test_results_land_where_the_frameworks_do(*, channels_last: bool, accumulates: bool) -> None:
    workload, layer = written_and_added()[0 if accumulates else 1]
    assert workload.accumulates(layer, layer.inputs[0]) is accumulates
    for phase in layer.training_phases:
        ours = run(workload, layer, phase, channels_last=channels_last)
        theirs = framework(workload, layer, phase, channels_last=channels_last)
        pairs = (
            (ours.output, theirs.output),
            (ours.weight_gradient, theirs.weight_gradient),
            *zip(ours.input_gradients, theirs.input_gradients, strict=True),
        )
        for mine, expected in pairs:
            if mine is not None:
                torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Frontend:
    engines = {
        0: Engine(),
        1: Engine(workspace_bytes=OWN_BYTES),
        2: Engine(frozenset({Note.TENSOR_CORE})),
        3: Engine(works=False),
        4: Engine(workspace_bytes=7, runs=False),
    }
    double = Frontend(engines, ["eng1", "eng3", "eng0", "eng2"])
    monkeypatch.setitem(sys.modules, "cudnn", double)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=5))
    return double


@pytest.fixture
def library(double: Frontend) -> CudnnLibrary:
    assert double.engines
    return CudnnLibrary(PyTorchLibrary("cuda"), handle=7, tf32=False)


def test_plans_stand_behind_the_frameworks_kernels(library: CudnnLibrary) -> None:
    """Where dX is added, its 2 x 6 x 8 x 8 elements of 4 B lie in the workspace too, behind 100 B rounded to 256."""
    (added, added_layer), (written, written_layer) = written_and_added()

    kernels = library.kernels(written, written_layer, Phase.BACKWARD_DATA)
    assert [kernel.algorithm for kernel in kernels] == ["pytorch", EXPLICIT_GEMM, "eng1", "eng0", "eng4"]
    assert [(each.workspace_bytes, each.passed_bytes) for each in kernels[2:]] == [(100, 100), (0, 0), (7, 7)]
    assert kernels[3].family == "implicit GEMM"
    assert list(library.left_out.values()) == [{"eng3"}]

    adding = library.kernels(added, added_layer, Phase.BACKWARD_DATA)
    assert [kernel.passed_bytes for kernel in adding[2:]] == [256 + 3_072, 3_072, 256 + 3_072]


@pytest.mark.parametrize("bias", [False, True])
def test_workspace_of_a_bias_sum_is_unknown(library: CudnnLibrary, *, bias: bool) -> None:
    """Plans of dW take 100, 0 and 7 B as of dX; what PyTorch takes to sum dY for the bias only a run tells."""
    net = GraphBuilder("one", MapShape(2, 8, 8))
    y = net.conv("conv", 0, 4, 3, padding=1, bias=bias, relu=False)
    workload = Workload(net.build(net.fc("fc", y, 5, relu=False)), 3)
    kernels = library.kernels(workload, workload.graph.layers[0], Phase.BACKWARD_WEIGHTS)[2:]
    assert [kernel.passed_bytes for kernel in kernels] == [100, 0, 7]
    assert [kernel.workspace_bytes for kernel in kernels] == ([None] * 3 if bias else [100, 0, 7])


def test_a_plan_runs_on_the_current_stream_on_the_callers_memory(library: CudnnLibrary, double: Frontend) -> None:
    _, (workload, layer) = written_and_added()
    kernel = library.kernels(workload, layer, Phase.BACKWARD_WEIGHTS)[2]
    tensors = operands(workload, layer, Phase.BACKWARD_WEIGHTS, kernel, channels_last=False)

    kernel.run(tensors)

    expected = {
        "X": tensors.inputs[0].data_ptr(),
        "dY": given(tensors.output_gradient).data_ptr(),
        "dW": given(tensors.weight_gradient).data_ptr(),
    }
    named = {"result": "dW"}
    ((name, pointers, workspace, handle),) = double.executed
    assert {named.get(operand, operand): pointer for operand, pointer in pointers.items()} == expected
    assert (name, workspace, handle) == ("eng1", given(tensors.workspace).data_ptr(), 7)
    assert double.streams == [5]


def test_a_plan_that_cannot_be_executed_is_not_offered_again(library: CudnnLibrary) -> None:
    _, (workload, layer) = written_and_added()
    failing = library.kernels(workload, layer, Phase.FORWARD)[-1]
    tensors = operands(workload, layer, Phase.FORWARD, failing, channels_last=False)

    with pytest.raises(RuntimeError, match="cuDNN cannot execute eng4: RuntimeError"):
        failing.run(tensors)

    again = [kernel.algorithm for kernel in library.kernels(workload, layer, Phase.FORWARD)]
    assert again == ["pytorch", EXPLICIT_GEMM, "eng1", "eng0"]
    other = [kernel.algorithm for kernel in library.kernels(replace(workload, batch_size=3), layer, Phase.FORWARD)]
    assert other == [*again, "eng4"]


def test_other_layers_and_a_cpu_have_the_frameworks_kernels_alone(library: CudnnLibrary) -> None:
    _, (workload, _) = written_and_added()
    fc = next(layer for layer in workload.graph.layers if layer.name == "fc")
    assert [kernel.algorithm for kernel in library.kernels(workload, fc, Phase.FORWARD)] == ["only"]
    assert not library.left_out
    on_cpu = library_for(torch.device("cpu"), channels_last=True, tf32=False)
    assert on_cpu == PyTorchLibrary("cpu", channels_last=True)


def test_failing_cudnn_set_up_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package has a plain RuntimeError for it."""

    def refuse() -> None:
        raise RuntimeError("cudnnHandle Create failed\nmore")

    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr("calibration.kernels.cudnn_library.frontend", lambda: SimpleNamespace(create_handle=refuse))
    with pytest.raises(DeviceError, match=r"cuda:0: cudnnHandle Create failed$"):
        library_for(torch.device("cuda", 0), channels_last=False, tf32=False)
