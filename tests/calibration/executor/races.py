"""Races of an executed plan: operations on two streams that touch the same bytes, with no order between them.

The bytes are those that the operations were really given: where the allocator put the buffers of a plan, which reuses
the memory of released ones, what kernels took for themselves, and the slices of pinned host memory. The order is that
of `tests.pretend.stream_races`, whatever the durations. Two that both read do not disturb each other.

`check_plan` proves the same of buffers by their names. It sees nothing of addresses: whether the allocator hands memory
on too early, or lays two buffers into the same bytes, shows here alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch

from calibration.executor.compiled_plan import CompiledPlan, KernelCall
from calibration.executor.executor import Executor
from calibration.executor.plan_walk import PlanWalk
from calibration.kernels.interface import KernelTensors
from tests.pretend.stream_races import Happening, Record, Synchronize, Touch, Wait, Work, find_hazards
from tests.pytorch_allocator.history import Entry, recorded
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import (
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    RecordEvent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan

Touches = Mapping[int, Sequence[Touch]]
"""What each operation touches, by its position in the plan."""


class Race(NamedTuple):
    """Two operations by their positions, the one that is issued first in front."""

    first: int
    second: int


def find_races(operations: Sequence[Operation], touches: Touches) -> list[Race]:
    """Return the pairs of operations on different streams that may run in either order and disturb each other."""
    numbers = {stream: number for number, stream in enumerate(Stream)}
    happenings, positions = list[Happening](), list[int]()
    for position, operation in enumerate(operations):
        match operation:
            case Compute():
                happenings.append(Work(numbers[Stream.COMPUTE], touches[position]))
            case Offload() | Prefetch():
                happenings.append(Work(numbers[Stream.MEMORY], touches[position]))
            case RecordEvent(event=event, stream=stream):
                happenings.append(Record(event, numbers[stream]))
            case WaitEvent(event=event, stream=stream):
                happenings.append(Wait(event, numbers[stream]))
            case HostSynchronize(streams=streams):
                happenings += [Synchronize(numbers[each]) for each in streams]
            case _:
                pass
        positions += [position] * (len(happenings) - len(positions))
    return sorted(Race(positions[each.first], positions[each.second]) for each in find_hazards(happenings))


@dataclass(frozen=True, slots=True)
class Watched:
    touches: Touches
    entries: Sequence[Entry]


class _WatchedWalk(PlanWalk):
    """A walk that notes what operations are given, and which allocations of the process kernels made themselves."""

    @cached_property
    def touches(self) -> dict[int, list[Touch]]:
        return {}

    @cached_property
    def own_allocations(self) -> dict[int, range]:
        return {}

    def _launch(self, operation: Operation, lasts_s: float | None) -> None:
        if isinstance(operation, Offload | Prefetch):
            on_device, on_host = self._buffers.flat(operation.buffer, operation.extent), self._slice(operation)
            arrives = isinstance(operation, Prefetch)
            self.touches[self.position] = [_touch(on_device, writes=arrives), _touch(on_host, writes=not arrives)]
        super()._launch(operation, lasts_s)

    def _compute(self, call: KernelCall, lasts_s: float | None) -> None:
        position, run = self.position, call.kernel.run
        device = self.device.torch_device

        def watched(tensors: KernelTensors) -> None:
            first = _allocations(device)
            run(tensors)
            self.own_allocations[position] = range(first, _allocations(device))

        super()._compute(replace(call, kernel=replace(call.kernel, run=watched)), lasts_s)

    def _tensors(self, call: KernelCall) -> KernelTensors:
        tensors = super()._tensors(call)
        operation = self._plan.operations[self.position]
        assert isinstance(operation, Compute)

        def touches(buffers: Sequence[int], *, writes: bool) -> Iterator[Touch]:
            for buffer in buffers:
                # A workspace is lent to one kernel after the other, as large as each wants it.
                memory = tensors.workspace if buffer == call.workspace else self._buffers.flat(buffer)
                if memory is not None:
                    yield _touch(memory, writes=writes)

        self.touches[self.position] = [*touches(operation.reads, writes=False), *touches(operation.writes, writes=True)]
        return tensors


class WatchedExecutor(Executor):
    """An executor that notes what the operations of a plan touch."""

    walk_type = _WatchedWalk

    def watch(self, plan: TrainingPlan, limits: MemoryLimits) -> Watched | DoesNotFit:
        device = self._device.torch_device
        run = partial(self.execute, plan, limits)
        first = _allocations(device)
        answer, entries = recorded(run, device.index) if device.type == "cuda" else (run(), [])
        if isinstance(answer, DoesNotFit):
            return answer
        allocated = [each for each in entries if each["action"] == "alloc"]
        touches = {position: list(each) for position, each in self._watched.touches.items()}
        for position, own in self._watched.own_allocations.items():
            for entry in allocated[own.start - first : own.stop - first]:
                touches[position].append(Touch(entry["addr"], entry["addr"] + entry["size"], writes=True))
        return Watched(touches, entries)

    def walk(self, compiled: CompiledPlan) -> PlanWalk:
        walk = super().walk(compiled)
        assert isinstance(walk, _WatchedWalk)
        self._watched = walk
        return walk


def _touch(memory: torch.Tensor, *, writes: bool) -> Touch:
    return Touch(memory.data_ptr(), memory.data_ptr() + memory.nbytes, writes)


def _allocations(device: torch.device) -> int:
    """Return how many allocations PyTorch has made on a GPU; none where nobody counts them."""
    if device.type != "cuda":
        return 0
    made: int = torch.cuda.memory_stats_as_nested_dict(device)["allocation"]["all"]["allocated"]
    return made
