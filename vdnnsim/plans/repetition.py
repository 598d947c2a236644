"""Repeated iterations of a plan: buffers that stay allocated between them, and the requests of all.

A pool that places online and keeps its segments may need more for later iterations than for the first, which found it
empty, as weights stay allocated among other buffers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.caching import CachingAllocator, pytorch_allocator
from vdnnsim.memory.online import serve
from vdnnsim.memory.process import cublas_workspace_bytes
from vdnnsim.memory.requests import UNLIMITED_BYTES, Placed, Request, round_up
from vdnnsim.memory.segments import LARGE_SEGMENT_BYTES, LARGEST_SMALL_BYTES, SEGMENT_GRANULE_BYTES
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.buffers import is_bucket
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.operations import Alias, Allocate, Compute, Release
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan

_OUTLIVES_AN_ITERATION = frozenset(
    {BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE, BufferKind.WEIGHT_GRADIENT, BufferKind.WORKSPACE}
)
STATES_AHEAD: Final = ("adagrad",)
"""Optimizers that make their states when they are made."""
_STATES_AMID: Final = ("momentum", "8bit")
"""In names of those that make states between other tensors of an update."""
_OF_PROGRAM: Final = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP, BufferKind.WORKSPACE)
_NAMES: Final = {False: "workspace of cuBLAS for forward", True: "workspace of cuBLAS for backward"}
"""By whether they belong to the thread of backward."""


def leading_operations(plan: TrainingPlan) -> int:
    """Return how many operations at the head of a plan only allocate."""
    operations = enumerate(plan.operations)
    return next((i for i, each in operations if not isinstance(each, Allocate | Alias)), len(plan.operations))


def end_of_work(plan: TrainingPlan) -> int:
    """Return the position after the last operation that is not a Release."""
    end = len(plan.operations)
    while end and isinstance(plan.operations[end - 1], Release):
        end -= 1
    return end


def resident_buffers(plan: TrainingPlan) -> frozenset[int]:
    """Return the buffers that stay allocated between iterations.

    These are W, optimizer states, accumulated dW and workspaces of libraries that are given and live throughout.
    """
    head, tail = plan.operations[: leading_operations(plan)], plan.operations[end_of_work(plan) :]
    taken = {each.buffer for each in head if isinstance(each, Allocate)}
    held = taken & {each.buffer for each in tail if isinstance(each, Release)}
    inside = plan.operations[len(head) : len(plan.operations) - len(tail)]
    moved = {each.buffer for each in inside if isinstance(each, Allocate | Release)}
    buffers = plan.buffers
    return frozenset(
        each for each in held - moved if buffers[each].given and buffers[each].kind in _OUTLIVES_AN_ITERATION
    )


def repeated(
    plan: TrainingPlan, asked: Sequence[Asked], times: int, searched: Sequence[Asked] = ()
) -> list[list[Asked]]:
    """Return the requests of several iterations in a row in an empty pool; resident buffers are freed at the end.

    A captured step begins with weights alone: the first update allocates optimizer states, and the first products the
    workspaces of cuBLAS. What its program still holds at the end, as the loss in `loss = ...`, it lets go of when the
    next forward has returned. `searched` are additional requests of the first iteration, each before that of the
    operation at its position. DistributedDataParallel has its buckets from the second iteration on.
    """
    residents = resident_buffers(plan)
    made = _made(plan) if isinstance(plan.workload, CapturedWorkload) else {}
    again = [each for each in asked if each.request.key not in residents]
    kept = [each for each in asked if each.request.key in residents]
    taken = [(made.get(each.request.key, each.operation), each) for each in kept if each.request.nbytes is not None]
    first = sorted([*taken, *((each.operation, each) for each in (*searched, *again))], key=itemgetter(0))
    iterations = [[each for _, each in first], *([again] * (times - 1))]
    iterations[-1] = iterations[-1] + [each for each in kept if each.request.nbytes is None]
    return _with_buckets_cut(plan, _held_into_the_next(plan, iterations))


def _with_buckets_cut(plan: TrainingPlan, iterations: list[list[Asked]]) -> list[list[Asked]]:
    """Return iterations of which the first has one bucket for all gradients of an element type.

    It is allocated behind the weights. Its backward shows in which order gradients are ready; the next forward frees it
    and allocates the others, when its inputs are there.

    Source: github.com/pytorch/pytorch, torch/csrc/distributed/c10d/reducer.cpp (Reducer::rebuild_buckets,
    initialize_buckets); torch/nn/parallel/distributed.py (_ddp_init_helper).
    """
    first, *later = iterations
    buffers, storages, keys = plan.buffers, plan.workload.step.storages, _keys(plan)
    made_of = ((number, storages[each.storage]) for number, each in enumerate(buffers) if each.storage is not None)
    types = {number: each.element_type for number, each in made_of if is_bucket(each)}
    buckets = [each for each in first if each.request.key in types and each.request.nbytes is not None]
    if not (buckets and later):
        return iterations
    whole = dict[str, Asked]()
    for operation, (key, nbytes, *_) in buckets:
        begin, request = whole.get(types[key], Asked(operation, Request(key + keys, 0)))
        whole[types[key]] = Asked(begin, request._replace(nbytes=(request.nbytes or 0) + (nbytes or 0)))
    freed = (Asked(operation, Request(request.key, None)) for operation, request in whole.values())
    again = later[0]
    behind_weights = next(
        at for at, each in enumerate(first) if buffers[each.request.key].kind is not BufferKind.WEIGHTS
    )
    rest = [each for each in first[behind_weights:] if each not in buckets]
    behind_inputs = next(at for at, each in enumerate(again) if not buffers[each.request.key].given)
    return [
        [*first[:behind_weights], *whole.values(), *rest],
        [*again[:behind_inputs], *freed, *buckets, *again[behind_inputs:]],
        *later[1:],
    ]


def _held_into_the_next(plan: TrainingPlan, iterations: list[list[Asked]]) -> list[list[Asked]]:
    """Return iterations that free what the program holds at their end after the forward of the next."""
    workload = plan.workload
    if not (isinstance(workload, CapturedWorkload) and workload.is_training):
        return iterations
    storages = enumerate(workload.step.storages)
    held = {at for at, each in storages if not each.given and each.freed_after is None and each.kind in _OF_PROGRAM}
    work = ((at, each) for at, each in enumerate(plan.operations) if isinstance(each, Allocate | Compute))
    returned = next((at for at, each in work if each.phase.is_backward), 0)
    found, before, end, last = list[list[Asked]](), list[Asked](), end_of_work(plan), len(iterations) - 1
    for number, asked in enumerate(iterations):
        own, later = list(asked), list[Asked]()
        of_held = [at for at, (_, request) in enumerate(asked) if request.key in held and not request.searches]
        for at in reversed(of_held if number < last else ()):
            operation, request = asked[at]
            renamed = request._replace(key=request.key + (number + 1) * _keys(plan))
            if request.nbytes is None and operation >= end:
                later.insert(0, Asked(returned, renamed))
                del own[at]
            else:
                own[at] = Asked(operation, renamed)
        place = next((at for at, each in enumerate(own) if each.operation >= returned), len(own))
        own[place:place] = before
        found.append(own)
        before = later
    return found


def _keys(plan: TrainingPlan) -> int:
    """Return a number above all keys of one iteration: of buffers, and of two searches at most before an operation."""
    return len(plan.buffers) + 2 * len(plan.operations)


def buffer_of(plan: TrainingPlan, key: int) -> int:
    """Return the buffer of a key of `repeated`; what is held into the next iteration has another key in each."""
    return key % _keys(plan)


def whole_pages(nbytes: int, settings: AllocatorSettings) -> int:
    """Return the whole pages in so many bytes."""
    page_bytes = LARGE_SEGMENT_BYTES if settings.expandable_segments else SEGMENT_GRANULE_BYTES
    return max(0, nbytes) // page_bytes * page_bytes


def reserved_bytes(requests: Iterable[Request], granule_bytes: int, settings: AllocatorSettings, *, small: bool) -> int:
    """Return the bytes that PyTorch reserves for the small requests, or for the large ones."""
    return _after(requests, granule_bytes, settings, small=small).pool_bytes


def free_blocks(requests: Iterable[Request], granule_bytes: int, settings: AllocatorSettings) -> list[int]:
    """Return the bytes of the blocks that large requests leave free in their segments."""
    return [each.nbytes for each in _after(requests, granule_bytes, settings, small=False).free_blocks]


def are_small(requests: Iterable[Request], granule_bytes: int) -> list[bool]:
    """Return whether each request is for a block of PyTorch's small pool, or frees one."""
    found, held = list[bool](), dict[int, bool]()
    for each in requests:
        if each.nbytes is not None:
            held[each.key] = round_up(each.nbytes, granule_bytes) <= LARGEST_SMALL_BYTES
        found.append(held[each.key])
    return found


