"""`geeps`: a double-buffered GPU pool, with all local data in host memory (Cui et al., EuroSys 2016).

GeePS lets layers access maps, gradient maps and what else they keep between their passes, its "local data", through
buffers of a pool on the GPU. It knows from a first iteration which data each access touches. While one access computes,
the data of the next are copied into the other half of the pool, and what the one before has changed is copied out of
it. Source: GeePS: Scalable Deep Learning on Distributed GPUs with a GPU-Specialized Parameter Server, 3.3; the Layrub
paper, 5.3.1, measures it with a pool twice as large as the activation data that a layer needs.

What is read into it:

- An access is forward or backward of one layer. Half the pool is as large as the data of the largest access, and the
  pool is held throughout: what no access uses at a time is a buffer of its own.
- GeePS keeps on the GPU what finds room beside the pool, from iteration to iteration. Here no local data stay, which is
  how the Layrub paper compares it; parameters, which are its parameter cache, and workspaces lie beside the pool.
- Data that the next access or the one after it reads stay in the pool. Other data leave if their copy on the host is
  stale, beside the access that follows; the one behind that waits until they have left, and so does an access that
  finds no room before. What nobody reads again is not copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import Algorithms, KernelChoice, choose_kernels
from vdnnsim.policies.buffers import IterationBuffers
from vdnnsim.policies.port import Policy, Setting


class GeePS(Policy, frozen=True, kw_only=True):
    """Copy what each access needs into a pool of two halves."""

    name: ClassVar[str] = "geeps"
    summary: ClassVar[str] = "a double-buffered pool, all local data on the host (GeePS, Cui et al. 2016)"

    algorithms: Algorithms = Algorithms.PERFORMANCE_OPTIMAL

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
        kernels = choose_kernels(setting.workload, setting.costs, self.algorithms)
        writer = _PoolWriter(setting.workload, kernels, setting.limits.granule_bytes)
        writer.write()
        return writer.plan.finish(self.label, self.algorithms.value)


@dataclass(frozen=True, slots=True)
class _Access:
    """Forward or backward of a layer.

    Attributes:
        touched: the local data that it reads or writes.
        needed: those whose content it reads before it writes them.
        written: those that it changes.
    """

    layer: Layer
    phases: Sequence[Phase]
    touched: tuple[int, ...]
    needed: frozenset[int]
    written: frozenset[int]


class _PoolWriter:
    def __init__(self, workload: Workload, kernels: KernelChoice, granule_bytes: int) -> None:
        self.plan = PlanWriter(workload)
        self._workload = workload
        self._kernels = kernels
        self._granule_bytes = granule_bytes
        self._buffers = IterationBuffers(self.plan, workload)
        training = workload.mode is Mode.TRAINING
        self._throughout = {
            buffer: owner
            for buffer, owner in self._buffers.resident
            if not training or self.plan.kind(buffer) is not BufferKind.STATISTICS
        }
        self._accesses = self._all_accesses()
        self._next_readers = _next_readers(self._accesses)
        self._pool_bytes = 2 * max(self._size_bytes(access.touched) for access in self._accesses)
        # Local data on the GPU; those on their way to the host, oldest first, with the access that is done with them
        # and the event that marks the end of the copy; and the events that mark the end of copies back.
        self._held: set[int] = set()
        self._leaving: dict[int, tuple[int, int]] = {}
        self._coming: dict[int, int] = {}
        self._on_host: set[int] = set()

    def write(self) -> None:
        """Write the whole iteration."""
        for buffer, owner in self._throughout.items():
            self.plan.allocate(buffer, owner, Phase.FORWARD)
        for number in range(len(self._accesses)):
            self._access(number)
        for layer in self._workload.updated_layers:
            self._kernel(layer, Phase.UPDATE)
        for buffer in self._throughout:
            self.plan.release(buffer)

    def _all_accesses(self) -> list[_Access]:
        layers = self._workload.graph.layers
        passes = [self._access_of(layer, (Phase.FORWARD,)) for layer in layers]
        if self._workload.mode is Mode.TRAINING:
            passes += [
                self._access_of(layer, layer.backward_phases) for layer in reversed(layers) if layer.backward_phases
            ]
        return passes

    def _access_of(self, layer: Layer, phases: Sequence[Phase]) -> _Access:
        touched: dict[int, None] = {}
        needed: set[int] = set()
        written: set[int] = set()
        for phase in phases:
            reads, writes = self._buffers.touched(layer, phase)
            needed.update(buffer for buffer in reads if buffer not in written)
            written.update(writes)
            touched |= dict.fromkeys(reads + writes)
        local = tuple(buffer for buffer in touched if buffer not in self._throughout)
        return _Access(layer, phases, local, frozenset(needed.intersection(local)), frozenset(written))

    def _access(self, number: int) -> None:
        access, layer = self._accesses[number], self._accesses[number].layer
        following = self._accesses[number + 1] if number + 1 < len(self._accesses) else None
        for buffer, (done_with, _) in list(self._leaving.items()):
            if done_with < number - 1:
                self._give_back(buffer)
        own = [buffer for buffer in access.touched if buffer not in self._held]
        ahead = [] if following is None else [b for b in following.touched if self._is_away(b, following)]
        arriving = [buffer for buffer in ahead if buffer not in own]
        self._make_room(self._size_bytes(own + arriving))
        for buffer in own + arriving:
            self.plan.allocate(buffer, layer.index, access.phases[0])
            self._held.add(buffer)
        self._fetch(arriving, layer)
        rest = self._allocate_rest(access)
        for buffer in access.touched:
            if buffer in self._coming:
                self.plan.wait(self._coming.pop(buffer), Stream.COMPUTE)
        for phase in access.phases:
            self._kernel(layer, phase)
        self._on_host -= access.written
        if rest is not None:
            self.plan.release(rest)
        self._leave(number)

    def _allocate_rest(self, access: _Access) -> int | None:
        rest_bytes = self._pool_bytes - self._size_bytes(self._held)
        if not rest_bytes:
            return None
        rest = self.plan.buffer("rest of the pool", BufferKind.FEATURE_MAP, rest_bytes, access.layer.stage)
        self.plan.allocate(rest, access.layer.index, access.phases[0])
        return rest

    def _is_away(self, buffer: int, access: _Access) -> bool:
        return buffer in access.needed and buffer not in self._held

    def _fetch(self, arriving: list[int], layer: Layer) -> None:
        if not arriving:
            return
        self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
        for buffer in arriving:
            self.plan.prefetch(buffer, layer.index, on_demand=False, keeps_copy=True)
            self._coming[buffer] = self.plan.record(Stream.MEMORY)

    def _leave(self, number: int) -> None:
        """After an access, let go of what neither of the next two accesses reads."""
        access = self._accesses[number]
        changed = []
        for buffer in access.touched:
            following = self._next_readers[number].get(buffer)
            if following is not None and following <= number + 2:
                continue
            if following is None or buffer in self._on_host:
                self.plan.release(buffer)
                self._held.remove(buffer)
            else:
                changed.append(buffer)
        if changed:
            self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
            for buffer in changed:
                self.plan.offload(buffer, access.layer.index, access.phases[-1])
                self._leaving[buffer] = number, self.plan.record(Stream.MEMORY)
                self._on_host.add(buffer)

    def _make_room(self, needed_bytes: int) -> None:
        while self._leaving and self._size_bytes(self._held) + needed_bytes > self._pool_bytes:
            self._give_back(next(iter(self._leaving)))

    def _give_back(self, buffer: int) -> None:
        self.plan.wait(self._leaving.pop(buffer)[1], Stream.COMPUTE)
        self.plan.release(buffer)
        self._held.remove(buffer)

    def _kernel(self, layer: Layer, phase: Phase) -> None:
        self._buffers.compute_with_workspace(layer, phase, self._kernels[layer.index, phase])

    def _size_bytes(self, buffers: Iterable[int]) -> int:
        return sum(round_up(self.plan.nbytes(buffer), self._granule_bytes) for buffer in buffers)


def _next_readers(accesses: Sequence[_Access]) -> list[dict[int, int]]:
    """Return for each access the next one that reads what its data then hold; those written anew have none."""
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
