"""Host time of each operation of a plan, by how the framework runs the network.

Run eagerly, a kernel costs the host the dispatch of the framework (`Host.dispatch_forward_s`,
`Host.dispatch_backward_s`) and the call that issues it (`Host.issue_s`). Autograd dispatches once for each operator of
forward: its other kernels for the same operator, as a sum of gradients or the second kernel of a layer's backward, cost
the call alone. Copies, events and waits are calls too. Calls of cuDNN cost more (`Host.dispatch_library_s`):
convolutions, each of their two gradients, and batch normalizations in float32, but no depthwise convolutions, for which
PyTorch has kernels of its own.

A layer of a built network is one operator, except the loss, log-softmax and the loss itself, in backward with the
gradient 1; and backward of an addition, which is such a sum. All weights are updated by one call for lists of tensors,
PyTorch's default. Operations without GPU time are no kernels and cost nothing.

A calibrated machine states what the executor takes for each of its kernels, as far as it was measured, and for copies,
events and allocations apart.

A CUDA graph is one call. Compiled code has one call for each kernel.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, TypeGuard

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.step import StepOperation
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Host
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Pinned,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    WaitEvent,
)
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import TrainingPlan


class Execution(Enum):
    """How the framework runs a network.

    `eager` runs operator by operator, PyTorch's default. `cuda_graphs` records the step once and launches it as a
    whole. `compiled` fuses chains of pointwise operators (`vdnnsim.dnn.fusion`), as torch.compile does.
    """

    EAGER = "eager"
    CUDA_GRAPHS = "cuda_graphs"
    COMPILED = "compiled"


_NARROW_BYTES: Final = 2
_UNISSUED = (Allocate, Release, AllocateExtent, ReleaseExtent, Alias, HostSynchronize)
"""Operations that are on no stream."""


def check_execution(plan: TrainingPlan, execution: Execution, pinned: PinnedMemory) -> None:
    """Refuse a plan that an execution cannot run.

    Raises:
        PolicyError: a CUDA graph would have to record host work, or a fused kernel would be recomputed by itself.
    """
    why = ""
    if execution is Execution.CUDA_GRAPHS:
        if any(isinstance(each, HostSynchronize) for each in plan.operations):
            why = "its host waits for the GPU within the iteration, which no CUDA graph records"
        elif pinned is PinnedMemory.PER_OFFLOAD and any(pins(each) for each in plan.operations):
            why = "its host pins memory within the iteration, which no CUDA graph records"
    elif execution is Execution.COMPILED and any(isinstance(each, Compute) and each.repeat for each in plan.operations):
        why = "it recomputes operators, and how these would be fused is not known"
    if why:
        raise PolicyError(f"{plan.policy}: execution: found {execution.value!r}, but {why}; expected 'eager'")


def issue_seconds(
    plan: TrainingPlan,
    host: Host,
    execution: Execution,
    durations_s: Mapping[int, float],
    measured_s: Mapping[int, float] = MappingProxyType({}),
) -> dict[int, float]:
    """Return the host time of each operation by its position.

    `durations_s` are those of kernels on the GPU; `measured_s` the host times of kernels, as far as they were measured,
    which hold where kernels are launched one by one.
    """
    operations = enumerate(plan.operations)
    issued = [at for at, each in operations if not isinstance(each, _UNISSUED) and durations_s.get(at, 1)]
    seconds = dict.fromkeys((*durations_s, *issued), 0.0)
    if execution is Execution.CUDA_GRAPHS:
        return seconds | dict.fromkeys(issued[:1], host.issue_s)
    seconds |= {at: _call_s(plan.operations[at], host) for at in issued}
    if execution is Execution.EAGER:
        for at, dispatch_s in _dispatched(plan, issued, host):
            seconds[at] += dispatch_s
        seconds |= measured_s
        if host.allocation_s:
            # What is allocated before the first kernel is there when the iteration begins.
            allocated = range(leading_operations(plan), len(plan.operations))
            takes = (at for at in allocated if isinstance(plan.operations[at], Allocate | AllocateExtent))
            seconds |= dict.fromkeys(takes, host.allocation_s)
    return seconds


def _call_s(operation: Operation, host: Host) -> float:
    special_s: float | None = None
    if isinstance(operation, Offload | Prefetch):
        special_s = host.issue_copy_s
    elif isinstance(operation, RecordEvent | WaitEvent):
        special_s = host.issue_event_s
    return host.issue_s if special_s is None else special_s


def _dispatched(plan: TrainingPlan, issued: Sequence[int], host: Host) -> Iterator[tuple[int, float]]:
    """Yield the position of each kernel, and the time of its framework and libraries."""
    last: object = None
    for at in issued:
        each = plan.operations[at]
        if isinstance(each, Compute):
            captured = _captured(plan, each)
            node: object = None
            operators = 1 if captured else _operators_of_layer(plan, each)
            if each.phase.is_backward:
                node = each.layer, captured.forward if captured else None
            elif each.phase is Phase.UPDATE and not captured:
                node = Phase.UPDATE
            dispatch_s = host.dispatch_backward_s if each.phase.is_backward else host.dispatch_forward_s
            if node is not None and node == last:
                dispatch_s = 0.0
            last = node
            calls = _calls_of_captured(captured) if captured else _calls_of_layer(plan, each)
            yield at, operators * dispatch_s + calls * host.dispatch_library_s


def _captured(plan: TrainingPlan, kernel: Compute) -> StepOperation | None:
    if not isinstance(plan.workload, CapturedWorkload):
        return None
    return plan.workload.step.operations_of(kernel.layer, kernel.phase)[kernel.operation]


def _operators_of_layer(plan: TrainingPlan, kernel: Compute) -> int:
    """Return how many operators of the framework a kernel of a built layer is."""
    kind, is_backward = plan.workload.graph.layers[kernel.layer].kind, kernel.phase.is_backward
    if kind is LayerKind.LOSS:
        return 3 if is_backward else 2
    # Backward of an addition sums gradients.
    return 0 if kind is LayerKind.ADD and is_backward else 1


def _calls_of_captured(operation: StepOperation) -> int:
    """Return how often an operation calls cuDNN."""
    work = operation.work
    if isinstance(work, ConvolutionWork):
        return 0 if work.is_depthwise else max(1, len(work.gradients))
    return int("cudnn" in operation.name)


def _calls_of_layer(plan: TrainingPlan, kernel: Compute) -> int:
    """Return how often a kernel of a built layer calls cuDNN."""
    if kernel.phase is Phase.UPDATE:
        return 0
    layer = plan.workload.graph.layers[kernel.layer]
    is_narrow_norm = layer.kind is LayerKind.BN and plan.workload.element_type.nbytes == _NARROW_BYTES
    return int(layer.kind in {LayerKind.CONV, LayerKind.BN} and not is_narrow_norm)


def pins(operation: object) -> TypeGuard[Offload]:
    return isinstance(operation, Offload) and isinstance(operation.mechanism, Pinned)
