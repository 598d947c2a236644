"""Schemes of allocation: when the buffers of a schedule are allocated, and which of them share memory.

`ByLifetime` allocates a buffer from its first write to its last use. `NetworkWide` holds all but gradients throughout,
`Pool` releases offloaded buffers only when memory is short, `AsScheduled` follows the schedule alone. A policy may
derive a scheme of its own, as with regions that buffers share (`vdnnsim.policies.iterations.layrub_memory`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, StepOperation
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plans import operations
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import Lifetimes
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.schedule import Allocate, Prefetch, Run, Schedule
from vdnnsim.plans.writer import PlanWriter


@dataclass(slots=True)
class Draft:
    """A plan in the making.

    Attributes:
        under_way: by buffer and extent of each copy not yet waited for, the event at its end; None without an event.
    """

    workload: Workload
    kernels: KernelChoice
    schedule: Schedule
    plan: PlanWriter
    buffers: IterationBuffers
    under_way: dict[int, dict[range | None, int | None]] = field(default_factory=dict)


class ByLifetime:
    """Every buffer lives as briefly as it can, but W, dW, optimizer states and the statistics of inference.

    Each kernel has a workspace of its own while it runs, or all share one, which is held throughout.

    Attributes:
        held: buffers held throughout, with layer and phase on whose behalf.
        lies_in: for buffers without memory of their own, the buffers in which they lie, one for each allocation; the
            last for all further ones.
    """

    def __init__(self, draft: Draft, *, shares_workspace: bool = False, holds_statistics: bool = False) -> None:
        """Hold the resident buffers, and optionally a workspace for all kernels and the statistics of layers."""
        self._draft = draft
        self._plan = draft.plan
        self._buffers = draft.buffers
        resident = draft.buffers.held(with_statistics=holds_statistics)
        self.held = [(buffer, owner, Phase.FORWARD) for buffer, owner in resident]
        self.lies_in: dict[int, list[int]] = {}
        self._workspace: int | None = None
        if shares_workspace:
            self._share_workspace()

    def begin(self, lifetimes: Lifetimes) -> None:  # noqa: ARG002 - for schemes that lay out ahead
        """Allocate the buffers held throughout."""
        for each in self.held:
            self.take(*each)

    def take(self, buffer: int, layer: int, phase: Phase) -> None:
        """Allocate a buffer, or place it inside another."""
        if buffer not in self.lies_in:
            self._plan.add(operations.Allocate(buffer, layer, phase))
            return
        places = self.lies_in[buffer]
        self._plan.add(operations.Alias(buffer, places.pop(0) if len(places) > 1 else places[0]))

    def give(self, buffer: int) -> None:
        self._plan.add(operations.Release(buffer))

    def note_offload(self, buffer: int) -> None:
        """Note the offload of a buffer that is not used before its release."""

    def compute(self, run: Run) -> None:
        """Launch a kernel with its workspace."""
        layer, phase = run.layer, run.phase
        number, operation = run.operation or 0, run.of(self._draft.workload.step)
        choice, operands = self._draft.kernels[layer.index, phase], self._buffers.operands(run)
        kernel = choice.of(number)
        own_bytes = operation.temporary_bytes
        workspaces = []
        if self._workspace is not None and kernel.workspace_bytes:
            workspaces.append(self._workspace)
        else:
            *earlier, last = kernel.workspaces or (kernel.workspace_bytes,)
            for nbytes in filter(None, earlier):
                passing = self._new_workspace(f"earlier workspace of {layer.name}", nbytes, layer)
                self.take(passing, layer.index, phase)
                self.give(passing)
            own_bytes += last
        if own_bytes:
            workspaces.append(self._new_workspace(f"workspace of {layer.name}", own_bytes, layer))
            self.take(workspaces[-1], layer.index, phase)
        operands = (*operands, *(Operand(Role.WORKSPACE, each, Access.WRITE, at) for at, each in enumerate(workspaces)))
        if operation.collective is not None or operation.aside:
            launched: operations.Operation = operations.Communicate(
                layer.index, phase, choice.algorithm, operands, number, operation.collective, _stream_of(operation)
            )
        else:
            launched = operations.Compute(
                layer=layer.index,
                phase=phase,
                algorithm=choice.algorithm,
                operands=operands,
                repeat=run.repeat,
                barrier_s=run.barrier_s,
                part=run.part,
                operation=number,
            )
        self._plan.add(launched)
        if own_bytes:
            self.give(workspaces[-1])

    def end(self) -> None:
        """Release the buffers held throughout, those that lie in others first."""
        for buffer, _, _ in sorted(self.held, key=lambda each: each[0] not in self.lies_in):
            self.give(buffer)

    def _share_workspace(self) -> None:
        """Hold one workspace for all kernels, as large as the largest."""
        (layer, phase), largest = max(self._draft.kernels.items(), key=lambda item: item[1].workspace_bytes)
        if largest.workspace_bytes:
            on_behalf = self._draft.workload.graph.layers[layer]
            self._workspace = self._new_workspace("workspace", largest.workspace_bytes, on_behalf)
            self.held.append((self._workspace, layer, phase))

    def _hold_maps(self) -> None:
        for each in self._draft.workload.graph.maps:
            self.held.append((self._buffers.maps[each.index], each.producer or 0, Phase.FORWARD))

    def _new_workspace(self, name: str, nbytes: int, layer: Layer) -> int:
        return self._plan.buffer(name, BufferKind.WORKSPACE, nbytes, layer.stage)


def _stream_of(operation: StepOperation) -> Stream:
    """Return the stream of a collective, or of a copy beside kernels."""
    if not operation.aside:
        return Stream.COMPUTE
    kind = operation.collective.kind if operation.collective else None
    return _STREAMS.get(kind, Stream.COMMUNICATION)


_STREAMS: Final[Mapping[CollectiveKind | None, Stream]] = {
    CollectiveKind.SEND: Stream.SEND,
    CollectiveKind.RECEIVE: Stream.RECEIVE,
    CollectiveKind.FROM_HOST: Stream.FROM_HOST,
    CollectiveKind.TO_HOST: Stream.TO_HOST,
    CollectiveKind.ON_HOST: Stream.TO_HOST,
}


Scheme = Callable[[Draft], ByLifetime]
"""One of the classes here, with its options bound."""


class AsScheduled(ByLifetime):
    """Only the steps of the schedule allocate and release."""

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.held = []


class Pool(ByLifetime):
    """A pool that counts bytes: offloaded buffers are released when a request would not fit, the oldest first.

    Otherwise where the schedule waits for them. Only then does the compute stream wait for the copy.
    """

    def __init__(self, draft: Draft, *, limits: MemoryLimits) -> None:
        super().__init__(draft, holds_statistics=True)
        self._limits = limits
        self._in_use_bytes = 0
        # Buffers being offloaded, the oldest first, and those that were released ahead of their step.
        self._offloading: dict[int, None] = {}
        self._gone: set[int] = set()

    def take(self, buffer: int, layer: int, phase: Phase) -> None:
        """Allocate a buffer, after releasing as many offloaded ones as it needs."""
        size_bytes = self._size_bytes(buffer)
        while self._offloading and self._in_use_bytes + size_bytes > self._limits.device_bytes:
            oldest = next(iter(self._offloading))
            event = self._draft.under_way[oldest].pop(None)
            assert event is not None
            self._plan.add(operations.WaitEvent(event, Stream.COMPUTE))
            self.give(oldest)
            self._gone.add(oldest)
        self._in_use_bytes += size_bytes
        super().take(buffer, layer, phase)

    def give(self, buffer: int) -> None:
        self._offloading.pop(buffer, None)
        if buffer in self._gone:
            self._gone.remove(buffer)
            return
        self._in_use_bytes -= self._size_bytes(buffer)
        super().give(buffer)

    def note_offload(self, buffer: int) -> None:
        self._offloading[buffer] = None

    def _size_bytes(self, buffer: int) -> int:
        return round_up(self._plan.nbytes(buffer), self._limits.granule_bytes)


class NetworkWide(ByLifetime):
    """Everything is held throughout: all maps, W and dW, one workspace, and as few slots for gradient maps as possible.

    Gradient maps share slots by best fit. A linear network has two, each as large as the largest gradient map (vDNN
    paper, Fig. 2). A network with forks needs more; each further one is as large as the first map that needed it.
    """

    def __init__(self, draft: Draft) -> None:
        super().__init__(draft, holds_statistics=True)
        self._hold_maps()

    def begin(self, lifetimes: Lifetimes) -> None:
        sizes, places = self._lay_out(lifetimes) if self._buffers.gradients else ([], {})
        slots = []
        for number, (nbytes, layer) in enumerate(sizes, start=1):
            slots.append(self._plan.buffer(f"gradient slot {number}", BufferKind.GRADIENT_MAP, nbytes, layer.stage))
            whole = Phase.BACKWARD in layer.backward_phases
            self.held.append((slots[-1], layer.index, Phase.BACKWARD if whole else Phase.BACKWARD_DATA))
        self.lies_in = {gradient: [slots[number] for number in numbers] for gradient, numbers in places.items()}
        self._share_workspace()
        super().begin(lifetimes)

    def _lay_out(self, lifetimes: Lifetimes) -> tuple[list[tuple[int, Layer]], dict[int, list[int]]]:
        """Return the bytes and the layer of each slot, and the slots of each gradient in turn."""
        layers, gradients = self._draft.workload.graph.layers, self._buffers.gradients
        largest = max(gradients, key=lambda index: self._buffers.nbytes(gradients[index]))
        producer = self._draft.workload.graph.maps[largest].producer
        assert producer is not None, "the input batch has no gradient"
        sizes = [(self._buffers.nbytes(gradients[largest]), layers[producer])] * min(2, len(gradients))
        free = set(range(len(sizes)))
        places: dict[int, list[int]] = {}
        for step, born, dying in zip(self._draft.schedule, lifetimes.begins, lifetimes.ends, strict=True):
            for buffer in born:
                assert isinstance(step, Run | Prefetch | Allocate), "other steps write nothing"
                nbytes = self._buffers.nbytes(buffer)
                fitting = [(sizes[slot][0], slot) for slot in free if sizes[slot][0] >= nbytes]
                slot = min(fitting)[1] if fitting else len(sizes)
                if not fitting:
                    sizes.append((nbytes, step.layer))
                free.discard(slot)
                places.setdefault(buffer, []).append(slot)
            # What is given has no slot, as gradients of an earlier micro-batch.
            free.update(places[buffer][-1] for buffer in dying if buffer in places)
        return sizes, places
