"""Kernels of a device: PyTorch's and, on CUDA where NVIDIA's package `cudnn` is installed, cuDNN's plans by name.

A plan writes its result into the caller's tensors, in workspace that the caller passes, and allocates nothing. The
bias is a pass of its own, as in PyTorch; its gradient is a sum, for which PyTorch may allocate a buffer. A dX that is
accumulated is computed into the workspace first.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from calibration.kernels.cudnn_graphs import Offer, PlanFinder, Target, first_line, frontend
from calibration.kernels.cudnn_plans import (
    ConvolutionPlan,
    ConvolutionProblem,
    family_of,
    result_begin_bytes,
    workspace_beside_result_bytes,
)
from calibration.kernels.interface import Kernel, KernelLibrary, KernelTensors, Site, given
from calibration.kernels.pytorch import PyTorchLibrary
from calibration.kernels.tensors import map_view
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError


def library_for(device: torch.device, *, channels_last: bool, tf32: bool) -> KernelLibrary:
    """Return all kernels of a device: PyTorch's own first, then cuDNN's plans.

    With `tf32` plans that multiply float32 as TF32 are offered; PyTorch's own kernels follow its settings
    (`calibration.devices.arithmetic`).

    Raises:
        DeviceError: the package `cudnn` is installed but finds no cuDNN, or cuDNN cannot be set up on the device.
    """
    framework = PyTorchLibrary(device.type, channels_last=channels_last)
    if device.type != "cuda" or importlib.util.find_spec("cudnn") is None:
        return framework
    with torch.cuda.device(device):
        try:
            handle = frontend().create_handle()
        except RuntimeError as failure:
            raise DeviceError(f"cuDNN cannot be set up on {device}: {first_line(failure)}") from None
    return CudnnLibrary(framework, handle, tf32)


@dataclass
class CudnnLibrary:
    """PyTorch's kernels and cuDNN's plans on one GPU; a `KernelLibrary`.

    Attributes:
        handle: of cuDNN, on that GPU.
        tf32: whether tensor cores may multiply float32.
        left_out: names of plans that could not be built or executed; they are not offered again for that problem.
    """

    framework: PyTorchLibrary
    handle: Any
    tf32: bool
    left_out: dict[ConvolutionProblem, set[str]] = field(default_factory=dict)
    _offers: dict[ConvolutionProblem, Offer] = field(default_factory=dict, repr=False)
    _stream: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._cudnn = frontend()
        self._finder = PlanFinder(Target(handle=self.handle))

    @property
    def channels_last(self) -> bool:
        """Whether maps and filters lie in PyTorch's layout of that name."""
        return self.framework.channels_last

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, PyTorch's own first."""
        own = self.framework.kernels(workload, layer, phase)
        if not isinstance(layer.operator, Convolution) or phase is Phase.UPDATE:
            return own
        shape = ConvolutionShape.of_layer(layer, workload.batch_size)
        problem = ConvolutionProblem(shape, phase, workload.element_type, self.channels_last, self.tf32)
        if problem not in self._offers:
            self._offers[problem] = self._finder.find(problem)
            self.left_out[problem] = set(self._offers[problem].left_out)
        offer = self._offers[problem]
        site = Site(workload, layer, self.channels_last, self.framework.device_type)
        plans = (plan for plan in offer.plans if plan.name not in self.left_out[problem])
        return (*own, *(self._kernel(site, problem, offer, plan) for plan in plans))

    def _kernel(self, site: Site, problem: ConvolutionProblem, offer: Offer, plan: ConvolutionPlan) -> Kernel:
        execution = PlanExecution(site, plan, partial(self._execute, problem, offer, plan))
        run = {
            Phase.FORWARD: execution.forward,
            Phase.BACKWARD_DATA: execution.backward_data,
            Phase.BACKWARD_WEIGHTS: execution.backward_weights,
        }[problem.phase]
        workspace_bytes = plan.workspace_bytes
        if problem.phase is Phase.BACKWARD_DATA and site.added_to(0):
            workspace_bytes = workspace_beside_result_bytes(plan, problem)
        operator = site.layer.operator
        assert isinstance(operator, Convolution), "cuDNN is asked for convolutions alone"
        sums = operator.bias and problem.phase is Phase.BACKWARD_WEIGHTS
        stated_bytes = None if sums else workspace_bytes
        return Kernel(plan.name, family_of(plan, problem), stated_bytes, workspace_bytes, run)

    def _execute(
        self,
        problem: ConvolutionProblem,
        offer: Offer,
        plan: ConvolutionPlan,
        tensors: dict[str, torch.Tensor],
        workspace: torch.Tensor | None,
    ) -> None:
        if (stream := torch.cuda.current_stream().cuda_stream) != self._stream:
            self._cudnn.set_stream(handle=self.handle, stream=stream)
            self._stream = stream
        pointers = {offer.operands[name]: tensor.data_ptr() for name, tensor in tensors.items()}
        workspace_pointer = 0 if workspace is None else workspace.data_ptr()
        try:
            offer.graph.execute_plan_at_index(pointers, workspace_pointer, offer.positions[plan.name], self.handle)
        except (RuntimeError, self._cudnn.cudnnGraphNotSupportedError) as failure:
            self.left_out[problem].add(plan.name)
            raise RuntimeError(f"cuDNN cannot execute {plan.name}: {first_line(failure)}") from failure


@dataclass(frozen=True, slots=True)
class PlanExecution:
    """The three phases of a convolution by one plan.

    Attributes:
        execute: runs the plan on tensors by the names of the problem's operands, in a workspace.
    """

    site: Site
    plan: ConvolutionPlan
    execute: Callable[[dict[str, torch.Tensor], torch.Tensor | None], None]

    def forward(self, tensors: KernelTensors) -> None:
        weights, bias = self.site.weights(tensors.weights)
        y = given(tensors.output)
        self.execute({"X": tensors.inputs[0], "W": weights, "Y": y}, tensors.workspace)
        if bias is not None:
            y.add_(bias.view(1, -1, 1, 1))

    def backward_data(self, tensors: KernelTensors) -> None:
        """DX, written or accumulated."""
        weights, _ = self.site.weights(tensors.weights)
        dx = given(tensors.input_gradients[0])
        target = self._beside(given(tensors.workspace)) if tensors.accumulates[0] else dx
        self.execute({"dY": given(tensors.output_gradient), "W": weights, "dX": target}, tensors.workspace)
        if target is not dx:
            dx.add_(target)

    def backward_weights(self, tensors: KernelTensors) -> None:
        """DW, and the sum of dY for the bias."""
        weight_gradient, bias_gradient = self.site.weights(tensors.weight_gradient)
        dy = given(tensors.output_gradient)
        self.execute({"X": tensors.inputs[0], "dY": dy, "dW": weight_gradient}, tensors.workspace)
        if bias_gradient is not None:
            torch.sum(dy, (0, 2, 3), out=bias_gradient)

    def _beside(self, workspace: torch.Tensor) -> torch.Tensor:
        site = self.site
        behind = workspace[result_begin_bytes(self.plan) :]
        shape, batch_size = site.layer.in_shapes[0], site.workload.batch_size
        return map_view(behind, shape, batch_size, site.dtype, channels_last=site.channels_last)
