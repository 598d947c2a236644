"""Schemes of allocation: when the buffers of a schedule take memory, and which of them share it.

`ByLifetime` is what others build on: a buffer is held from the step that first writes it to the last that uses what was
written then. `NetworkWide` holds all but gradients throughout, `Pool` lets what leaves go only when memory is short,
`AsScheduled` holds nothing that the schedule does not allocate. A scheme of a policy's own overrides what differs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.buffers import IterationBuffers
from vdnnsim.plan.lifetimes import Lifetimes
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.placement import MemoryLimits
from vdnnsim.plan.schedule import Allocate, Fetch, Run, Schedule
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter


@dataclass(slots=True)
class Draft:
    """A plan in the making.

    Attributes:
        under_way: by buffer that is being copied and has not been waited for, the event at the end of its copy; None
            where nobody waits for it alone.
    """

    workload: Workload
    kernels: KernelChoice
    schedule: Schedule
    plan: PlanWriter
    buffers: IterationBuffers
    under_way: dict[int, int | None] = field(default_factory=dict)


class ByLifetime:
    """Every buffer lives as briefly as it can, but W, dW, optimizer states and what inference finds: they are held.

    Each kernel has a workspace of its own while it runs; or all share one, which is held throughout.
    """

    def __init__(self, draft: Draft, *, shares_workspace: bool = False, holds_statistics: bool = False) -> None:
        """Name what is shared.

        Args:
            draft: the plan.
            shares_workspace: whether all kernels share a workspace.
            holds_statistics: whether what layers keep for backward beside maps is held throughout, too.
        """
        self._draft = draft
        self._plan = draft.plan
        self._buffers = draft.buffers
        self._resident = draft.buffers.held(with_statistics=holds_statistics)
        (layer, phase), largest = max(draft.kernels.items(), key=lambda item: item[1].workspace_bytes)
        self._shared: tuple[int, int, Phase] | None = None
        self._shares_workspace = shares_workspace
        if shares_workspace and largest.workspace_bytes:
            stage = draft.workload.graph.layers[layer].stage
            workspace = self._plan.buffer("workspace", BufferKind.WORKSPACE, largest.workspace_bytes, stage)
            self._shared = workspace, layer, phase

    def throughout(self) -> frozenset[int]:
        """Return the buffers that are held from beginning to end; the others live by their steps."""
        return frozenset(buffer for buffer, _ in self._resident)

    def begin(self, lifetimes: Lifetimes) -> None:  # noqa: ARG002 - for schemes that lay out ahead
        """Allocate what is held throughout."""
        for buffer, owner in self._resident:
            self.take(buffer, owner, Phase.FORWARD)
        self._take_workspace()

    def take(self, buffer: int, layer: int, phase: Phase) -> None:
        """Allocate a buffer."""
        self._plan.allocate(buffer, layer, phase)

    def give(self, buffer: int) -> None:
        """Release a buffer."""
        self._plan.release(buffer)

    def leaves(self, buffer: int) -> None:
        """Note that a buffer is on its way to the host, and nobody uses it until it is there and released."""

    def compute(self, run: Run) -> None:
        """Launch a kernel, with the workspace that it may want."""
        layer, phase = run.layer, run.phase
        kernel = self._draft.kernels[layer.index, phase]
        temporary_bytes = self._draft.workload.step.operation(layer.index, phase).temporary_bytes
        workspace_bytes = kernel.workspace_bytes + temporary_bytes
        workspace = None
        if kernel.workspace_bytes and self._shared is not None:
            workspace = self._shared[0]
        elif workspace_bytes:
            name = f"workspace of {layer.name}"
            workspace = self._plan.buffer(name, BufferKind.WORKSPACE, workspace_bytes, layer.stage)
            self.take(workspace, layer.index, phase)
        operands = self._buffers.operands(layer, phase, run.part)
        if workspace is not None:
            operands = (*operands, Operand(Role.WORKSPACE, workspace, Access.WRITE))
        self._plan.compute(
            layer.index,
            phase,
            kernel.algorithm,
            operands,
            repeat=run.repeat,
            part=run.part,
            barrier_s=run.barrier_s,
        )
        if workspace is not None and self._shared is None:
            self.give(workspace)

    def end(self) -> None:
        """Release what is held throughout, so that an iteration ends as it began."""
        self._give_workspace()
        for buffer, _ in self._resident:
            self.give(buffer)

    def _take_workspace(self) -> None:
        if self._shared is not None:
            self.take(*self._shared)

    def _give_workspace(self) -> None:
        if self._shared is not None:
            self.give(self._shared[0])


Scheme = Callable[[Draft], ByLifetime]
"""Takes over the allocation of a plan: one of the classes here, with its options bound."""


class AsScheduled(ByLifetime):
    """Nothing is held but by the steps of the schedule, which allocate and release it."""

    def throughout(self) -> frozenset[int]:
        """Return nothing."""
        return frozenset()

    def begin(self, lifetimes: Lifetimes) -> None:
        """Allocate nothing."""

    def end(self) -> None:
        """Release nothing."""


class Pool(ByLifetime):
    """A pool that counts bytes: what leaves is released when a request would not fit beside it, the oldest first.

    Or else where the schedule waits for it. Only then does the compute stream wait for the copy.
    """

    def __init__(self, draft: Draft, *, limits: MemoryLimits) -> None:
        """Take the memory that there is."""
        super().__init__(draft, holds_statistics=True)
        self._limits = limits
        self._in_use_bytes = 0
        # Buffers that leave, the oldest first, and those that were released ahead of their step.
        self._leaving: dict[int, None] = {}
        self._gone: set[int] = set()

    def take(self, buffer: int, layer: int, phase: Phase) -> None:
        """Allocate a buffer, once as many of those that leave are given back as it needs."""
        size_bytes = self._size_bytes(buffer)
        while self._leaving and self._in_use_bytes + size_bytes > self._limits.device_bytes:
            oldest = next(iter(self._leaving))
            event = self._draft.under_way.pop(oldest)
            assert event is not None, "the schedule waits for it"
            self._plan.wait(event, Stream.COMPUTE)
            self.give(oldest)
            self._gone.add(oldest)
        self._in_use_bytes += size_bytes
        super().take(buffer, layer, phase)

    def give(self, buffer: int) -> None:
        """Release a buffer, unless that has been done ahead."""
        self._leaving.pop(buffer, None)
        if buffer in self._gone:
            self._gone.remove(buffer)
            return
        self._in_use_bytes -= self._size_bytes(buffer)
        super().give(buffer)

    def leaves(self, buffer: int) -> None:
        """Let a buffer go when its memory is wanted."""
        self._leaving[buffer] = None

    def _size_bytes(self, buffer: int) -> int:
        return round_up(self._plan.nbytes(buffer), self._limits.granule_bytes)


class NetworkWide(ByLifetime):
    """Everything is held throughout: all maps, W and dW, one workspace, and as few buffers for gradients as will do.

    Gradient maps take turns in these, best fit first. In a linear network they are two, each as large as the largest
    gradient map (vDNN paper, Fig. 2). A network with forks needs a few more; each further one is as large as the first
    map that needed it.
    """

    def __init__(self, draft: Draft) -> None:
        """Prepare to hold all maps."""
        super().__init__(draft, shares_workspace=True, holds_statistics=True)
        # By slot, the buffer; by gradient, its slot.
        self._slots: list[int] = []
        self._slot_of: dict[int, int] = {}

    def throughout(self) -> frozenset[int]:
        """Return all but gradients."""
        return super().throughout() | {*self._buffers.maps}

    def begin(self, lifetimes: Lifetimes) -> None:
        """Allocate everything."""
        for buffer, owner in self._resident:
            self.take(buffer, owner, Phase.FORWARD)
        for each in self._draft.workload.graph.maps:
            self.take(self._buffers.maps[each.index], each.producer or 0, Phase.FORWARD)
        for number, (nbytes, layer) in enumerate(self._fill_slots(lifetimes), start=1):
            slot = self._plan.buffer(f"gradient slot {number}", BufferKind.GRADIENT_MAP, nbytes, layer.stage)
            whole = Phase.BACKWARD in layer.backward_phases
            self._plan.allocate(slot, layer.index, Phase.BACKWARD if whole else Phase.BACKWARD_DATA)
            self._slots.append(slot)
        self._take_workspace()

    def take(self, buffer: int, layer: int, phase: Phase) -> None:
        """Allocate a buffer, or lay a gradient into its slot."""
        if buffer in self._slot_of:
            self._plan.alias(buffer, self._slots[self._slot_of[buffer]])
        else:
            super().take(buffer, layer, phase)

    def end(self) -> None:
        """Release everything."""
        self._give_workspace()
        for buffer in self._slots + self._buffers.maps:
            self.give(buffer)
        for buffer, _ in self._resident:
            self.give(buffer)

    def _fill_slots(self, lifetimes: Lifetimes) -> list[tuple[int, Layer]]:
        """Give each gradient its slot; return the bytes of each slot with the layer on whose account it stands."""
        layers, gradients = self._draft.workload.graph.layers, self._buffers.gradients
        if not gradients:
            return []
        largest = max(gradients, key=lambda index: self._buffers.nbytes(gradients[index]))
        producer = self._draft.workload.graph.maps[largest].producer
        assert producer is not None, "the input batch has no gradient"
        sizes = [(self._buffers.nbytes(gradients[largest]), layers[producer])] * min(2, len(gradients))
        free = set(range(len(sizes)))
        for step, born, dying in zip(self._draft.schedule, lifetimes.begins, lifetimes.ends, strict=True):
            for buffer in born:
                assert isinstance(step, Run | Fetch | Allocate), "other steps write nothing"
                nbytes = self._buffers.nbytes(buffer)
                fitting = [(sizes[slot][0], slot) for slot in free if sizes[slot][0] >= nbytes]
                slot = min(fitting)[1] if fitting else len(sizes)
                if not fitting:
                    sizes.append((nbytes, step.layer))
                free.discard(slot)
                self._slot_of[buffer] = slot
            free.update(self._slot_of[buffer] for buffer in dying)
        return sizes
