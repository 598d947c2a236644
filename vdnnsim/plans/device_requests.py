"""Device memory requests of a plan in issue order: allocations and frees of buffers and of parts of them."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from vdnnsim.cost.pytorch_workspace import searched_bytes
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.step import BufferKind, Role
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.memory.models import MODELS_WITH_EXTENTS, extent_granule_bytes
from vdnnsim.memory.requests import Request, round_up
from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.units import ElementType


class Asked(NamedTuple):
    """A request, and the position in the plan of the operation that makes it."""

    operation: int
    request: Request

    def in_pool(self, pool: int) -> "Asked":
        """Return what is asked of a private pool; 0 for the one that it asks. Other streams have pools of their own."""
        if not pool or self.request.nbytes is None or self.request.stream:
            return self
        return self._replace(request=self.request._replace(pool=pool))


_OF_MEMORY: Final = frozenset(
    {operations.Allocate, operations.Alias, operations.Release, operations.AllocateExtent, operations.ReleaseExtent}
)
"""Operations that change memory; testing the type first is faster than matching all operations."""


_POOLS: Final = {(Stream.COMMUNICATION, BufferKind.WEIGHT_GRADIENT): 2}
"""FSDP gathers weights on one stream and reduces gradients on another; PyTorch's allocator has pools for each."""


def device_requests(plan: TrainingPlan, model: MemoryChoice, granule_bytes: int, pieces: Pieces) -> list[Asked]:
    asked: list[Asked] = []
    aliases: set[int] = set()
    # Pieces held of buffers of which extents were released.
    held: dict[int, set[int]] = {}
    for position, operation in enumerate(plan.operations):
        if type(operation) not in _OF_MEMORY:
            continue
        match operation:
            case operations.Allocate(buffer=buffer, stream=stream):
                pool = _POOLS.get((stream, plan.buffers[buffer].kind), int(stream is not Stream.COMPUTE))
                asked.append(Asked(position, Request(buffer, plan.buffers[buffer].nbytes, stream=pool)))
            case operations.Alias(buffer=buffer):
                aliases.add(buffer)
            case operations.Release(buffer=buffer) if buffer in aliases:
                aliases.remove(buffer)
            case operations.Release(buffer=buffer):
                asked.append(Asked(position, Request(buffer, None)))
                held.pop(buffer, None)
            case _:
                assert isinstance(operation, operations.AllocateExtent | operations.ReleaseExtent)
                buffer, extent = operation.buffer, operation.extent
                if model not in MODELS_WITH_EXTENTS:
                    raise _without_extents(plan, operation, model)
                left = held.setdefault(buffer, set(pieces.covered(buffer)))
                changed = pieces.covered(buffer, extent)
                (left.update if isinstance(operation, operations.AllocateExtent) else left.difference_update)(changed)
                nbytes = _held_bytes(pieces.ranges(buffer), left, extent_granule_bytes(model, granule_bytes))
                asked.append(Asked(position, Request(buffer, nbytes, resizes=True)))
    return asked


def _held_bytes(ranges: Sequence[range], held: Collection[int], granule_bytes: int) -> int:
    """Return the bytes of the granules that pieces of a buffer touch."""
    nbytes = reached = 0
    for number in sorted(held):
        first = max(reached, ranges[number].start // granule_bytes * granule_bytes)
        reached = round_up(ranges[number].stop, granule_bytes)
        nbytes += max(0, reached - first)
    return nbytes


def _without_extents(plan: TrainingPlan, operation: Operation, model: MemoryChoice) -> PolicyError:
    text = describe(operation, plan.buffer_names, plan.layers)
    able = " or ".join(repr(each.value) for each in MODELS_WITH_EXTENTS)
    return PolicyError(
        f"{plan.policy}: memory_model: found {model.value!r}, which gives buffers back as a whole and no part of one "
        f"({text}), expected {able}"
    )


def searches(plan: TrainingPlan, workload: CapturedWorkload) -> list[Asked]:
    """Return the requests of `torch.backends.cudnn.benchmark`, each at the operation before which it is made.

    The first time that a convolution of some sizes runs, forward, for its data or for its weight gradient, PyTorch
    allocates the largest workspace of all kernels that cuDNN suggests, or half of it and so on, times each kernel,
    frees the workspace, and empties the cache. Then it allocates the workspace of the fastest, which without a GPU is
    unknown: here it is the first of cuDNN's heuristics, as without a search (`vdnnsim.cost.pytorch_workspace`).
    Depthwise convolutions are searched for in NHWC only; otherwise PyTorch has kernels of its own.

    Source: github.com/pytorch/pytorch, aten/src/ATen/native/cudnn/Conv_v8.cpp (run_single_conv, get_plans_from_find,
    generate_and_filter_plans).
    """
    found, known = list[Asked](), set[tuple[ConvolutionWork, ElementType, str]]()
    for position, kernel in enumerate(plan.operations):
        if not isinstance(kernel, operations.Compute):
            continue
        operation = workload.step.operations_of(kernel.layer, kernel.phase)[kernel.operation]
        if not isinstance(work := operation.work, ConvolutionWork):
            continue
        if work.is_depthwise and not work.channels_last:
            continue
        element_type = workload.computed_in(operation, ElementType.FLOAT32)
        for what, place in _places(plan, kernel, position, work):
            if (work, element_type, what) not in known:
                known.add((work, element_type, what))
                nbytes = searched_bytes(work, element_type.nbytes)
                found.append(Asked(place, Request(len(plan.buffers) + len(found), nbytes, searches=True)))
    return found


def _places(
    plan: TrainingPlan, kernel: operations.Compute, position: int, work: ConvolutionWork
) -> Iterator[tuple[str, int]]:
    """Yield each search of a kernel and its operation: the one that allocates its workspace, or the kernel."""
    own = {each.memory for each in kernel.operands if each.role is Role.WORKSPACE}
    before = plan.operations[position - 1]
    last = position - 1 if isinstance(before, operations.Allocate) and before.buffer in own else position
    if len(work.gradients) < 2:
        yield "".join(work.gradients), last
        return
    passing, earlier = plan.operations[last - 1], plan.operations[last - 2]
    is_passing = (
        isinstance(passing, operations.Release)
        and isinstance(earlier, operations.Allocate)
        and passing.buffer == earlier.buffer
    )
    yield from zip(work.gradients, (last - 2 if is_passing else last, last), strict=True)
