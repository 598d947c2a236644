"""Writes a plan from the kernels and copies of an iteration in their order; every buffer lives as briefly as it can.

A policy says what runs in which order, among it kernels that run again and maps that leave and come back. The lifetimes
follow: a buffer is allocated by the step that first writes it and released after the last step that reads what was
written then, be it a map, a gradient map or what a layer keeps for its backward. A map that a later step computes or
fetches anew is not held between. W, dW and optimizer states are held throughout.
"""

from collections.abc import Sequence
from dataclasses import replace

from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.buffers import IterationBuffers, workspace_operand
from vdnnsim.policies.shared_workspace import SharedWorkspace
from vdnnsim.policies.steps import Await, Fetch, Leave, Run, Saved, Step


def program_plan(
    workload: Workload,
    kernels: KernelChoice,
    steps: Sequence[Step],
    *,
    label: str,
    algorithms: str,
    shares_workspace: bool = False,
) -> TrainingPlan:
    """Write the plan of an iteration that takes these steps.

    Each kernel has a workspace of its own while it runs; or all share one, which is held throughout.
    """
    writer = _ProgramWriter(workload, kernels, shares_workspace=shares_workspace)
    writer.write(steps)
    return writer.plan.finish(label, algorithms)


class ProgramBuffers:
    """The buffers of a program, and when each lives.

    Attributes:
        maps: buffer of feature map i.
        throughout: the buffers held from beginning to end, with the index of their layer.
    """

    def __init__(self, plan: PlanWriter, workload: Workload) -> None:
        self._plan = plan
        self._buffers = IterationBuffers(plan, workload)
        self._known: dict[tuple[int, Phase, bool], tuple[Operand, ...]] = {}
        self.maps = self._buffers.maps
        training = workload.mode is Mode.TRAINING
        resident = self._buffers.resident
        self._statistics = {owner: buffer for buffer, owner in resident if plan.kind(buffer) is BufferKind.STATISTICS}
        brief = set(self._statistics.values()) if training else set()
        self.throughout = {buffer: owner for buffer, owner in resident if buffer not in brief}

    def compute(self, step: Run, kernel: KernelCost, workspace: int | None) -> None:
        """Launch a kernel."""
        operands = (*self._operands(step), *workspace_operand(workspace))
        layer, phase = step.layer.index, step.phase
        self._plan.compute(layer, phase, kernel.algorithm, operands, repeat=step.repeat, part=step.part)

    def lifetimes(self, steps: Sequence[Step]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the buffers to allocate before each step and those to release after it."""
        begins: list[list[int]] = [[] for _ in steps]
        ends: list[list[int]] = [[] for _ in steps]
        last: dict[int, int] = {self.maps[0]: 0}
        for position, step in enumerate(steps):
            reads, writes = self.touched(step)
            for buffer in dict.fromkeys(reads + writes):
                if buffer in self.throughout:
                    continue
                if buffer not in reads:
                    if buffer in last:
                        ends[last[buffer]].append(buffer)
                    begins[position].append(buffer)
                last[buffer] = position
        for buffer, position in last.items():
            ends[position].append(buffer)
        return begins, ends

    def touched(self, step: Step) -> tuple[list[int], list[int]]:
        """Return the buffers that a step reads and those that it writes."""
        match step:
            case Run():
                operands = self._operands(step)
                reads = [each.memory for each in operands if each.access.reads]
                return reads, [each.memory for each in operands if each.access.writes]
            case Leave(what=what) | Await(what=what):
                return [self.of(what)], []
            case Fetch(what=what):  # pragma: no branch
                return [], [self.of(what)]

    def _operands(self, run: Run) -> tuple[Operand, ...]:
        adds = run.part > 1
        key = run.layer.index, run.phase, adds
        if key not in self._known:
            operands = self._buffers.operands(run.layer, run.phase)
            self._known[key] = tuple(map(_added_to, operands)) if adds else operands
        return self._known[key]

    def of(self, what: Saved) -> int:
        """Return the buffer of what is saved."""
        return self.maps[what.index] if what.is_map else self._statistics[what.index]


def _added_to(operand: Operand) -> Operand:
    """Return the operand of a later part of the batch, which adds to the weight gradients of those before it."""
    is_sum = operand.role is Role.WEIGHT_GRADIENT and operand.access is Access.WRITE
    return replace(operand, access=Access.UPDATE) if is_sum else operand


class _ProgramWriter:
    def __init__(self, workload: Workload, kernels: KernelChoice, *, shares_workspace: bool) -> None:
        self.plan = PlanWriter(workload)
        self._kernels = kernels
        self._buffers = ProgramBuffers(self.plan, workload)
        self._workspace = SharedWorkspace(self.plan, workload, kernels) if shares_workspace else None
        # By buffer, the end of its copy to the host, or back, for which the compute stream has not waited yet.
        self._leaving: dict[int, int] = {}
        self._coming: dict[int, int] = {}

    def write(self, steps: Sequence[Step]) -> None:
        """Write the whole iteration."""
        begins, ends = self._buffers.lifetimes(steps)
        for buffer, owner in self._buffers.throughout.items():
            self.plan.allocate(buffer, owner, Phase.FORWARD)
        if self._workspace is not None:
            self._workspace.allocate()
        self.plan.allocate(self._buffers.maps[0], 0, Phase.FORWARD)
        for step, born, dying in zip(steps, begins, ends, strict=True):
            for buffer in born:
                self._allocate(buffer, step)
            self._take(step)
            for buffer in dying:
                self.plan.release(buffer)
        if self._workspace is not None:
            self._workspace.release()
        for buffer in self._buffers.throughout:
            self.plan.release(buffer)

    def _allocate(self, buffer: int, step: Step) -> None:
        match step:
            case Run(layer=layer, phase=phase) | Fetch(layer=layer, phase=phase):
                self.plan.allocate(buffer, layer.index, phase)
            case _:  # pragma: no cover
                raise AssertionError("a copy to the host takes no memory")

    def _take(self, step: Step) -> None:
        match step:
            case Run():
                self._run(step)
            case Leave(what=what, layer=layer, phase=phase, copy=copy):
                self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
                self.plan.offload(self._buffers.of(what), layer.index, phase, copy=copy)
                self._leaving[self._buffers.of(what)] = self.plan.record(Stream.MEMORY)
            case Fetch(what=what, layer=layer, on_demand=on_demand, copy=copy):
                self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
                self.plan.prefetch(self._buffers.of(what), layer.index, on_demand=on_demand, copy=copy)
                self._coming[self._buffers.of(what)] = self.plan.record(Stream.MEMORY)
            case Await(what=what):  # pragma: no branch
                buffer = self._buffers.of(what)
                ends = self._leaving if buffer in self._leaving else self._coming
                self.plan.wait(ends.pop(buffer), Stream.COMPUTE)

    def _run(self, step: Run) -> None:
        layer, phase = step.layer, step.phase
        for buffer in self._buffers.touched(step)[0]:
            if buffer in self._coming:
                self.plan.wait(self._coming.pop(buffer), Stream.COMPUTE)
        kernel = self._kernels[layer.index, phase]
        if self._workspace is not None:
            self._buffers.compute(step, kernel, self._workspace.of(layer, phase))
            return
        workspace = None
        if kernel.workspace_bytes:
            name = f"workspace of {layer.name}"
            workspace = self.plan.buffer(name, BufferKind.WORKSPACE, kernel.workspace_bytes, layer.stage)
            self.plan.allocate(workspace, layer.index, phase)
        self._buffers.compute(step, kernel, workspace)
        if workspace is not None:
            self.plan.release(workspace)
