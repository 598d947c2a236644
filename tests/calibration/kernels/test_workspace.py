"""Workspaces that kernels state, to the byte, against the allocations in PyTorch's profiler."""

from collections.abc import Callable

import pytest
from torch.profiler import ProfilerActivity, profile

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.kernels.cases import alexnet_like, operands, three_readers
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_residual
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.units import ElementType

NO_WORKSPACE = {"relu", "add", "concat", "average_pool", "sgd"}
"""Kinds of layers and updates that are done within their operands."""


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(
    ("network", "element_type", "optimizer"),
    [
        (tiny_residual, ElementType.FLOAT32, Optimizer.ADAM),
        (tiny_forked, ElementType.BFLOAT16, Optimizer.MOMENTUM),
        (alexnet_like, ElementType.FLOAT32, Optimizer.SGD),
        (three_readers, ElementType.FLOAT16, Optimizer.ADAM),
    ],
)
def test_workspace_is_exact(
    network: Callable[[], LayerGraph], element_type: ElementType, optimizer: Optimizer, *, channels_last: bool
) -> None:
    workload = Workload(network(), 2, element_type, optimizer)
    library = PyTorchLibrary("cpu", channels_last=channels_last)
    seen = set()
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            shape = KernelShape.of(workload, layer, phase)
            if shape in seen:
                continue
            seen.add(shape)
            for kernel in library.kernels(workload, layer, phase):
                tensors = operands(workload, layer, phase, kernel, channels_last=channels_last)
                taken = bytes_taken(kernel, tensors)
                assert kernel.workspace_bytes == kernel.passed_bytes + taken, (layer.name, phase, kernel.algorithm)
                if shape.kind in NO_WORKSPACE and "a" not in shape.gradients:
                    assert kernel.workspace_bytes == 0, (layer.name, phase)


def bytes_taken(kernel: Kernel, tensors: KernelTensors) -> int:
    """Return the peak of allocations in the profiler's trace."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as trace:
        kernel.run(tensors)
    assert trace.profiler is not None
    events = [event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    assert held == 0, "a kernel keeps nothing"
    return peak
