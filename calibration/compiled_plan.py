"""A plan made ready for a device: for each of its kernels what to call and on which buffers, before any clock runs.

And what it really took of the device once it ran: counted as the simulator counts, or why it was too much.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from calibration.arena import ArenaLayout, lay_copies
from calibration.buffers import form_of, record_form
from calibration.dry_run import DryRunLibrary
from calibration.kernels.interface import Kernel
from calibration.kernels.tensors import Part
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Alias, Allocate, AllocateExtent, Compute, describe
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, Placement, place_unlimited
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel and the buffers it works on.

    Attributes:
        operands: the buffers by their roles.
        workspace: the plan's buffer for it; None where the plan has none.
        workspace_bytes: what the kernel needs.
    """

    layer: Layer
    phase: Phase
    kernel: Kernel
    operands: tuple[Operand, ...]
    workspace: int | None
    workspace_bytes: int

    @property
    def own_bytes(self) -> int:
        """Bytes that the kernel takes for itself."""
        return max(0, self.workspace_bytes - self.kernel.passed_bytes)


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A plan that can be executed.

    Attributes:
        calls: by position of the Compute in the plan.
        forms: by buffer.
        copies: where its copies lie on the host.
        taken_bytes: by buffer, what it takes of the device: a workspace as much as the largest of its kernels needs.
        idle_bytes: by workspace, what it takes when no kernel runs: of a single kernel's, what that is handed.
    """

    plan: TrainingPlan
    calls: Mapping[int, KernelCall]
    forms: Sequence[Part | None]
    copies: ArenaLayout
    taken_bytes: Sequence[int]
    idle_bytes: Mapping[int, int]

    @classmethod
    def of(cls, plan: TrainingPlan, workload: Workload, library: DryRunLibrary) -> "CompiledPlan":
        """Find the kernels of a plan and their buffers.

        Raises:
            ExecutionRefused: the plan asks for what cannot be done; the message names it.
        """
        forms = _forms(plan, workload, channels_last=library.channels_last)
        calls = {
            position: _Binder(plan, position, operation).bind(library)
            for position, operation in enumerate(plan.operations)
            if isinstance(operation, Compute)
        }
        idle_bytes: dict[int, int] = {}
        taken_bytes = [0 if buffer.kind is BufferKind.WORKSPACE else buffer.nbytes for buffer in plan.buffers]
        for call in calls.values():
            if call.workspace is not None:
                taken_bytes[call.workspace] = max(taken_bytes[call.workspace], call.workspace_bytes)
                own_bytes = 0 if call.workspace in idle_bytes else call.own_bytes
                idle_bytes[call.workspace] = taken_bytes[call.workspace] - own_bytes
        return cls(plan, calls, forms, lay_copies(plan), taken_bytes, idle_bytes)


def _forms(plan: TrainingPlan, workload: Workload, *, channels_last: bool) -> tuple[Part | None, ...]:
    if plan.layers != tuple(layer.name for layer in workload.graph.layers):
        name = workload.graph.name
        raise ExecutionRefused(f"{plan.policy}: found a plan of another network, expected one of {name}")
    mine = workload.saved_by(plan.workload.graph.saving)
    if len(mine.step.storages) != len(plan.workload.step.storages):
        raise ExecutionRefused(f"{plan.policy}: found a plan of another mode or optimizer")
    kernels = [each for each in plan.operations if isinstance(each, Compute)]
    touched = {operand.memory for each in kernels for operand in each.operands}
    records = _records(plan, kernels)
    storages = {operation.storage for operation in plan.operations if isinstance(operation, Alias)}
    forms: list[Part | None] = []
    for number, buffer in enumerate(plan.buffers):
        if number in records:
            forms.append(record_form(plan.workload, records[number], channels_last=channels_last))
            continue
        form = form_of(mine, buffer, channels_last=channels_last)
        # What a framework's own kernels keep beside maps, as Caffe's temporary maps, is moved here and not computed.
        means_nothing_here = buffer.kind in (BufferKind.WORKSPACE, BufferKind.STATISTICS)
        if form is None and not means_nothing_here and number in touched - storages:
            raise ExecutionRefused(f"{plan.policy}: {buffer.name} does not say what it belongs to")
        if form is not None and form.nbytes != buffer.nbytes:
            raise ExecutionRefused(
                f"{plan.policy}: {buffer.name} has {buffer.nbytes} bytes, expected {form.nbytes}: the plan is one of "
                "another batch size or element type"
            )
        forms.append(form)
    return tuple(forms)


def _records(plan: TrainingPlan, kernels: Sequence[Compute]) -> Mapping[int, Layer]:
    """Return the layers in place that keep a record instead of their map, by its buffer."""
    layers = plan.workload.graph.layers
    return {
        operand.memory: layers[each.layer]
        for each in kernels
        for operand in each.operands
        if operand.role is Role.STATISTICS and isinstance(layers[each.layer].operator, Activation)
    }


class _Binder:
    """Finds the kernel of one operation, and its buffers by their roles."""

    def __init__(self, plan: TrainingPlan, position: int, operation: Compute) -> None:
        self._plan = plan
        self._position = position
        self._operation = operation
        self._layer = plan.workload.graph.layers[operation.layer]

    def bind(self, library: DryRunLibrary) -> KernelCall:
        """Return the kernel with its buffers."""
        self._check_operands()
        kernel, workspace = self._kernel(library), self._first(Role.WORKSPACE)
        planned_bytes = 0 if workspace is None else self._plan.buffers[workspace].nbytes
        operation = self._plan.workload.step.operation(self._layer.index, self._operation.phase)
        temporary_bytes = operation.temporary_bytes
        assert kernel.workspace_bytes is not None, "a dry run says what a kernel does not"
        if planned_bytes < kernel.passed_bytes:
            raise self._refusal(f"it has {planned_bytes} bytes of workspace, expected {kernel.passed_bytes}")
        return KernelCall(
            layer=self._layer,
            phase=self._operation.phase,
            kernel=kernel,
            operands=self._operation.operands,
            workspace=workspace,
            workspace_bytes=kernel.workspace_bytes + temporary_bytes,
        )

    def _kernel(self, library: DryRunLibrary) -> Kernel:
        offered = library.kernels(self._plan.workload, self._layer, self._operation.phase)
        for kernel in offered:
            if kernel.algorithm == self._operation.algorithm:
                return kernel
        names = " or ".join(kernel.algorithm for kernel in offered)
        raise self._refusal(f"the device has no such algorithm for this layer, expected {names}")

    def _check_operands(self) -> None:
        """Refuse a kernel that lacks an operand, or has one of which nobody knows what it is."""
        buffers, step = self._plan.buffers, self._plan.workload.step
        named = {(each.role, each.position) for each in self._operation.operands}
        for operand in self._operation.operands:
            buffer = buffers[operand.memory]
            if buffer.storage is None and buffer.kind in (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP):
                raise self._refusal(f"{buffer.name} does not say what it belongs to")
        expected = step.operation(self._layer.index, self._operation.phase).operands
        for operand, storage in zip(expected, step.storages_of(expected), strict=True):
            # The record of a rectifier takes the place of its map.
            stands_in = operand.role is Role.OUTPUT and self._first(Role.STATISTICS) is not None
            if (operand.role, operand.position) not in named and not stands_in:
                raise self._refusal(f"it does not name its operand {operand.role.value}: {storage.name}")

    def _first(self, role: Role) -> int | None:
        return next((each.memory for each in self._operation.operands if each.role is role), None)

    def _refusal(self, message: str) -> ExecutionRefused:
        plan = self._plan
        text = describe(plan.operations[self._position], plan.buffer_names, plan.layers)
        return ExecutionRefused(f"{plan.policy}: operation {self._position} ({text}): {message}")


def placement_of(compiled: CompiledPlan, limits: MemoryLimits) -> Placement:
    """Count a plan as `ideal` does, but with the workspaces that kernels took instead of those that it foresaw."""
    sizes = zip(compiled.plan.buffers, compiled.taken_bytes, strict=True)
    taken = replace(compiled.plan, buffers=tuple(replace(buffer, nbytes=nbytes) for buffer, nbytes in sizes))
    return place_unlimited(taken, replace(limits, model=MemoryModel.IDEAL))


def overflow_at(
    compiled: CompiledPlan, position: int, held: Mapping[int, int], limits: MemoryLimits, memory_bytes: int
) -> DoesNotFit:
    """Say for which operation a device of so much memory had no room, and what held the rest, in bytes by buffer."""
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
