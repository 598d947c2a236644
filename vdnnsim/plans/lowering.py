"""Lowering of schedules to the operations of a plan, with memory by a scheme of allocation."""

from collections.abc import Iterable, Sequence

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans import operations
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.communication import with_communication
from vdnnsim.plans.lifetimes import Copied, Lifetimes, lifetimes, touched
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.schedule import (
    Allocate,
    Offload,
    Prefetch,
    Run,
    Schedule,
    ScheduleStep,
    Synchronize,
    Wait,
    by_operation,
    in_rounds,
)
from vdnnsim.plans.schemes import ByLifetime, Draft, Scheme
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.writer import PlanWriter


def lower(
    schedule: Schedule,
    workload: Workload,
    kernels: KernelChoice,
    scheme: Scheme = ByLifetime,
    *,
    label: str,
    algorithms: str,
    handles: int = 0,
    buffers: IterationBuffers | None = None,
) -> TrainingPlan:
    """Return the plan of a schedule.

    `buffers` are those of the workload and any that the policy added.
    """
    buffers, schedule = buffers or IterationBuffers(workload), by_operation(schedule, workload.step)
    schedule = in_rounds(schedule, workload.rounds)
    draft = Draft(workload, kernels, schedule, PlanWriter(workload, buffers.buffers), buffers)
    allocation = scheme(draft)
    throughout = frozenset(buffer for buffer, _, _ in allocation.held)
    lived = lifetimes(schedule, buffers, throughout, label=label)
    allocation.begin(lived)
    _Lowering(draft, allocation, lived).write()
    allocation.end()
    return with_communication(draft.plan.finish(label, algorithms, handles=handles))


class _Lowering:
    def __init__(self, draft: Draft, allocation: ByLifetime, lived: Lifetimes) -> None:
        self._schedule = draft.schedule
        self._plan = draft.plan
        self._buffers = draft.buffers
        self._under_way = draft.under_way
        # Extents being prefetched, by buffer; extents being offloaded, and those whose memory was released.
        self._prefetching: dict[int, list[range | None]] = {}
        self._offloading: set[Copied] = set()
        self._away: set[Copied] = set()
        self._allocation = allocation
        self._lived = lived
        # The event after which copies beside the last kernel may begin; None once the memory stream waits for it.
        self._ready: int | None = None

    def write(self) -> None:
        for buffer in self._lived.given:
            self._allocation.take(buffer, 0, Phase.FORWARD)
        dying: list[int] = []
        for position, step in enumerate(self._schedule):
            for buffer in self._lived.begins[position]:
                assert isinstance(step, Run | Prefetch | Allocate), "other steps write nothing"
                self._allocation.take(buffer, step.layer.index, step.phase)
            self._take(position, step)
            dying += self._lived.ends[position]
            if not self._copies_go_on(position):
                for buffer in dying:
                    self._allocation.give(buffer)
                dying = []

    def _copies_go_on(self, position: int) -> bool:
        """Whether the next step copies beside the same kernel, and so is issued before memory is released.

        Or prefetches what such an offload copies.
        """
        step, following = self._schedule[position], self._following(position)
        if isinstance(following, Prefetch):
            return isinstance(step, Offload) and step.beside
        return isinstance(following, Offload) and following.beside

    def _following(self, position: int) -> ScheduleStep | None:
        return self._schedule[position + 1] if position + 1 < len(self._schedule) else None

    def _take(self, position: int, step: ScheduleStep) -> None:
        match step:
            case Run():
                self._run(position, step)
            case Offload():
                self._offload(position, step)
            case Prefetch():
                self._fetch(position, step)
            case Wait(buffers=what, extent=extent):
                copies = ((buffer, each) for buffer in what for each in self._under_way.get(buffer, ()))
                self._wait([copied for copied in copies if extent in (None, copied[1])])
                self._release_extents([(buffer, extent) for buffer in what if (buffer, extent) in self._offloading])
            case Synchronize():
                self._plan.add(operations.HostSynchronize((Stream.COMPUTE, Stream.MEMORY)))
                self._under_way.clear()
                self._prefetching.clear()
            case _:
                pass

    def _run(self, position: int, step: Run) -> None:
        for buffer in touched(step, self._buffers)[0]:
            if buffer in self._prefetching:
                self._wait([(buffer, extent) for extent in self._prefetching[buffer]])
        following = self._following(position)
        if isinstance(following, Offload) and following.beside:
            self._ready = self._plan.record(Stream.COMPUTE)
        self._allocation.compute(step)

    def _offload(self, position: int, step: Offload) -> None:
        if not step.beside:
            self._follow_compute()
        elif self._ready is not None:
            self._plan.add(operations.WaitEvent(self._ready, Stream.MEMORY))
            self._ready = None
        mechanism = step.mechanism or operations.Pinned()
        for buffer in step.buffers:
            copy = operations.Offload(buffer, step.layer.index, step.phase, mechanism, step.copy, step.extent)
            self._plan.add(copy)
            self._mark(position, (buffer, step.extent))
            if step.extent is not None:
                self._offloading.add((buffer, step.extent))
            if (position, buffer) in self._lived.departing:
                self._allocation.note_offload(buffer)

    def _fetch(self, position: int, step: Prefetch) -> None:
        copied = [(buffer, step.extent) for buffer in step.buffers]
        for buffer, extent in copied:
            if (buffer, extent) in self._away and extent is not None:
                self._away.remove((buffer, extent))
                self._plan.add(operations.AllocateExtent(buffer, extent, step.layer.index, step.phase))
        self._follow_compute()
        for buffer, extent in copied:
            self._plan.add(
                operations.Prefetch(
                    buffer=buffer,
                    layer=step.layer.index,
                    on_demand=step.on_demand,
                    keeps_copy=step.keeps_copy,
                    mechanism=step.mechanism or operations.Pinned(),
                    copy=step.copy,
                    extent=extent,
                    phase=step.phase,
                )
            )
            self._mark(position, (buffer, extent))
            self._prefetching.setdefault(buffer, []).append(extent)

    def _release_extents(self, extents: Iterable[Copied]) -> None:
        for buffer, extent in extents:
            assert extent is not None, "whole buffers are released by lifetime"
            self._plan.add(operations.ReleaseExtent(buffer, extent))
            self._offloading.remove((buffer, extent))
            self._away.add((buffer, extent))

    def _follow_compute(self) -> None:
        """Order the next copy after the kernels so far."""
        self._plan.add(operations.WaitEvent(self._plan.record(Stream.COMPUTE), Stream.MEMORY))

    def _mark(self, position: int, copied: Copied) -> None:
        """Record an event after a copy that is waited for."""
        buffer, extent = copied
        awaited = (position, buffer) in self._lived.awaited
        self._under_way.setdefault(buffer, {})[extent] = self._plan.record(Stream.MEMORY) if awaited else None

    def _wait(self, copies: Sequence[Copied]) -> None:
        """Let the compute stream wait for copies, unless the scheme of allocation already has."""
        for buffer, _ in copies:
            self._prefetching.pop(buffer, None)
        events = [
            event for buffer, extent in copies if (event := self._under_way[buffer].pop(extent, None)) is not None
        ]
        if events:
            self._plan.add(operations.WaitEvent(max(events), Stream.COMPUTE))
