"""Execution of a training plan on a device: one iteration of real work, and its trace.

Allocations before the first kernel, copy or event are made, and given buffers filled, before the clock starts;
releases after the last one follow when it has stopped, but for residents (weights and optimizer states). A plan that
does not fit is a result, whether by its own placement or on the device.

PyTorch's settings that decide its choice of kernels (`calibration.devices.arithmetic`) are the caller's, as is warming
up. A plan that follows another one begins with an empty cache, so that what the allocator reserves for it can be
counted; that run is slow, and not one to be timed.
"""

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch

from calibration.devices.interface import Device, OutOfDeviceMemory, ReleasesExtents
from calibration.executor.compiled_plan import CompiledPlan, refuse_impossible
from calibration.executor.device_buffers import GivenContent, Residents
from calibration.executor.dry_run import DryRunLibrary
from calibration.executor.measured_trace import trace_of
from calibration.executor.pinned_arena import PinnedArena
from calibration.executor.plan_walk import PlanWalk
from calibration.kernels.interface import KernelLibrary
from calibration.kernels.operands import labels
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Allocate, AllocateExtent, Compute
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan, place_unlimited
from vdnnsim.plans.repetition import end_of_work, leading_operations
from vdnnsim.plans.trace import IterationTrace, MemoryCount
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan


@dataclass(frozen=True, slots=True)
class Execution:
    """One iteration on a real device.

    Attributes:
        trace: as of the engine.
        peaks: of device memory as the device counted it, beyond what was in use before the plan first ran.
        ordinal: how often the plan has run, this time included, since its device last ran another one: the first of
            these runs begins with an empty cache.
        gradients: dW by index of its layer, flat, copied to the host; empty where they are not kept.
        weights: W after the update, likewise, where the workload updates them.
    """

    trace: IterationTrace
    peaks: MemoryCount
    ordinal: int
    loss: float
    gradients: Mapping[int, torch.Tensor]
    weights: Mapping[int, torch.Tensor]


class Executor:
    """Executes plans of one workload on one device, one at a time; see `vdnnsim.validation.executor.Executor`.

    Args:
        library: the kernels of the device; unknown workspaces are measured by dry runs.
        seed: of weights, optimizer states, input batch and labels.
        arena: host memory to share with other executors of the device; None for its own.
        residents: buffers that stay between runs, likewise.
        keeps_results: whether an execution has gradients and updated weights; on a GPU it takes longer to copy those of
            a large network to the host than to compute them.
    """

    # Tests watch plans with a subclass.
    walk_type: ClassVar[type[PlanWalk]] = PlanWalk

    def __init__(
        self,
        device: Device,
        workload: Workload,
        library: KernelLibrary,
        seed: int = 0,
        arena: PinnedArena | None = None,
        residents: Residents | None = None,
        *,
        keeps_results: bool = True,
    ) -> None:
        self._device = device
        self._workload = workload
        self._library = DryRunLibrary.of(device, library)
        self._given = GivenContent(workload, seed, channels_last=library.channels_last)
        self._arena = arena or PinnedArena(device)
        self._residents = residents or Residents(device)
        results = {BufferKind.WEIGHT_GRADIENT} | ({BufferKind.WEIGHTS} if workload.updated_layers else set())
        self._kept = frozenset(results if keeps_results else ())
        self._compiled: CompiledPlan | None = None
        # Labels and loss are in no plan; they are in use before any clock starts, so no peak counts them, and belong to
        # the memory stream, from whose pool no plan allocates.
        device.memory.launch(partial(self._hold, labels(workload, seed)))
        device.synchronize([device.memory])

    def _hold(self, labels_of_batch: torch.Tensor) -> None:
        self._labels = labels_of_batch.to(self._device.torch_device)
        self._loss = torch.zeros(1, device=self._device.torch_device)

    def workspaces(self, workload: Workload, layer: Layer, phase: Phase) -> Mapping[str, int]:
        offered = self._library.kernels(workload, layer, phase)
        return {each.algorithm: each.workspace_bytes for each in offered if each.workspace_bytes is not None}

    def execute(
        self, plan: TrainingPlan, limits: MemoryLimits, pace: Mapping[int, float] | None = None
    ) -> Execution | DoesNotFit:
        """Run one iteration; see the protocol.

        Raises:
            PlanError: the plan breaks the contract of plans.
            ExecutionRefused: it cannot be executed here; the message names the operation.
        """
        compiled = self._compile(plan)
        content = self._given.of(compiled)
        placement = place_plan(plan, limits)
        if isinstance(placement, DoesNotFit):
            return placement
        self._residents.begin(plan)
        self._arena.reserve(compiled.copies.nbytes)
        walk = self.walk(compiled)
        try:
            return self._run(compiled, walk, content, limits, pace or {})
        except OutOfDeviceMemory:
            overflow = overflow_at(compiled, walk.position, walk.held_bytes, limits, self._device.memory_bytes)
        finally:
            walk.release_all()
        self._residents.release()
        return overflow

    def walk(self, compiled: CompiledPlan) -> PlanWalk:
        return self.walk_type(
            self._device, compiled, self._arena, self._residents, self._labels, self._loss, self._kept
        )

    def _compile(self, plan: TrainingPlan) -> CompiledPlan:
        if self._compiled is not None and self._compiled.plan is plan:
            return self._compiled
        # Residents of another plan would leave less room for dry runs.
        self._residents.release()
        check_plan(plan)
        refuse_impossible(plan, releases_extents=isinstance(self._device, ReleasesExtents))
        self._compiled = CompiledPlan.of(plan, self._workload, self._library)
        return self._compiled

    def close(self) -> None:
        """Release residents; another run allocates them again."""
        self._residents.release()

    def _run(
        self,
        compiled: CompiledPlan,
        walk: PlanWalk,
        content: Mapping[int, torch.Tensor],
        limits: MemoryLimits,
        pace: Mapping[int, float],
    ) -> Execution:
        plan, device = compiled.plan, self._device
        streams = [device.compute, device.memory]
        leading = leading_operations(plan)
        walk.allocate_head(leading)
        for buffer, elements in content.items():
            walk.fill(buffer, elements)
        device.synchronize(streams)
        collects = gc.isenabled()
        # Python's garbage collector may hold the host for a tenth of a second.
        gc.disable()
        try:
            held = self._residents.counted
            device.begin()
            walk.issue(leading, end_of_work(plan), pace)
            device.synchronize(streams)
            iteration_s = device.now_s()
        finally:
            if collects:
                gc.enable()
        peaks = held + device.peaks()
        walk.release_tail()
        device.synchronize(streams)
        return Execution(
            trace=trace_of(plan, walk.log, placement_of(compiled, limits), iteration_s),
            peaks=peaks,
            ordinal=self._residents.runs,
            loss=float(self._loss),
            gradients=walk.results_of(BufferKind.WEIGHT_GRADIENT),
            weights=walk.results_of(BufferKind.WEIGHTS),
        )


