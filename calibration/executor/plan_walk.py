"""Issues a plan to a device, operation by operation, and logs when; lends kernels their workspaces.

Everything is allocated on the compute stream, and the plan's events order the accesses of the memory stream, so no
tensor needs `record_stream`. Operands are kept alive by the buffers alone, or on the CPU by the queued work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from calibration.devices.interface import Device, DeviceStream, Mark
from calibration.executor.compiled_plan import CompiledPlan, KernelCall
from calibration.executor.device_buffers import DeviceBuffers, Residents
from calibration.executor.measured_trace import IssueLog
from calibration.executor.pinned_arena import PinnedArena
from calibration.kernels.interface import KernelTensors
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.plans import operations
from vdnnsim.plans.operations import MemoryOperation, Operation, Stream
from vdnnsim.plans.training_plan import BufferKind


@dataclass(eq=False)
class PlanWalk:
    """One walk through a plan.

    Attributes:
        arena: with room for its copies.
        labels, loss: of the batch, in device memory outside of the plan.
        kept: kinds of buffers whose content is copied to the host before they are released.
    """

    device: Device
    compiled: CompiledPlan
    arena: PinnedArena
    residents: Residents
    labels: torch.Tensor
    loss: torch.Tensor
    kept: frozenset[BufferKind]

    def __post_init__(self) -> None:
        device = self.device
        self._plan = self.compiled.plan
        self._buffers = DeviceBuffers(device, self.compiled.forms, self.residents)
        self._workspaces = WorkspaceMemory(self.compiled, self._buffers)
        self._streams: dict[Stream, DeviceStream] = {Stream.COMPUTE: device.compute, Stream.MEMORY: device.memory}
        self._events: dict[int, Mark] = {}
        # Where the compute stream is, as long as nothing was issued to it and the host did not wait: a mark takes time.
        self._here: Mark | None = None
        self.position = 0
        self.log = IssueLog()
        self._results: dict[tuple[BufferKind, int], torch.Tensor] = {}

    @property
    def held_bytes(self) -> dict[int, int]:
        """Bytes of the allocated buffers; a workspace counts with the need of the largest of its kernels."""
        taken_bytes, away_bytes = self.compiled.taken_bytes, self._buffers.away_bytes
        return {buffer: taken_bytes[buffer] - away_bytes[buffer] for buffer in self._buffers.held}

    def results_of(self, kind: BufferKind) -> dict[int, torch.Tensor]:
        """Return the kept content of a kind, flat, by index of the layer; valid once the compute stream is done."""
        return {layer: kept for (each, layer), kept in self._results.items() if each is kind}

    def allocate_head(self, stop: int) -> None:
        """Carry out the Allocates and Aliases at the head of the plan, up to a position.

        Raises:
            OutOfDeviceMemory: there is no room.
        """
        for self.position in range(stop):
            operation = self._plan.operations[self.position]
            assert isinstance(operation, operations.Allocate | operations.Alias), (
                "the head of a plan only allocates memory"
            )
            self._change_memory(operation)

    def fill(self, buffer: int, content: torch.Tensor) -> None:
        """Copy content into a buffer, as flat elements; into the arena if it is given on the host."""
        if self._plan.buffers[buffer].given_on_host:
            target = self.arena.slice(self.compiled.copies.given[buffer], content.nbytes)
        else:
            target = self._buffers.flat(buffer)
        self.device.compute.launch(partial(_copy, target.view(content.dtype), content))

    def issue(self, start: int, stop: int, pace: Mapping[int, float]) -> None:
        """Issue the operations of a part of the plan.

        Raises:
            OutOfDeviceMemory: there is no room for the operation at `position`.
        """
        for self.position in range(start, stop):
            begun_s = self.device.now_s()
            operation = self._plan.operations[self.position]
            match operation:
                case operations.HostSynchronize(streams=streams):
                    self.device.synchronize([self._streams[each] for each in streams])
                    self._here = None
                    continue
                case operations.Alias():
                    self._change_memory(operation)
                case (
                    operations.Allocate()
                    | operations.AllocateExtent()
                    | operations.Release()
                    | operations.ReleaseExtent()
                ):
                    self._here = self.log.marks[self.position] = self._here or self.device.compute.mark()
                    self._change_memory(operation)
                case _:
                    self._launch(operation, pace.get(self.position))
            self.log.host_issue_s += self.device.now_s() - begun_s

    def release_tail(self) -> None:
        """Carry out the Releases at the end of the plan, which take no time."""
        tail = range(self.position + 1, len(self._plan.operations))
        for self.position in tail:
            operation = self._plan.operations[self.position]
            assert isinstance(operation, operations.Release), "the tail of a plan only releases memory"
            self._change_memory(operation)

    def release_all(self) -> None:
        try:
            self.device.synchronize([self.device.compute, self.device.memory])
        finally:
            self._buffers.release_all()

    def _launch(self, operation: Operation, lasts_s: float | None) -> None:
        position = self.position
        match operation:
            case operations.Compute():
                self._compute(self.compiled.calls[position], lasts_s)
            case operations.Offload(buffer=buffer, extent=extent):
                self._copy(self._slice(operation), self._buffers.flat(buffer, extent), lasts_s)
            case operations.Prefetch(buffer=buffer, extent=extent):
                self._copy(self._buffers.flat(buffer, extent), self._slice(operation), lasts_s)
            case operations.RecordEvent(event=event, stream=stream):
                self._events[event] = self.log.marks[position] = mark = self._streams[stream].mark()
                if stream is Stream.COMPUTE:
                    self._here = mark
            case operations.WaitEvent(event=event, stream=stream):
                self._streams[stream].wait(self._events[event])
                if stream is Stream.COMPUTE:
                    self._here = None
            case _:  # pragma: no cover
                raise AssertionError(f"operation {position} was refused")

    def _compute(self, call: KernelCall, lasts_s: float | None) -> None:
        work = partial(call.kernel.run, self._tensors(call))
        self.device.count_internal_allocation(call.own_bytes)
        interval = self.device.compute.launch(work, lasts_s=lasts_s)
        # It holds the last view of the lent workspace, which is freed before the whole is allocated again.
        del work
        self._workspaces.reclaim(call)
        self.log.issue_s[self.position] = self.device.now_s()
        self.log.intervals[self.position] = interval
        self._here = interval.end

    def _copy(self, target: torch.Tensor, source: torch.Tensor, lasts_s: float | None) -> None:
        # With pinned memory a copy that is non-blocking does not hold the host.
        interval = self.device.memory.launch(partial(_copy, target, source, non_blocking=True), lasts_s=lasts_s)
        self.log.issue_s[self.position] = self.device.now_s()
        self.log.intervals[self.position] = interval

    def _slice(self, copy: operations.Offload | operations.Prefetch) -> torch.Tensor:
        return self.arena.slice(self.compiled.copies.offsets[self.position], self._plan.copied_bytes(copy))

    def _tensors(self, call: KernelCall) -> KernelTensors:
        workspace = self._workspaces.lend(call)
        if call.layer.kind is LayerKind.LOSS:
            return call.operands.tensors(self._buffers.__getitem__, self.labels, self.loss, workspace)
        return call.operands.tensors(self._buffers.__getitem__, workspace=workspace)

    def _change_memory(self, operation: MemoryOperation) -> None:
        buffer = self._plan.buffers[operation.buffer]
        match operation:  # pragma: no branch
            case operations.Allocate() if buffer.kind is BufferKind.WORKSPACE:
                self._workspaces.allocate(operation.buffer)
            case operations.Allocate():
                self._buffers.allocate(operation.buffer, buffer.nbytes)
            case operations.Alias(storage=storage):
                self._buffers.lay(operation.buffer, storage, buffer.nbytes)
            case operations.Release() if buffer.kind is BufferKind.WORKSPACE:
                self._workspaces.release(operation.buffer)
            case operations.AllocateExtent(extent=extent):
                self._buffers.allocate_extent(operation.buffer, extent)
            case operations.ReleaseExtent(extent=extent):
                self._keep(operation.buffer)
                self._buffers.release_extent(operation.buffer, extent)
            case operations.Release():
                self._keep(operation.buffer)
                self._buffers.release(operation.buffer)

    def _keep(self, buffer: int) -> None:
        """Copy a buffer of a kept kind to the host, before it or its first extent is released."""
        if self._plan.buffers[buffer].kind not in self.kept or self._buffers.away_bytes[buffer]:
            return
        number = self._plan.buffers[buffer].storage
        assert number is not None, "weights are of the step"
        content, storage = self._buffers[buffer], self._plan.workload.step.storages[number]
        kept = self._results[storage.kind, storage.owner] = torch.empty(content.shape, dtype=content.dtype)
        self.device.compute.launch(partial(_copy, kept, content))


class WorkspaceMemory:
    """The workspaces of a plan among its buffers.

    A workspace that several kernels share is as large as the largest of them needs, as in the plan. While a kernel that
    allocates memory itself runs, the workspace is smaller by so much.
    """

    def __init__(self, compiled: CompiledPlan, buffers: DeviceBuffers) -> None:
        self._compiled = compiled
        self._buffers = buffers
        # Bytes of the allocated workspaces; those of zero bytes are not among the buffers.
        self._held: dict[int, int] = {}

    def allocate(self, workspace: int) -> None:
        self._held[workspace] = 0
        self._resize(workspace, self._compiled.idle_bytes.get(workspace, 0))

    def lend(self, call: KernelCall) -> torch.Tensor | None:
        """Return the part that is passed to a kernel, and make room for what it allocates itself."""
        if call.workspace is None:
            return None
        self._resize(call.workspace, self._compiled.taken_bytes[call.workspace] - call.own_bytes)
        passed_bytes = call.kernel.passed_bytes
        return self._buffers.flat(call.workspace)[:passed_bytes] if passed_bytes else None

    def reclaim(self, call: KernelCall) -> None:
        """Allocate again what a kernel that was launched allocated itself."""
        if call.workspace is not None:
            self._resize(call.workspace, self._compiled.idle_bytes[call.workspace])

    def release(self, workspace: int) -> None:
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


def _copy(target: torch.Tensor, source: torch.Tensor, *, non_blocking: bool = False) -> None:
    target.copy_(source, non_blocking=non_blocking)
