"""Device memory requests of a plan in issue order: allocations and frees of buffers and of parts of them."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from vdnnsim.cost.pytorch_workspace import searched_bytes
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import CollectiveKind
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


_OTHERS: Final = 1
"""The stream, for the allocator, of all that is not of the compute stream, as what FSDP gathers or copies from the
host."""
_REDUCED: Final = 2
"""That on which FSDP scatters sums of gradients, and casts them."""
_SUMMED: Final = 3
"""That on which it sums them over copies of the model, and casts them then."""


def device_requests(plan: TrainingPlan, model: MemoryChoice, granule_bytes: int, pieces: Pieces) -> list[Asked]:
    asked: list[Asked] = []
    aliases: set[int] = set()
    # Pieces held of buffers of which extents were released.
    held: dict[int, set[int]] = {}
    reduced = _streams_of_gradients(plan)
    for position, operation in enumerate(plan.operations):
        # Testing types is faster than matching all operations.
        if type(operation) is operations.Allocate:
            buffer, stream = operation.buffer, operation.stream
            pool = 0 if stream is Stream.COMPUTE else reduced.get(buffer, _OTHERS)
            asked.append(Asked(position, Request(buffer, plan.buffers[buffer].nbytes, stream=pool)))
        elif type(operation) is operations.Alias:
            aliases.add(operation.buffer)
        elif type(operation) is operations.Release:
            buffer = operation.buffer
            if buffer in aliases:
                aliases.remove(buffer)
            else:
                asked.append(Asked(position, Request(buffer, None)))
                held.pop(buffer, None)
        elif type(operation) is operations.AllocateExtent or type(operation) is operations.ReleaseExtent:
            buffer, extent = operation.buffer, operation.extent
            if model not in MODELS_WITH_EXTENTS:
                raise _without_extents(plan, operation, model)
            left = held.setdefault(buffer, set(pieces.covered(buffer)))
            changed = pieces.covered(buffer, extent)
            (left.update if isinstance(operation, operations.AllocateExtent) else left.difference_update)(changed)
            nbytes = _held_bytes(pieces.ranges(buffer), left, extent_granule_bytes(model, granule_bytes))
            asked.append(Asked(position, Request(buffer, nbytes, resizes=True)))
    return asked


def _streams_of_gradients(plan: TrainingPlan) -> dict[int, int]:
    """Return by buffer the stream of what FSDP reduces, of whose memory PyTorch's allocator has pools by stream.

    Source: github.com/pytorch/pytorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_reduce).
    """
    gradients = (each for each in range(len(plan.buffers)) if plan.buffers[each].kind is BufferKind.WEIGHT_GRADIENT)
    found = dict.fromkeys(gradients, _REDUCED)
    # By buffer, the stream on which a kernel casts it.
    cast = dict[int, int]()
    for each in plan.operations:
        if not isinstance(each, operations.Communicate) or each.stream is not Stream.COMMUNICATION:
            continue
        kind = None if each.collective is None else each.collective.kind
        if kind is CollectiveKind.REDUCE_SCATTER:
            found |= dict.fromkeys(each.writes, _REDUCED)
            cast |= dict.fromkeys(each.writes, _REDUCED)
        elif kind is CollectiveKind.ALL_REDUCE:
            cast |= dict.fromkeys(cast.keys() & {*each.writes}, _SUMMED)
        elif kind is None and (made := [cast[buffer] for buffer in each.reads if buffer in cast]):
            found |= dict.fromkeys(each.writes, max(made))
    return found


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