class DeviceLaboratory:
    """A device on which executors can be set up; see `vdnnsim.validation.executor.Laboratory` and `Executor`."""

    def __init__(self, device: Device, library: KernelLibrary, seed: int = 0, *, keeps_results: bool = True) -> None:
        self._device = device
        self._library = DryRunLibrary.of(device, library)
        self._seed = seed
        self._keeps_results = keeps_results
        self._arena = PinnedArena(device)
        self._residents = Residents(device)

    def executor(self, workload: Workload) -> Executor:
        """Return an executor of plans of a workload; residents of another one are released."""
        self._residents.release()
        return Executor(
            self._device,
            workload,
            self._library,
            self._seed,
            self._arena,
            self._residents,
            keeps_results=self._keeps_results,
        )


def placement_of(compiled: CompiledPlan, limits: MemoryLimits) -> Placement:
    """Place a plan as `ideal` does, with the workspaces of the kernels instead of the plan's."""
    sizes = zip(compiled.plan.buffers, compiled.taken_bytes, strict=True)
    taken = replace(compiled.plan, buffers=tuple(replace(buffer, nbytes=nbytes) for buffer, nbytes in sizes))
    return place_unlimited(taken, replace(limits, model=MemoryModel.IDEAL))


def overflow_at(
    compiled: CompiledPlan, position: int, held: Mapping[int, int], limits: MemoryLimits, memory_bytes: int
) -> DoesNotFit:
    """Return the result of a device that had no room for an operation; `held` has bytes by buffer."""
    plan = compiled.plan
    operation = plan.operations[position]
    assert isinstance(operation, Allocate | AllocateExtent | Compute), f"operation {position} takes no memory"
    if isinstance(operation, Allocate):
        buffer = operation.buffer
        nbytes = compiled.taken_bytes[buffer]
    elif isinstance(operation, AllocateExtent):
        buffer, nbytes = operation.buffer, len(operation.extent)
    else:
        call = compiled.calls[position]
        buffer = operation.writes[0] if call.workspace is None else call.workspace
        nbytes = call.workspace_bytes
    held_bytes: Counter[BufferKind] = Counter()
    for each, taken in held.items():
        held_bytes[plan.buffers[each].kind] += round_up(taken, limits.granule_bytes)
    capacity = min(limits.device_bytes, memory_bytes)
    free = max(0, capacity - held_bytes.total())
    return DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=position,
        buffer=buffer,
        layer=operation.layer,
        phase=operation.phase,
        requested_bytes=round_up(nbytes, limits.granule_bytes),
        free_bytes=free,
        largest_free_bytes=free,
        capacity_bytes=capacity,
        held_bytes=tuple(held_bytes.most_common()),
    )
