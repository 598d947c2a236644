"""`geeps`: a double-buffered GPU pool, with all local data in host memory (Cui et al., EuroSys 2016).

GeePS lets layers access maps, gradient maps and other data that they keep, its "local data", through buffers of a pool
on the GPU. A first iteration records the data of each access. While one access computes, the data of the next are
prefetched into the other half of the pool, and those that the last one changed are offloaded. Source: GeePS: Scalable
Deep Learning on Distributed GPUs with a GPU-Specialized Parameter Server, 3.3; the Layrub paper, 5.3.1, measures it
with a pool twice as large as the activation data that a layer needs.

Assumptions:

- An access is forward or backward of one layer. Half the pool is as large as the data of the largest access, and the
  pool is held throughout: its unused rest is a buffer of its own.
- GeePS keeps on the GPU what fits beside the pool. Here no local data stay, as in the Layrub paper's comparison;
  parameters and workspaces lie beside the pool.
- Data that one of the next two accesses reads stay in the pool. Other data are offloaded if their copy on the host is
  stale, beside the next access; the one after that waits for the copy, and so does an access without room. Dead data
  are not copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import (
    Allocate,
    Offload,
    Prefetch,
    Release,
    Run,
    ScheduleStep,
    Wait,
    backward_layers,
    backward_of,
    forward,
    update,
)
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting


class GeePS(ByRule, frozen=True, kw_only=True):
    """Copy the data of each access into a pool of two halves."""

    name: ClassVar[str] = "geeps"
    summary: ClassVar[str] = "a double-buffered pool, all local data on the host (GeePS, Cui et al. 2016)"
    only_built: ClassVar[str] = "manages the local data of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        walk = _Walk(setting.workload, setting.limits.granule_bytes)
        walk.walk()
        return self.lowered(setting, walk.steps, buffers=walk.buffers)


@dataclass(frozen=True, slots=True)
class _Access:
    """Forward or backward of a layer.

    Attributes:
        touched: local data that it reads or writes.
        needed: those that it reads before it writes them.
        written: those that it writes.
    """

    runs: Sequence[Run]
    touched: tuple[int, ...]
    needed: frozenset[int]
    written: frozenset[int]


class _Walk:
    """Writes the `steps` of an iteration, access by access; `buffers` include the unused rests of the pool."""

    def __init__(self, workload: Workload, granule_bytes: int) -> None:
        self.steps: list[ScheduleStep] = []
        self.buffers = IterationBuffers(workload)
        self._workload = workload
        self._granule_bytes = granule_bytes
        self._throughout = {buffer for buffer, _ in self.buffers.held(with_statistics=False)}
        self._accesses = [self._access_of([run]) for run in forward(workload)]
        self._accesses += [self._access_of(backward_of(layer)) for layer in backward_layers(workload)]
        self._next_readers = _next_readers(self._accesses)
        self._pool_bytes = 2 * max(self._size_bytes(access.touched) for access in self._accesses)
        # Local data on the GPU; those being offloaded, oldest first, with their last access; those being prefetched;
        # and those of which the host has a valid copy.
        self._held: set[int] = set()
        self._offloading: dict[int, int] = {}
        self._prefetching: set[int] = set()
        self._on_host: set[int] = set()

    def walk(self) -> None:
        for number in range(len(self._accesses)):
            self._access(number)
        self.steps += update(self._workload)

    def _access_of(self, runs: Sequence[Run]) -> _Access:
        touched: dict[int, None] = {}
        needed: set[int] = set()
        written: set[int] = set()
        for run in runs:
            reads, writes = self.buffers.touched(run)
            needed.update(buffer for buffer in reads if buffer not in written)
            written.update(writes)
            touched |= dict.fromkeys(reads + writes)
        local = tuple(buffer for buffer in touched if buffer not in self._throughout)
        return _Access(runs, local, frozenset(needed.intersection(local)), frozenset(written))

    def _access(self, number: int) -> None:
        access, first = self._accesses[number], self._accesses[number].runs[0]
        following = self._accesses[number + 1] if number + 1 < len(self._accesses) else None
        for buffer, done_with in list(self._offloading.items()):
            if done_with < number - 1:
                self._release(buffer)
        own = [buffer for buffer in access.touched if buffer not in self._held]
        ahead = [] if following is None else [b for b in following.touched if b in following.needed - self._held]
        arriving = [buffer for buffer in ahead if buffer not in own]
        self._make_room(self._size_bytes(own + arriving))
        self.steps.append(Allocate((*own, *arriving), first.layer, first.phase))
        self._held.update(own + arriving)
        if arriving:
            self.steps.append(Prefetch(tuple(arriving), first.layer, first.phase, on_demand=False, keeps_copy=True))
        rest = self._rest(first)
        if rest:
            self.steps.append(Allocate(rest, first.layer, first.phase))
        self.steps += [Wait((buffer,)) for buffer in access.touched if buffer in self._prefetching]
        self._prefetching = (self._prefetching - {*access.touched}) | {*arriving}
        self.steps += access.runs
        self._on_host -= access.written
        if rest:
            self.steps.append(Release(rest))
        self._evict(number)

    def _rest(self, run: Run) -> tuple[int, ...]:
        """Return a buffer for the unused rest of the pool, if any."""
        rest_bytes = self._pool_bytes - self._size_bytes(self._held)
        rest = Buffer("rest of the pool", BufferKind.FEATURE_MAP, rest_bytes, run.layer.stage)
        return (self.buffers.add(rest),) if rest_bytes else ()

    def _evict(self, number: int) -> None:
        """After an access, release or offload what neither of the next two accesses reads."""
        access = self._accesses[number]
        unchanged, changed = [], []
        for buffer in access.touched:
            following = self._next_readers[number].get(buffer)
            if following is None or (following > number + 2 and buffer in self._on_host):
                unchanged.append(buffer)
            elif following > number + 2:
                changed.append(buffer)
        if unchanged:
            self.steps.append(Release(tuple(unchanged)))
            self._held.difference_update(unchanged)
        if changed:
            last = access.runs[-1]
            self.steps.append(Offload(tuple(changed), last.layer, last.phase))
            self._offloading |= dict.fromkeys(changed, number)
            self._on_host.update(changed)

    def _make_room(self, needed_bytes: int) -> None:
        while self._offloading and self._size_bytes(self._held) + needed_bytes > self._pool_bytes:
            self._release(next(iter(self._offloading)))

    def _release(self, buffer: int) -> None:
        self.steps.append(Wait((buffer,)))
        del self._offloading[buffer]
        self._held.remove(buffer)

    def _size_bytes(self, buffers: Iterable[int]) -> int:
        return sum(round_up(self.buffers.nbytes(buffer), self._granule_bytes) for buffer in buffers)


def _next_readers(accesses: Sequence[_Access]) -> list[dict[int, int]]:
    """Return for each access the next reader of each of its data, if any, before it is overwritten."""
    readers: list[dict[int, int]] = []
    next_reader: dict[int, int] = {}
    for number, access in reversed(list(enumerate(accesses))):
        readers.append({buffer: next_reader[buffer] for buffer in access.touched if buffer in next_reader})
        for buffer in access.touched:
            if buffer in access.needed:
                next_reader[buffer] = number
            else:
                next_reader.pop(buffer, None)
    return readers[::-1]
