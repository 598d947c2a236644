"""Gradient buckets of PyTorch's DistributedDataParallel (DDP), and the memory that they take.

Gradients go into buckets in the order in which they become ready. The first bucket is closed when it holds 1 MiB, each
later one when it holds 25 MiB, so that a large gradient makes a bucket larger than that; what is left is the last.

Source: pytorch/pytorch, torch/csrc/distributed/c10d/reducer.cpp at ad78a7b33a496f60c756927a4fcd8e3e8fc1aee6,
`compute_bucket_assignment_by_size` and `Reducer::rebuild_buckets`, which gives it the order of the first backward, the
reverse of the model's where it is a chain; the sizes are the defaults of torch/nn/parallel/distributed.py at
25562d3d418774598bd22d0fae875897a96a917b, `_DEFAULT_FIRST_BUCKET_BYTES` and `bucket_cap_mb`.

Assumptions:

- Iterations are those after the first, once buckets are rebuilt.
- Weight and bias of a layer are one gradient here and two in PyTorch, so that buckets may differ by a bias. A gradient
  that several layers share is ready when the last of them has written it.
- A policy that reads, offloads or releases a gradient before its bucket is full closes the bucket.
- By default buckets are a second copy of the gradients, allocated before the first kernel and held throughout. The
  copies into them and back run on the communication stream, in PyTorch on the stream of backward.
- As views of buckets (`gradient_as_bucket_view`) gradients are held throughout, dropped or not; a kernel of backward
  computes into memory of its own, which is copied into the bucket and freed.
- `broadcast_buffers`, which sends the statistics of batch normalizations before every forward, is left out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.operations import Allocate, AllReduce, Compute, Operation, Release
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan

FIRST_BUCKET_BYTES: Final = 2**20
BUCKET_BYTES: Final = 25 * 2**20

Exchanges = Mapping[int, Sequence[tuple[int, ...]]]
"""Groups of buffers, by the position of the operation after which each is exchanged."""


class Buckets:
    """Puts gradients into buckets as they become ready."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._nbytes = [buffer.nbytes for buffer in plan.buffers]
        self._closed: dict[int, list[tuple[int, ...]]] = {}
        self._open: list[int] = []
        self._last_ready = 0
        self._limit_bytes = FIRST_BUCKET_BYTES

    def add(self, gradient: int, position: int) -> None:
        """Put in a gradient that is ready after the operation at a position."""
        self._open.append(gradient)
        self._last_ready = position
        if sum(self._nbytes[each] for each in self._open) >= self._limit_bytes:
            self._close()

    def give_up(self, buffers: Collection[int]) -> None:
        """Close the open bucket if it holds one of these buffers, whose sums are needed now."""
        if not set(self._open).isdisjoint(buffers):
            self._close()

    def finish(self) -> Exchanges:
        """Close the last bucket and return all of them, each after its last gradient."""
        if self._open:
            self._close()
        return self._closed

    def _close(self) -> None:
        self._closed.setdefault(self._last_ready, []).append(tuple(self._open))
        self._open = []
        self._limit_bytes = BUCKET_BYTES


def with_bucket_memory(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan with a buffer for each bucket that it exchanges, owned by the layer that completes it."""
    exchanges = [each for each in plan.operations if isinstance(each, AllReduce)]
    ids = range(len(plan.buffers), len(plan.buffers) + len(exchanges))
    buffers = (
        Buffer(
            f"bucket {number} of gradients",
            BufferKind.WEIGHT_GRADIENT,
            sum(plan.buffers[gradient].nbytes for gradient in each.buffers),
            plan.layer_stages[each.layer],
        )
        for number, each in enumerate(exchanges, start=1)
    )
    begin = (Allocate(bucket, each.layer, Phase.FORWARD) for bucket, each in zip(ids, exchanges, strict=True))
    end = (Release(bucket) for bucket in ids)
    return replace(plan, buffers=(*plan.buffers, *buffers), operations=(*begin, *plan.operations, *end))


def with_bucket_views(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan whose gradients are views of buckets, and so live throughout."""
    exchanges = (each for each in plan.operations if isinstance(each, AllReduce))
    return with_kept(plan, {gradient for each in exchanges for gradient in each.buffers})


def bucket_bytes(workload: Workload, granule_bytes: int) -> int:
    """Return an upper bound of the memory of a workload's buckets, rounded to granules: one bucket for each gradient.

    Memory models that count blocks, segments or regions may take more, which only trials and the placement show.
    """
    owners = (layer for layer in workload.graph.layers if layer.parameters)
    return sum(round_up(workload.weight_bytes(layer), granule_bytes) for layer in owners)


def with_kept_gradients(plan: TrainingPlan) -> TrainingPlan:
    """Return a plan that keeps all weight gradients: `zero_grad(set_to_none=False)`."""
    kept = {number for number, each in enumerate(plan.buffers) if each.kind is BufferKind.WEIGHT_GRADIENT}
    return with_kept(plan, kept)


def with_kept(plan: TrainingPlan, gradients: Collection[int]) -> TrainingPlan:
    """Return a plan that holds gradients throughout.

    A kernel of backward computes into memory of its own, which is accumulated or copied, in no time here, and freed.
    """
    head = {each.buffer for each in plan.operations[: leading_operations(plan)] if isinstance(each, Allocate)}
    wanted = set(gradients) - head
    taken = [each for each in plan.operations if isinstance(each, Allocate) and each.buffer in wanted]
    computed = {each.buffer: number for number, each in enumerate(taken, start=len(plan.buffers))}
    last_write = {
        buffer: position
        for position, each in enumerate(plan.operations)
        if isinstance(each, Compute)
        for buffer in each.writes
        if buffer in computed
    }
    written = dict[int, list[int]]()
    for buffer, position in last_write.items():
        written.setdefault(position, []).append(computed[buffer])
    operations: list[Operation] = [Allocate(each.buffer, each.layer, Phase.FORWARD) for each in taken]
    for position, each in enumerate(plan.operations):
        if isinstance(each, Allocate) and each.buffer in computed:
            operations.append(Allocate(computed[each.buffer], each.layer, each.phase))
        elif not (isinstance(each, Release) and each.buffer in computed):
            operations.append(each)
        operations += map(Release, written.get(position, ()))
    buffers = [replace(each, given=True) if number in computed else each for number, each in enumerate(plan.buffers)]
    for each in taken:
        old = plan.buffers[each.buffer]
        buffers.append(Buffer(f"{old.name}, computed", BufferKind.WEIGHT_GRADIENT, old.nbytes, old.stage))
    return replace(plan, buffers=tuple(buffers), operations=(*operations, *(Release(each.buffer) for each in taken)))