def _after(
    requests: Iterable[Request], granule_bytes: int, settings: AllocatorSettings, *, small: bool
) -> CachingAllocator:
    """Return PyTorch's allocator when it has served the small requests, or the large ones."""
    asked = list(requests)
    own = [each for each, is_small in zip(asked, are_small(asked, granule_bytes), strict=True) if is_small is small]
    allocator = pytorch_allocator(UNLIMITED_BYTES, granule_bytes, settings)
    placed = serve(own, allocator, UNLIMITED_BYTES, granule_bytes)
    assert isinstance(placed, Placed)
    return allocator


def _made(plan: TrainingPlan) -> dict[int, int]:
    """Return the operation before which the first iteration allocates states and workspaces.

    `torch.optim` makes the states of all parameters when an update begins, parameter by parameter; Adagrad does with
    the optimizer, and bitsandbytes before the update of each parameter.
    """
    buffers, made, workload = plan.buffers, dict[int, int](), plan.workload
    assert isinstance(workload, CapturedWorkload)
    optimizer = workload.captured.optimizer
    states = {number for number, each in enumerate(buffers) if each.kind is BufferKind.OPTIMIZER_STATE}
    for position, each in enumerate(plan.operations if states and optimizer not in STATES_AHEAD else ()):
        if isinstance(each, Compute):
            for one in states.intersection(each.reads):
                made.setdefault(one, position)
    if made and not optimizer.endswith("8bit"):
        made = dict.fromkeys(made, min(made.values()))
    return made | first_products(plan)


