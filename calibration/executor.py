"""Executes a training plan on a device: one iteration of real work, and the trace of what happened.

What the plan allocates before its first kernel, copy or event is allocated before the clock starts, and what is given
is filled in; what it releases after the last one is released after the clock has stopped. A plan that does not fit is
a result, whether the plan's own arithmetic says so or the device.

The settings of PyTorch that decide which kernels it chooses (`calibration.devices.arithmetic`) are the
caller's, as is any warming up: an executor runs a plan once for each call. A plan that follows another one begins with
an empty cache, so that what the allocator reserves for it can be told; that run is slow, and not one to be timed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch

from calibration.arena import PinnedArena, lay_copies
from calibration.capabilities import leading_operations
from calibration.devices.port import Device, MemoryPeaks, OutOfDeviceMemory
from calibration.execution import Execution
from calibration.given import GivenContent
from calibration.kernels.initial import labels
from calibration.kernels.port import KernelLibrary
from calibration.programme import Programme
from calibration.timeline import trace_of
from calibration.walk import PlanWalk
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.operations import Allocate, Compute, Release
from vdnnsim.plan.placement import DoesNotFit, MemoryLimits, Placement, Pool, place_plan
from vdnnsim.plan.training_plan import Buffer, BufferKind, TrainingPlan

_NO_LIMIT_BYTES = 2**62


class Executor:
    """Executes plans of one workload on one device, one at a time; see `vdnnsim.validation.port.Executor`.

    Args:
        device: where.
        workload: of which the plans are.
        library: the kernels, of the same device.
        seed: of weights, optimizer states, input batch and labels.
    """

    def __init__(self, device: Device, workload: Workload, library: KernelLibrary, seed: int = 0) -> None:
        self._device = device
        self._workload = workload
        self._library = library
        self._given = GivenContent(workload, seed, channels_last=library.channels_last)
        self._arena = PinnedArena(device)
        self._cached: TrainingPlan | None = None
        self._reserved_bytes = 0
        # Labels and loss are of no plan; they are in use before any clock starts, so no peak counts them.
        self._labels = labels(workload, seed).to(device.torch_device)
        self._loss = torch.zeros(1, device=device.torch_device)

    def execute(
        self, plan: TrainingPlan, limits: MemoryLimits, pace: Mapping[int, float] | None = None
    ) -> Execution | DoesNotFit:
        """Run one iteration; see the port.

        Raises:
            PlanError: the plan breaks the contract of plans.
            ExecutionRefused: it asks for what this executor cannot do; the message names it.
        """
        check_plan(plan)
        programme = Programme.of(plan, self._workload, self._library)
        content = {
            buffer: self._given.of(plan, buffer, form)
            for buffer, form in enumerate(programme.forms)
            if form is not None and plan.buffers[buffer].given
        }
        placement = place_plan(plan, limits)
        if isinstance(placement, DoesNotFit):
            return placement
        if plan is not self._cached:
            self._device.empty_cache()
            self._cached, self._reserved_bytes = plan, 0
        layout = lay_copies(plan)
        self._arena.reserve(layout.nbytes)
        walk = PlanWalk(self._device, programme, self._arena, layout, self._labels, self._loss)
        try:
            return self._run(programme, walk, content, limits, pace or {})
        except OutOfDeviceMemory:
            return _overflow(programme, walk, limits, self._device)
        finally:
            walk.abandon()

    def _run(
        self,
        programme: Programme,
        walk: PlanWalk,
        content: Mapping[int, torch.Tensor],
        limits: MemoryLimits,
        pace: Mapping[int, float],
    ) -> Execution:
        plan, device = programme.plan, self._device
        streams = [device.compute, device.memory]
        leading = leading_operations(plan)
        device.begin()
        walk.take(leading)
        for buffer, elements in content.items():
            walk.fill(buffer, elements)
        device.synchronize(streams)
        peaks_before = device.peaks()
        device.begin()
        walk.issue(leading, _end_of_work(plan), pace)
        device.synchronize(streams)
        iteration_s = device.now_s()
        peaks = self._peaks(peaks_before, device.peaks())
        walk.give_up()
        device.synchronize(streams)
        updated = {layer.index for layer in self._workload.updated_layers}
        return Execution(
            trace=trace_of(plan, walk.log, _placement_of_what_was_taken(programme, limits), iteration_s),
            peaks=peaks,
            loss=float(self._loss),
            gradients={of: kept for (kind, of), kept in walk.results.items() if kind is BufferKind.WEIGHT_GRADIENT},
            weights={
                of: kept for (kind, of), kept in walk.results.items() if kind is BufferKind.WEIGHTS and of in updated
            },
        )

    def _peaks(self, before: MemoryPeaks, since: MemoryPeaks) -> MemoryPeaks:
        """Return the maxima over both parts of a run: in the first nothing is released, so all of it adds up.

        What is reserved also outlives a run: to what this one reserved comes what those before it had.
        """
        allocated_bytes = _added(before.allocated_bytes, since.allocated_bytes)
        reserved_bytes = _added(before.reserved_bytes, since.reserved_bytes)
        if reserved_bytes is not None:
            self._reserved_bytes += reserved_bytes
            reserved_bytes = self._reserved_bytes
        return MemoryPeaks(before.requested_bytes + since.requested_bytes, allocated_bytes, reserved_bytes)


class DeviceLaboratory:
    """A device on which executors can be set up; see `vdnnsim.validation.port.Laboratory`."""

    def __init__(self, device: Device, library: KernelLibrary, seed: int = 0) -> None:
        self._device = device
        self._library = library
        self._seed = seed

    def executor(self, workload: Workload) -> Executor:
        """Return an executor of plans of a workload."""
        return Executor(self._device, workload, self._library, self._seed)


def _added(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


def _end_of_work(plan: TrainingPlan) -> int:
    """Return the position behind the last operation that is not a Release."""
    end = len(plan.operations)
    while end and isinstance(plan.operations[end - 1], Release):
        end -= 1
    return end


def _taken_bytes(programme: Programme, number: int, buffer: Buffer) -> int:
    """Return what a buffer takes of the device: of a workspace as much as its greediest kernel needs."""
    if buffer.kind is not BufferKind.WORKSPACE:
        return buffer.nbytes
    return max((call.workspace_bytes for call in programme.calls_with(number)), default=0)


def _placement_of_what_was_taken(programme: Programme, limits: MemoryLimits) -> Placement:
    """Count a plan as `ideal` does, but with the workspaces that kernels took instead of those that it foresaw."""
    plan = programme.plan
    taken = replace(
        plan,
        buffers=tuple(
            replace(buffer, nbytes=_taken_bytes(programme, number, buffer))
            for number, buffer in enumerate(plan.buffers)
        ),
    )
    unlimited = MemoryLimits(MemoryModel.IDEAL, _NO_LIMIT_BYTES, _NO_LIMIT_BYTES, limits.granule_bytes)
    placement = place_plan(taken, unlimited)
    assert isinstance(placement, Placement)
    return placement


def _overflow(programme: Programme, walk: PlanWalk, limits: MemoryLimits, device: Device) -> DoesNotFit:
    """Say for which operation the device had no room, and what held the rest."""
    plan = programme.plan
    operation = plan.operations[walk.position]
    assert isinstance(operation, Allocate | Compute), f"operation {walk.position} takes no memory"
    if isinstance(operation, Allocate):
        buffer = operation.buffer
        nbytes = _taken_bytes(programme, buffer, plan.buffers[buffer])
    else:
        call = programme.calls[walk.position]
        buffer = operation.writes[0] if call.workspace is None else call.workspace
        nbytes = call.workspace_bytes
    held: Counter[BufferKind] = Counter()
    for number in walk.held:
        kind = plan.buffers[number].kind
        held[kind] += round_up(_taken_bytes(programme, number, plan.buffers[number]), limits.granule_bytes)
    capacity = min(limits.device_bytes, device.memory_bytes)
    free = max(0, capacity - held.total())
    return DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=walk.position,
        buffer=buffer,
        layer=operation.layer,
        phase=operation.phase,
        requested_bytes=round_up(nbytes, limits.granule_bytes),
        free_bytes=free,
        largest_free_bytes=free,
        capacity_bytes=capacity,
        held_bytes=tuple(held.most_common()),
    )
