"""The language of policies: an iteration step by step, kernels in their order and copies of what leaves and comes back.

A schedule says what runs when, what leaves and what comes back. When memory is taken and given back follows from it by
a scheme of allocation (`vdnnsim.plans.schemes`), and so do the operations of a plan (`vdnnsim.plans.lowering`). `what`
steps name are storages of the workload's step, by number. Steps may be in any order that keeps what kernels read:
nothing asks that backward be forward reversed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import BufferKind, StepOperation
from vdnnsim.dnn.step import Step as Iteration
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Mechanism


@dataclass(frozen=True, slots=True)
class Run:
    """A phase of a layer, for the first time or, with `repeat`, recomputed; else as `Compute` has it.

    Attributes:
        operation: which of the operations that it is, by number; None for all of them, one after the other.
    """

    layer: Layer
    phase: Phase
    repeat: int = 0
    part: int = 0
    barrier_s: float = 0.0
    operation: int | None = None

    def of(self, iteration: Iteration) -> StepOperation:
        """Return the operation that it is; of several the first."""
        return iteration.operations_of(self.layer.index, self.phase)[self.operation or 0]


@dataclass(frozen=True, slots=True)
class Offload:
    """Something begins to be copied to the host, for a layer; it stays on the GPU until it has been waited for.

    Attributes:
        beside: whether it begins with the kernel before it, which must not write it, and not after that kernel.
        copy: its number, where there are several of the same.
        extent: the bytes to copy, of every storage named; None for all bytes.
    """

    what: tuple[int, ...]
    layer: Layer
    phase: Phase = Phase.FORWARD
    beside: bool = False
    mechanism: Mechanism | None = None
    copy: int = 0
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """A copy begins to come back after the kernels so far, for a layer; the first kernel that reads it waits.

    It comes into memory of its own, or, where nothing has waited for its offload, into that which it still has. An
    extent comes into its place in the buffer, whose memory is taken again if it was given back.
    """

    what: tuple[int, ...]
    layer: Layer
    phase: Phase
    on_demand: bool
    keeps_copy: bool = False
    mechanism: Mechanism | None = None
    copy: int = 0
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """The compute stream waits until what leaves or comes has been copied; what no kernel to come reads is released.

    Attributes:
        extent: the bytes, as of the copies; of an extent that leaves the memory is given back, and the buffer stays.
    """

    what: tuple[int, ...]
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits for both streams, as vDNN does after a layer that copied; what the layer held is released then."""


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory is taken on behalf of a layer, ahead of the step that first writes to it."""

    what: tuple[int, ...]
    layer: Layer
    phase: Phase


@dataclass(frozen=True, slots=True)
class Release:
    """Memory is given back, here and not after the last step that uses it."""

    what: tuple[int, ...]


Step = Run | Offload | Fetch | Wait | Synchronize | Allocate | Release
Schedule = Sequence[Step]


def in_rounds(schedule: Schedule, rounds: int) -> Schedule:
    """Return a schedule that does what stands before the update, and what comes for it, once for each micro-batch."""
    of_update = (isinstance(step, Run | Fetch) and step.phase is Phase.UPDATE for step in schedule)
    update_at = next((at for at, is_of_update in enumerate(of_update) if is_of_update), len(schedule))
    return [*schedule[:update_at]] * rounds + [*schedule[update_at:]]


def runs_of(run: Run, iteration: Iteration) -> tuple[Run, ...]:
    """Return a run for each of the operations that one means, a barrier before the first."""
    count = len(iteration.operations_of(run.layer.index, run.phase))
    if run.operation is not None or count == 1:
        return (run,)
    return (replace(run, operation=0), *(replace(run, operation=at, barrier_s=0.0) for at in range(1, count)))


def by_operation(schedule: Schedule, iteration: Iteration) -> Schedule:
    """Return a schedule with a run for each operation.

    A copy beside a run begins with the first of them that writes nothing of what it moves, nor do any behind that;
    where there is none, behind them all.
    """
    steps: list[Step] = []
    rest = list(reversed(schedule))
    while rest:
        step = rest.pop()
        runs = runs_of(step, iteration) if isinstance(step, Run) else ()
        if len(runs) < 2:
            steps.append(step)
            continue
        beside: list[Offload] = []
        while rest and isinstance(following := rest[-1], Offload) and following.beside:
            beside.append(following)
            rest.pop()
        moved = {what for each in beside for what in each.what}
        first = max((at + 1 for at, run in enumerate(runs) if moved & _written(run, iteration)), default=0)
        if first == len(runs):
            beside = [replace(each, beside=False) for each in beside]
        steps += [*runs[: first + 1], *beside, *runs[first + 1 :]]
    return steps


def _written(run: Run, iteration: Iteration) -> set[int]:
    operation = run.of(iteration)
    return {iteration.tensors[each.memory].storage for each in operation.operands if each.access.writes}


def feature_maps(workload: Workload, *indices: int) -> tuple[int, ...]:
    """Return the storages of the feature maps with these indices."""
    return tuple(workload.step.storage(BufferKind.FEATURE_MAP, index) for index in indices)


def forward(workload: Workload) -> list[Run]:
    """Return forward of all layers; what was captured of an optimizer has none."""
    return [Run(layer, Phase.FORWARD) for layer in workload.graph.layers if Phase.FORWARD in workload.phases(layer)]


def backward_layers(workload: Workload) -> list[Layer]:
    """Return the layers with a backward in the order in which it runs, the last one first; none in inference."""
    layers = workload.graph.layers if workload.is_training else ()
    return [layer for layer in reversed(layers) if layer.backward_phases]


def backward_of(layer: Layer) -> list[Run]:
    """Return backward of a layer."""
    return [Run(layer, phase) for phase in layer.backward_phases]


def backward(workload: Workload) -> list[Run]:
    """Return backward of all layers."""
    return [run for layer in backward_layers(workload) for run in backward_of(layer)]


def update(workload: Workload) -> list[Run]:
    """Return the update of all weights at the end of an iteration."""
    return [Run(layer, Phase.UPDATE) for layer in workload.updated_layers]


def iteration(workload: Workload) -> list[Run]:
    """Return the kernels of an iteration: forward, backward and update."""
    return forward(workload) + backward(workload) + update(workload)
