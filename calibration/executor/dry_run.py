"""The workspace of kernels that do not state it: each is run once on operands of its own, before a plan is made.

PyTorch's kernels allocate results, reduction buffers and the workspaces of cuDNN themselves, and state no size ahead. A
plan that counted nothing for them would run out of memory on the device only.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from calibration.devices.interface import Device, OutOfDeviceMemory
from calibration.kernels.interface import Kernel, KernelLibrary, KernelTensors
from calibration.measure.kernel_rows import kernel_operands, own_bytes
from calibration.measure.subjects import Subject
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload


@dataclass
class DryRunLibrary:
    """The kernels of a library, each of which states its workspace; a `KernelLibrary`.

    Attributes:
        device: of the library's kernels; does nothing else while one is run.
    """

    device: Device
    library: KernelLibrary
    _found: dict[tuple[KernelShape, SavingRule, str], int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, device: Device, library: KernelLibrary) -> "DryRunLibrary":
        """Return a library itself where it is one already."""
        return library if isinstance(library, cls) else cls(device, library)

    @property
    def channels_last(self) -> bool:
        """Whether maps and filters lie in PyTorch's layout of that name."""
        return self.library.channels_last

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, the framework's own first.

        Raises:
            ExecutionRefused: there is none; the message names the layer and the phase.
        """
        subject = Subject(KernelShape.of(workload, layer, phase), workload, layer, phase)
        offered = self.library.kernels(workload, layer, phase)
        silent = [each for each in offered if each.workspace_bytes is None]
        if unknown := [each for each in silent if self._key(subject, each) not in self._found]:
            # Where there is no room for operands alone, no plan has any for them, whatever a kernel takes besides.
            with suppress(OutOfDeviceMemory, torch.OutOfMemoryError):
                self._run(subject, unknown)
        return tuple(
            replace(each, workspace_bytes=self._found.get(self._key(subject, each), each.passed_bytes))
            if each.workspace_bytes is None
            else each
            for each in offered
        )

    def _key(self, subject: Subject, kernel: Kernel) -> tuple[KernelShape, SavingRule, str]:
        return subject.shape, subject.workload.graph.saving, kernel.algorithm

    def _run(self, subject: Subject, kernels: Sequence[Kernel]) -> None:
        with kernel_operands(self.device, subject, channels_last=self.channels_last) as (tensors,):
            for kernel in kernels:
                self._found[self._key(subject, kernel)] = kernel.passed_bytes + self._own_bytes(kernel, tensors)

    def _own_bytes(self, kernel: Kernel, tensors: KernelTensors) -> int:
        device, passed = self.device, self.device.allocate(kernel.passed_bytes)
        try:
            return own_bytes(device, lambda: kernel.run(replace(tensors, workspace=passed)))
        finally:
            device.synchronize([device.compute])
            device.release(passed)
