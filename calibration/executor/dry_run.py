"""Measured workspaces of kernels that do not state theirs: each is run on operands of its own, before planning.

PyTorch's kernels allocate results, reduction buffers and the workspaces of cuDNN themselves, and state no sizes. A plan
that counted nothing for them would run out of memory on the device.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from calibration.devices.interface import Device, OutOfDeviceMemory
from calibration.kernels.interface import Kernel, KernelLibrary
from calibration.measure.kernel_cases import KernelCase
from calibration.measure.kernel_rows import kernel_operands, lent_workspace, own_bytes
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload


@dataclass
class DryRunLibrary:
    """The kernels of a library, each of which states its workspace; a `KernelLibrary`.

    Attributes:
        device: of the library's kernels; idle while one is run.
    """

    device: Device
    library: KernelLibrary
    _found: dict[tuple[KernelShape, SavingRule, str], int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, device: Device, library: KernelLibrary) -> "DryRunLibrary":
        return library if isinstance(library, cls) else cls(device, library)

    @property
    def channels_last(self) -> bool:
        """Whether maps and filters lie in PyTorch's layout of that name."""
        return self.library.channels_last

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, the framework's own first."""
        case = KernelCase(KernelShape.of(workload, layer, phase), workload, layer, phase)
        offered = self.library.kernels(workload, layer, phase)
        silent = [each for each in offered if each.workspace_bytes is None]
        if unknown := [each for each in silent if self._key(case, each) not in self._found]:
            # Without room for the operands of one layer no plan fits, whatever the workspace.
            with suppress(OutOfDeviceMemory, torch.OutOfMemoryError):
                self._measure(case, unknown)
        return tuple(
            replace(each, workspace_bytes=self._found.get(self._key(case, each), each.passed_bytes))
            if each.workspace_bytes is None
            else each
            for each in offered
        )

    def _key(self, case: KernelCase, kernel: Kernel) -> tuple[KernelShape, SavingRule, str]:
        return case.shape, case.workload.graph.saving, kernel.algorithm

    def _measure(self, case: KernelCase, kernels: Sequence[Kernel]) -> None:
        device = self.device
        with kernel_operands(device, case, channels_last=self.channels_last) as (tensors,):
            for kernel in kernels:
                with lent_workspace(device, kernel) as passed:
                    work = partial(kernel.run, replace(tensors, workspace=passed))
                    self._found[self._key(case, kernel)] = kernel.passed_bytes + own_bytes(device, work)
                del work, passed
