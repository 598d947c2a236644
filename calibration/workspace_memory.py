"""Workspaces in device memory, as far as kernels take them from the caller.

A workspace holds nothing between two kernels. So where several kernels share one, it is taken anew for a kernel that
wants another size: a kernel that takes memory for itself instead must find room for it. What is in use is then never
more than the largest workspace, which is what a plan counts.
"""

import torch

from calibration.buffers import DeviceBuffers
from calibration.programme import KernelCall, Programme


class WorkspaceMemory:
    """The workspaces of a plan among its buffers."""

    def __init__(self, programme: Programme, buffers: DeviceBuffers) -> None:
        self._programme = programme
        self._buffers = buffers
        # Bytes of the workspaces that the plan has allocated; of them, only those above zero are among the buffers.
        self._taken: dict[int, int] = {}

    def allocate(self, workspace: int) -> None:
        """Take a workspace where the plan does: as much as its greediest kernel wants to be handed.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        self._taken[workspace] = 0
        self._resize(workspace, self._programme.passed_bytes.get(workspace, 0))

    def lend(self, call: KernelCall) -> torch.Tensor | None:
        """Return what a kernel wants to be handed.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        if call.workspace is None:
            return None
        self._resize(call.workspace, call.kernel.passed_bytes)
        return self._buffers.flat(call.workspace) if call.kernel.passed_bytes else None

    def release(self, workspace: int) -> None:
        """Give a workspace back."""
        self._resize(workspace, 0)
        del self._taken[workspace]

    def _resize(self, workspace: int, nbytes: int) -> None:
        if self._taken[workspace] == nbytes:
            return
        if self._taken[workspace]:
            self._buffers.release(workspace)
            self._taken[workspace] = 0
        if nbytes:
            self._buffers.allocate(workspace, nbytes)
            self._taken[workspace] = nbytes
