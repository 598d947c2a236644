"""PyTorch's own kernels, on the CPU or on CUDA: calls of aten for each layer and phase, without autograd."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from calibration.devices.interface import OutOfDeviceMemory
from calibration.kernels.batch_normalization import batch_normalization_kernels
from calibration.kernels.classifier import fully_connected_kernels, softmax_loss_kernels
from calibration.kernels.convolution import explicit_gemm, framework_convolution
from calibration.kernels.elementwise import activation_kernels, add_kernels, concat_kernels, update_kernels
from calibration.kernels.interface import Kernel, Site
from calibration.kernels.operands import operands_alone
from calibration.kernels.pooling import pooling_kernels
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.cost.operator_text import operator_text
from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Concat, ElementwiseAdd
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused

_NO_MEMORY = "can't allocate memory"


@dataclass
class PyTorchLibrary:
    """PyTorch's kernels for one device and layout; a `KernelLibrary`.

    Allocations of aten while a kernel runs are measured on the CPU, to the byte, once for each shape and number of
    threads, by running the kernel on operands of its own. On CUDA the workspace of a kernel that may allocate is None,
    and PyTorch's choice of kernels follows its settings (`calibration.devices.arithmetic`).
    """

    device_type: str
    channels_last: bool = False
    _measured: dict[tuple[KernelShape, SavingRule, str, int], int] = field(default_factory=dict, repr=False)

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, PyTorch's own first.

        Raises:
            ExecutionRefused: there is none; the message names the layer and the phase.
            OutOfDeviceMemory: on the CPU, there is no room to measure the workspace.
        """
        site = Site(workload, layer, self.channels_last, self.device_type)
        with torch.no_grad():
            return tuple(self._with_workspace(site, phase, kernel) for kernel in _kernels(site, phase))

    def _with_workspace(self, site: Site, phase: Phase, kernel: Kernel) -> Kernel:
        if self.device_type != "cpu":
            return kernel
        saving = site.workload.graph.saving
        key = (KernelShape.of(site.workload, site.layer, phase), saving, kernel.algorithm, torch.get_num_threads())
        if key not in self._measured:
            self._measured[key] = self._taken_bytes(site, phase, kernel)
        return replace(kernel, workspace_bytes=kernel.passed_bytes + self._measured[key])

    def _taken_bytes(self, site: Site, phase: Phase, kernel: Kernel) -> int:
        try:
            tensors = operands_alone(
                site.workload, site.layer, phase, self.device_type, channels_last=self.channels_last
            )
            tensors = replace(tensors, workspace=torch.empty(kernel.passed_bytes, dtype=torch.uint8))
            return _transient_bytes(lambda: kernel.run(tensors))
        except RuntimeError as refusal:
            # On the CPU it is a plain RuntimeError (c10/core/impl/alloc_cpu.cpp).
            if _NO_MEMORY not in str(refusal):
                raise
            raise OutOfDeviceMemory(f"{site.layer.name}: the machine lacks memory for {phase.value} alone") from refusal


def _kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    if phase is Phase.UPDATE:
        return update_kernels(site)
    match site.layer.operator:
        case _ if any(x.steps > 1 for x in site.layer.in_shapes):
            raise _refusal(site)
        case Convolution(groups=1, steps=1) as operator:
            return (framework_convolution(site, operator, phase), explicit_gemm(site, operator, phase))
        case Pooling() as operator:
            return pooling_kernels(site, operator, phase)
        case Activation():
            return activation_kernels(site, phase)
        case FullyConnected():
            return fully_connected_kernels(site, phase)
        case Concat():
            return concat_kernels(site, phase)
        case ElementwiseAdd():
            return add_kernels(site, phase)
        case BatchNormalization():
            return batch_normalization_kernels(site, phase)
        case SoftmaxLoss():
            return softmax_loss_kernels(site, phase)
        case _:
            raise _refusal(site)


def _refusal(site: Site) -> ExecutionRefused:
    layer = site.layer
    shapes = " and ".join(map(str, layer.in_shapes))
    return ExecutionRefused(f"{layer.name}: no kernel here computes {operator_text(layer.operator)} of {shapes}")


def _transient_bytes(run: Callable[[], None]) -> int:
    """Return the peak of the bytes that this thread allocates from PyTorch while `run` runs.

    PyTorch's CPU allocator, which oneDNN uses too, reports each allocation to the legacy profiler; the newer one would
    start a tracer for the whole process.
    """
    profiler = torch._C._profiler  # noqa: SLF001 - what torch.autograd.profiler_legacy is made of
    configuration = profiler.ProfilerConfig(
        profiler.ProfilerState.CPU,
        False,  # noqa: FBT003 - shapes of inputs
        True,  # noqa: FBT003 - memory
        False,  # noqa: FBT003 - stacks
        False,  # noqa: FBT003 - FLOPs
        False,  # noqa: FBT003 - modules
        profiler._ExperimentalConfig(),  # noqa: SLF001 - as above
    )
    torch._C._autograd._enable_profiler_legacy(configuration)  # noqa: SLF001 - as above
    try:
        run()
    finally:
        records = torch._C._autograd._disable_profiler_legacy()  # noqa: SLF001 - as above
    held = peak = 0
    for record in (record for thread in records for record in thread):
        if str(record.kind()) == "memory_alloc":
            held += record.cpu_memory_usage()
            peak = max(peak, held)
    return peak