def makes_states_first(workload: Workload) -> bool:
    """Return whether an update makes all states before anything else, as `_init_group` of `torch.optim` does."""
    if not isinstance(workload, CapturedWorkload):
        return False
    return not any(each in workload.captured.optimizer for each in _STATES_AMID)


def with_cublas_workspaces(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan captured for CUDA with the workspaces of cuBLAS; others unchanged.

    PyTorch allocates one at the first product of a thread and keeps it (`vdnnsim.memory.process`): forward and update
    run on one thread, backward and its recomputations on another. After the first iteration they are given.
    """
    workload = plan.workload
    capability = workload.captured.compute_capability if isinstance(workload, CapturedWorkload) else None
    if capability is None:
        return plan
    nbytes, late = cublas_workspace_bytes(capability), _first_products(plan)
    ids = range(len(plan.buffers), len(plan.buffers) + len(late))
    buffers = (
        Buffer(_NAMES[each], BufferKind.WORKSPACE, nbytes, plan.layer_stages[0], given=True) for each in sorted(late)
    )
    return replace(
        plan,
        buffers=(*plan.buffers, *buffers),
        operations=(*(Allocate(each, 0, Phase.FORWARD) for each in ids), *plan.operations, *map(Release, ids)),
    )


def first_products(plan: TrainingPlan) -> dict[int, int]:
    """Return the position of the first product of each workspace of cuBLAS in a plan."""
    late = _first_products(plan)
    names = {_NAMES[each]: position for each, position in late.items()}
    return {number: names[each.name] for number, each in enumerate(plan.buffers) if each.name in names}


def cublas_bytes(workload: CapturedWorkload, granule_bytes: int) -> int:
    capability = workload.captured.compute_capability
    return 0 if capability is None else len(_NAMES) * round_up(cublas_workspace_bytes(capability), granule_bytes)


def _first_products(plan: TrainingPlan) -> dict[bool, int]:
    """Return the position of the first product of each thread, by whether it is backward's."""
    step, found = plan.workload.step, dict[bool, int]()
    for position, each in enumerate(plan.operations):
        if not isinstance(each, Compute):
            continue
        if isinstance(step.operations_of(each.layer, each.phase)[each.operation].work, ProductWork):
            found.setdefault(each.phase.is_backward or each.repeat > 0, position)
            if len(found) == len(_NAMES):
                break
    return found
