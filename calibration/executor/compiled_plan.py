"""A plan compiled for a device: the kernel of each operation and its buffers; refusals of what cannot be executed.

Copies are made by copy engines, given buffers are filled before the clock starts, and there is one GPU. Extents are
released where the device can, which PyTorch's allocator on a GPU cannot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from calibration.executor.dry_run import DryRunLibrary
from calibration.executor.pinned_arena import ArenaLayout, lay_copies
from calibration.kernels.interface import Kernel, KernelOperands
from calibration.kernels.tensors import Part, dtype_of
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Alias, Compute, Operation, Stream
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.units import Precision

_ONE_TYPE: Final = frozenset({Precision.FLOAT32, Precision.BFLOAT16, Precision.FLOAT16})
"""Precisions in which every kernel computes in the type of the maps. TF32 is a setting of a device here."""
_CANNOT: Final = "this executor cannot do"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel and the buffers it works on; `workspace` is the plan's buffer for it, if the plan has one."""

    layer: Layer
    phase: Phase
    kernel: Kernel
    operands: KernelOperands
    workspace: int | None
    workspace_bytes: int

    @property
    def own_bytes(self) -> int:
        """Bytes that the kernel allocates itself."""
        return max(0, self.workspace_bytes - self.kernel.passed_bytes)


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """A plan that can be executed.

    Attributes:
        copies: where its copies lie on the host.
        taken_bytes: by buffer, its device memory: a workspace has as much as the largest of its kernels needs.
        idle_bytes: by workspace, its memory when no kernel runs: of a single kernel's, what that is passed.
    """

    plan: TrainingPlan
    calls: Mapping[int, KernelCall]
    forms: Sequence[Part | None]
    copies: ArenaLayout
    taken_bytes: Sequence[int]
    idle_bytes: Mapping[int, int]

    @classmethod
    def of(cls, plan: TrainingPlan, workload: Workload, library: DryRunLibrary) -> "CompiledPlan":
        """Find the kernels of a plan and their buffers."""
        forms = _forms(plan, workload, channels_last=library.channels_last)
        calls = {
            position: _kernel_call(plan, position, operation, library)
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
    graph = workload.graph
    if plan.layers != tuple(layer.name for layer in graph.layers):
        raise ExecutionRefused(f"{plan.policy}: found a plan of another network, expected one of {graph.name}")
    mine = workload.saved_by(plan.workload.graph.saving)
    if len(mine.step.storages) != len(plan.workload.step.storages):
        raise ExecutionRefused(f"{plan.policy}: found a plan of another mode or optimizer")
    kernels = [each for each in plan.operations if isinstance(each, Compute)]
    touched = {operand.memory for each in kernels for operand in each.operands}
    layers = plan.workload.graph.layers
    # Rectifiers in place that keep a record instead of their map, by its buffer.
    records = {
        operand.memory: layers[each.layer]
        for each in kernels
        for operand in each.operands
        if operand.role is Role.STATISTICS and isinstance(layers[each.layer].operator, Activation)
    }
    storages = {operation.storage for operation in plan.operations if isinstance(operation, Alias)}
    forms: list[Part | None] = []
    for number, buffer in enumerate(plan.buffers):
        if number in records:
            forms.append(Part(_whole(plan.workload, records[number].out_shape), torch.bool, channels_last))
            continue
        form = form_of(mine, buffer, channels_last=channels_last)
        # By-products of a framework's own kernels, as Caffe's temporary maps, are moved here and not computed.
        is_by_product = buffer.kind in (BufferKind.WORKSPACE, BufferKind.STATISTICS)
        if form is None and not is_by_product and number in touched - storages:
            raise ExecutionRefused(f"{plan.policy}: {buffer.name} belongs to no storage of the step")
        if form is not None and form.nbytes != buffer.nbytes:
            raise ExecutionRefused(
                f"{plan.policy}: {buffer.name} has {buffer.nbytes} bytes, expected {form.nbytes}: the plan is one of "
                "another batch size or element type"
            )
        forms.append(form)
    return tuple(forms)


def form_of(workload: Workload, buffer: Buffer, *, channels_last: bool) -> Part | None:
    """Return shape and type of a buffer: maps as (N, C, H, W), all else flat.

    None for what holds no storage of the workload's step: a workspace, and memory into which others are laid.
    """
    if buffer.storage is None:
        return None
    storage, graph = workload.step.storages[buffer.storage], workload.graph
    dtype = dtype_of(workload.element_type)
    match storage.kind:
        case BufferKind.FEATURE_MAP | BufferKind.GRADIENT_MAP:
            return Part(_whole(workload, graph.maps[storage.owner].shape), dtype, channels_last)
        case BufferKind.STATISTICS:
            return Part((storage.nbytes // torch.float32.itemsize,), torch.float32)
        case BufferKind.LABELS:
            return Part((storage.nbytes // torch.int64.itemsize,), torch.int64)
        case _:
            return Part((graph.layers[storage.owner].parameters,), dtype)


def _whole(workload: Workload, shape: MapShape) -> tuple[int, ...]:
    return (workload.part_size, shape.channels, shape.height, shape.width)


def _kernel_call(plan: TrainingPlan, position: int, operation: Compute, library: DryRunLibrary) -> KernelCall:
    layer = plan.workload.graph.layers[operation.layer]
    workspace = _first(operation, Role.WORKSPACE)
    if fault := _operand_fault(plan, operation):
        raise _refusal(plan, position, fault)
    offered = library.kernels(plan.workload, layer, operation.phase)
    kernel = next((each for each in offered if each.algorithm == operation.algorithm), None)
    if kernel is None:
        names = " or ".join(each.algorithm for each in offered)
        raise _refusal(plan, position, f"the device has no such algorithm for this layer, expected {names}")
    assert kernel.workspace_bytes is not None, "a dry run measures what a kernel does not state"
    planned_bytes = 0 if workspace is None else plan.buffers[workspace].nbytes
    if planned_bytes < kernel.passed_bytes:
        found = f"it has {planned_bytes} bytes of workspace, expected {kernel.passed_bytes}"
        raise _refusal(plan, position, found)
    temporary_bytes = plan.workload.step.operation(layer.index, operation.phase).temporary_bytes
    needed_bytes = kernel.workspace_bytes + temporary_bytes
    operands = KernelOperands.of(layer, operation.phase, operation.operands)
    return KernelCall(layer, operation.phase, kernel, operands, workspace, needed_bytes)


def _operand_fault(plan: TrainingPlan, operation: Compute) -> str:
    """Return which operand a kernel lacks, or has without a storage; empty where there is none."""
    step = plan.workload.step
    for operand in operation.operands:
        buffer = plan.buffers[operand.memory]
        if buffer.storage is None and buffer.kind in (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP):
            return f"{buffer.name} belongs to no storage of the step"
    named = {(each.role, each.position) for each in operation.operands}
    expected = step.operation(operation.layer, operation.phase).operands
    for operand, storage in zip(expected, step.storages_of(expected), strict=True):
        # The record of a rectifier takes the place of its map.
        stands_in = operand.role is Role.OUTPUT and _first(operation, Role.STATISTICS) is not None
        if (operand.role, operand.position) not in named and not stands_in:
            return f"it does not name its operand {operand.role.value}: {storage.name}"
    return ""


def _first(operation: Compute, role: Role) -> int | None:
    return next((each.memory for each in operation.operands if each.role is role), None)


def _refusal(plan: TrainingPlan, position: int, message: str) -> ExecutionRefused:
    text = describe(plan.operations[position], plan.buffer_names, plan.layers)
    return ExecutionRefused(f"{plan.policy}: operation {position} ({text}): {message}")


def refuse_impossible(plan: TrainingPlan, *, releases_extents: bool) -> None:
    """Refuse a plan that cannot be executed.

    Raises:
        ExecutionRefused: the message names the operation or the precision.
    """
    precision = plan.workload.precision
    if precision not in _ONE_TYPE:
        found = f"{plan.workload.graph.name} computes in {precision.value}"
        raise ExecutionRefused(f"{plan.policy}: {found}: {_CANNOT} other precisions than float32, bfloat16 and float16")
    for position, operation in enumerate(plan.operations):
        if what := _impossible(operation, releases_extents):
            raise _refusal(plan, position, f"{_CANNOT} {what}")
    # Given buffers are filled when the head of the plan has allocated them; then the clock starts.
    leading, begun = leading_operations(plan), set[int]()
    for position, operation in enumerate(plan.operations):
        if isinstance(operation, operations.Allocate | Alias):
            if plan.buffers[operation.buffer].given_on_gpu and operation.buffer not in begun and position >= leading:
                raise _refusal(
                    plan, position, f"{_CANNOT} a given buffer that is allocated after the iteration has begun"
                )
            begun.add(operation.buffer)


def _impossible(operation: Operation, releases_extents: bool) -> str:  # noqa: FBT001  # of the device
    """Return what of an operation cannot be executed at any position; empty where all can."""
    match operation:
        case Compute(part=part) if part:
            return "kernels over a part of the batch"
        case operations.AllocateExtent() | operations.ReleaseExtent() if not releases_extents:
            return "memory of an extent of a buffer, given back and taken again"
        case operations.Offload(mechanism=operations.Paged()) | operations.Prefetch(mechanism=operations.Paged()):
            return "copies page by page at page faults"
        case (
            operations.AllReduce()
            | operations.Communicate()
            | operations.RecordEvent(stream=Stream.COMMUNICATION)
            | operations.WaitEvent(stream=Stream.COMMUNICATION)
        ):
            return "what several GPUs exchange"
        case operations.HostSynchronize(streams=streams) if Stream.COMMUNICATION in streams:
            return "what several GPUs exchange"
        case _:
            return ""
