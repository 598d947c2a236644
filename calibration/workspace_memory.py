"""Workspaces in device memory, as far as kernels take them from the caller.

A workspace that several kernels share takes what the largest of them needs, as a plan counts it. A kernel that takes
memory for itself instead must find room for it: while it runs, the workspace is smaller by so much.
"""

import torch

from calibration.buffers import DeviceBuffers
from calibration.compiled_plan import CompiledPlan, KernelCall


class WorkspaceMemory:
    """The workspaces of a plan among its buffers."""

    def __init__(self, compiled: CompiledPlan, buffers: DeviceBuffers) -> None:
        self._compiled = compiled
        self._buffers = buffers
        # Bytes of the workspaces that the plan has allocated; of them, only those above zero are among the buffers.
        self._held: dict[int, int] = {}

    def allocate(self, workspace: int) -> None:
        """Take a workspace where the plan does.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        self._held[workspace] = 0
        self._resize(workspace, self._compiled.idle_bytes.get(workspace, 0))

    def lend(self, call: KernelCall) -> torch.Tensor | None:
        """Return what a kernel wants to be handed, and make room for what it takes for itself.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        if call.workspace is None:
            return None
        self._resize(call.workspace, self._compiled.taken_bytes[call.workspace] - call.own_bytes)
        passed_bytes = call.kernel.passed_bytes
        return self._buffers.flat(call.workspace)[:passed_bytes] if passed_bytes else None

    def take_back(self, call: KernelCall) -> None:
        """Take again what a kernel that was launched took for itself.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        if call.workspace is not None:
            self._resize(call.workspace, self._compiled.idle_bytes[call.workspace])

    def release(self, workspace: int) -> None:
        """Give a workspace back."""
        self._resize(workspace, 0)
        del self._held[workspace]

    def _resize(self, workspace: int, nbytes: int) -> None:
        if self._held[workspace] == nbytes:
            return
        if self._held[workspace]:
            self._buffers.release(workspace)
            self._held[workspace] = 0
        if nbytes:
            self._buffers.allocate(workspace, nbytes)
            self._held[workspace] = nbytes
