"""Host time of each operation of a plan, by how the framework runs the network.

Run eagerly, a kernel costs the host what the framework does before it (`Host.dispatch_forward_s`,
`Host.dispatch_backward_s`) and the call that puts it on its stream (`Host.issue_s`). Autograd is left and entered once
for each operator of forward: what it runs for the same operator again, as a sum of gradients or the second kernel of a
layer's backward, costs the call alone. Copies, events and waits are calls too. What cuDNN computes costs more
(`Host.dispatch_library_s`): convolutions, the two gradients of each by themselves, and batch normalizations in float32,
but no depthwise convolution, for which PyTorch has kernels of its own.

A layer of a network that we build is one operator, but for the loss: logarithms of probabilities and the loss itself,
and in backward the gradient 1 before both; and for backward of additions, which is such a sum. All weights are updated
by one call for lists of tensors, as PyTorch's optimizers do it by default.

What takes no time on the GPU, as an operator that only takes memory, is no kernel and costs nothing.

A CUDA graph is one call for all that was recorded. Compiled code has only calls left, one for each kernel.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
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
    Pinned,
    Release,
    ReleaseExtent,
)
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
"""What the host puts on no stream."""


def check_execution(plan: TrainingPlan, execution: Execution, pinned: PinnedMemory) -> None:
    """Refuse a plan that cannot be run in a way.

    Raises:
        PolicyError: a graph would have to record what the host does itself, or a kernel that is fused with others is
            to run once more alone.
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
    plan: TrainingPlan, host: Host, execution: Execution, durations_s: Mapping[int, float]
) -> dict[int, float]:
    """Return by position what the host spends on issuing each operation that goes on a stream."""
    operations = enumerate(plan.operations)
    issued = [at for at, each in operations if not isinstance(each, _UNISSUED) and durations_s.get(at, 1)]
    called = issued[:1] if execution is Execution.CUDA_GRAPHS else issued
    seconds = dict.fromkeys((*durations_s, *issued), 0.0) | dict.fromkeys(called, host.issue_s)
    if execution is Execution.EAGER:
        for at, dispatch_s in _dispatched(plan, issued, host):
            seconds[at] += dispatch_s
    return seconds


def _dispatched(plan: TrainingPlan, issued: Sequence[int], host: Host) -> Iterator[tuple[int, float]]:
    """Yield the position of each kernel, and what the framework and its libraries do before it."""
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
    """Return what a kernel was in a captured program; None of a network that we build."""
    if not isinstance(plan.workload, CapturedWorkload):
        return None
    return plan.workload.step.operations_of(kernel.layer, kernel.phase)[kernel.operation]


def _operators_of_layer(plan: TrainingPlan, kernel: Compute) -> int:
    """Return how many of the framework's operators a kernel of a layer stands for."""
    kind, is_backward = plan.workload.graph.layers[kernel.layer].kind, kernel.phase.is_backward
    if kind is LayerKind.LOSS:
        return 3 if is_backward else 2
    # Backward of an addition sums gradients.
    return 0 if kind is LayerKind.ADD and is_backward else 1


def _calls_of_captured(operation: StepOperation) -> int:
    """Return how often an operation calls cuDNN."""
    match operation.work:
        case ConvolutionWork() as work:
            return 0 if work.is_depthwise else max(1, len(work.gradients))
        case _:
            return int("cudnn" in operation.name)


def _calls_of_layer(plan: TrainingPlan, kernel: Compute) -> int:
    """Return how often a kernel of a layer calls cuDNN."""
    if kernel.phase is Phase.UPDATE:
        return 0
    layer = plan.workload.graph.layers[kernel.layer]
    is_narrow_norm = layer.kind is LayerKind.BN and plan.workload.element_type.nbytes == _NARROW_BYTES
    return int(layer.kind in {LayerKind.CONV, LayerKind.BN} and not is_narrow_norm)


def pins(operation: object) -> TypeGuard[Offload]:
    """Return whether an operation copies to memory that may have to be pinned for it."""
    return isinstance(operation, Offload) and isinstance(operation.mechanism, Pinned)
