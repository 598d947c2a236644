"""Schedules, as policies write them: the kernels of an iteration in order, with offloads and prefetches between them.

When memory is allocated and freed follows from a schedule by a scheme of allocation (`vdnnsim.plans.schemes`);
`vdnnsim.plans.lowering` makes the operations of a plan of both (`vdnnsim.plans.operations`). Steps name storages of the
workload's step by number. They may be in any order that respects data dependences.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import BufferKind, Step, StepOperation
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Mechanism


@dataclass(frozen=True, slots=True)
class Run:
    """A phase of a layer, for the first time or, with `repeat`, recomputed; else as `operations.Compute`.

    Attributes:
        operation: which operation of the phase, by number; None for all of them, one after the other.
        gathered: whether a recomputation reads weights as backward gathered them, in place of those of forward.
    """

    layer: Layer
    phase: Phase
    repeat: int = 0
    part: int = 0
    barrier_s: float = 0.0
    operation: int | None = None
    gathered: bool = False

    def of(self, step: Step) -> StepOperation:
        """Return its operation, the first of several."""
        return step.operations_of(self.layer.index, self.phase)[self.operation or 0]


@dataclass(frozen=True, slots=True)
class Offload:
    """Starts to copy storages to the host, on behalf of a layer; they stay on the GPU until a Wait.

    Attributes:
        beside: whether it begins with the kernel before it, which must not write them, and not after that kernel.
        copy: its number, where there are several copies of the same content.
        extent: the bytes to copy, of every storage named; None for all bytes.
    """

    buffers: tuple[int, ...]
    layer: Layer
    phase: Phase = Phase.FORWARD
    beside: bool = False
    mechanism: Mechanism | None = None
    copy: int = 0
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Starts to copy storages back after the kernels so far, on behalf of a layer; the first kernel that reads waits.

    Storages are allocated, unless their offload was never waited for, and so are released extents.
    """

    buffers: tuple[int, ...]
    layer: Layer
    phase: Phase
    on_demand: bool
    keeps_copy: bool = False
    mechanism: Mechanism | None = None
    copy: int = 0
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The compute stream waits for copies of storages; those that no later kernel reads are released.

    Attributes:
        extent: the bytes, as of the copies; the memory of an offloaded extent is freed, and the buffer stays.
    """

    buffers: tuple[int, ...]
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits for both streams, as vDNN does after a layer that copied; what the layer held is then released."""


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocates storages on behalf of a layer, ahead of the step that first writes to them."""

    buffers: tuple[int, ...]
    layer: Layer
    phase: Phase


@dataclass(frozen=True, slots=True)
class Release:
    """Frees storages here and not after the last step that uses them."""

    buffers: tuple[int, ...]


ScheduleStep = Run | Offload | Prefetch | Wait | Synchronize | Allocate | Release
Schedule = Sequence[ScheduleStep]


def in_rounds(schedule: Schedule, rounds: int) -> Schedule:
    """Return a schedule that repeats all steps before the update and its prefetches, once for each micro-batch."""
    of_update = (isinstance(each, Run | Prefetch) and each.phase is Phase.UPDATE for each in schedule)
    update_at = next((at for at, is_of_update in enumerate(of_update) if is_of_update), len(schedule))
    return [*schedule[:update_at]] * rounds + [*schedule[update_at:]]


def runs_of(run: Run, step: Step) -> tuple[Run, ...]:
    """Return a run for each operation of a phase, a barrier before the first."""
    count = len(step.operations_of(run.layer.index, run.phase))
    if run.operation is not None or count == 1:
        return (run,)
    return (replace(run, operation=0), *(replace(run, operation=at, barrier_s=0.0) for at in range(1, count)))


def by_operation(schedule: Schedule, step: Step) -> Schedule:
    """Return a schedule with a run for each operation.

    A copy beside a run starts with the first operation after the last one that writes its storages, or after them all.
    """
    steps: list[ScheduleStep] = []
    rest = list(reversed(schedule))
    while rest:
        each = rest.pop()
        runs = runs_of(each, step) if isinstance(each, Run) else ()
        if len(runs) < 2:
            steps.append(each)
            continue
        beside: list[Offload] = []
        while rest and isinstance(following := rest[-1], Offload) and following.beside:
            beside.append(following)
            rest.pop()
        moved = {buffer for copy in beside for buffer in copy.buffers}
        first = max((at + 1 for at, run in enumerate(runs) if moved & _written(run, step)), default=0)
        if first == len(runs):
            beside = [replace(copy, beside=False) for copy in beside]
        steps += [*runs[: first + 1], *beside, *runs[first + 1 :]]
    return steps


def _written(run: Run, step: Step) -> set[int]:
    return {step.tensors[each.memory].storage for each in run.of(step).operands if each.access.writes}


def feature_maps(workload: Workload, *indices: int) -> tuple[int, ...]:
    return tuple(workload.step.storage(BufferKind.FEATURE_MAP, index) for index in indices)


def forward(workload: Workload) -> list[Run]:
    """Return forward of all layers but a captured optimizer."""
    return [Run(layer, Phase.FORWARD) for layer in workload.graph.layers if Phase.FORWARD in workload.phases(layer)]


def backward_layers(workload: Workload) -> list[Layer]:
    """Return the layers with a backward in the order in which it runs, the last one first; none in inference."""
    layers = workload.graph.layers if workload.is_training else ()
    return [layer for layer in reversed(layers) if layer.backward_phases]


def backward_of(layer: Layer) -> list[Run]:
    return [Run(layer, phase) for phase in layer.backward_phases]


def backward(workload: Workload) -> list[Run]:
    return [run for layer in backward_layers(workload) for run in backward_of(layer)]


def update(workload: Workload) -> list[Run]:
    return [Run(layer, Phase.UPDATE) for layer in workload.updated_layers]


def iteration(workload: Workload) -> list[Run]:
    """Return the kernels of an iteration: forward, backward and update, or all micro-batches as they were captured."""
    if workload.as_captured:
        counts = Counter[tuple[int, Phase]]()
        runs = []
        for each in workload.step.operations:
            runs.append(Run(workload.graph.layers[each.layer], each.phase, operation=counts[each.layer, each.phase]))
            counts[each.layer, each.phase] += 1
        return runs
    return forward(workload) + backward(workload) + update(workload)
