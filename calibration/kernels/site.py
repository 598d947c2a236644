"""Where a kernel is to run: a layer of a workload, in a layout, on a kind of device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.tensors import Part, carve, dtype_of, weight_views, workspace_bytes
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload

Run = Callable[[KernelTensors, list[torch.Tensor]], None]
"""What a kernel does with the caller's tensors and the parts of its workspace."""


@dataclass(frozen=True, slots=True)
class Site:
    """A layer of a workload and how its tensors lie.

    Attributes:
        device_type: PyTorch's word, `cpu` or `cuda`.
    """

    workload: Workload
    layer: Layer
    channels_last: bool
    device_type: str

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements of maps and weights."""
        return dtype_of(self.workload.element_type)

    def map_part(self, shape: MapShape, dtype: torch.dtype | None = None) -> Part:
        """Return room for a map of the whole batch, of the type of the maps unless told otherwise."""
        whole = (self.workload.batch_size, shape.channels, shape.height, shape.width)
        return Part(whole, dtype or self.dtype, self.channels_last)

    def added_to(self, position: int) -> bool:
        """Whether the dX of an input is added to what stands there."""
        index = self.layer.inputs[position]
        needed = self.workload.graph.maps[index].needs_gradient
        return needed and self.workload.accumulates(self.layer, index)

    def weights(self, flat: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return W and bias in the flat weights, or their gradients in the flat gradient."""
        assert flat is not None, f"{self.layer.name} has weights"
        return weight_views(self.layer, flat, channels_last=self.channels_last)

    def only(self, run: Run, parts: tuple[Part, ...] = (), *, allocates: bool = False) -> tuple[Kernel, ...]:
        """Return the one algorithm of a phase that offers no choice; for the arguments see `kernel`."""
        return (self.kernel(ONLY, "", run, parts, allocates=allocates),)

    def kernel(
        self, algorithm: str, family: str, run: Run, parts: tuple[Part, ...] = (), *, allocates: bool = False
    ) -> Kernel:
        """Return a kernel over parts of a workspace; where it `allocates`, only a measurement tells how much."""
        passed = workspace_bytes(parts)

        def run_in_workspace(tensors: KernelTensors) -> None:
            run(tensors, carve(tensors.workspace, parts))

        return Kernel(algorithm, family, None if allocates else passed, passed, run_in_workspace)


def given(tensor: torch.Tensor | None) -> torch.Tensor:
    """Return a tensor that the phase needs and so the caller has given."""
    assert tensor is not None, "the caller gives every tensor that a phase touches"
    return tensor


def deposit(result: torch.Tensor, gradient: torch.Tensor, *, added: bool) -> None:
    """Write a result where a gradient belongs, or add it to what stands there, as autograd joins two gradients."""
    if added:
        gradient.add_(result)
    else:
        gradient.copy_(result)
