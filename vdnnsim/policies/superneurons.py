"""`superneurons`: liveness, a tensor cache, and recomputation of what is cheap (Wang et al., PPoPP 2018).

SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural Networks, section 3, and its code
(linnanwang/superneurons-release). Three techniques reduce the peak to the largest working set of a layer, and a fourth
spends the rest of the memory:

- liveness analysis (3.2): everything is freed after its last reader;
- the unified tensor pool (3.3): maps of CONV layers are offloaded and prefetched, through a cache that copies only when
  memory is short, the least recently used first;
- cost-aware recomputation (3.4) of POOL, ACTV, LRN, BN and dropout layers;
- for each kernel the fastest algorithm whose workspace fits into the rest (3.5).

Assumptions: recomputation is always on, a build option of the code; so an iteration takes longer than without it even
where all fits. All maps that are not recomputed and the input may be offloaded, as the code treats FC, join and concat
like CONV. An in-place activation belongs to its layer, and that of a CONV layer is not recomputed. A prefetch frees the
copy on the host. The cache counts bytes: under a memory model with addresses fragmentation may leave less room.

Recomputation (3.4): maps of cheap layers are released after their last reader in forward and recomputed for backward
from the maps around them. A segment is a connected set of them. Where all its maps take no more than the largest
working set of a backward, l_peak, it is recomputed once (speed-centric), otherwise once for each layer that reads one
of its maps (memory-centric). So the peak stays at l_peak, and little is computed more than twice.

The cache (3.3.2) and the choice of algorithms (3.5): missing operands of a kernel are allocated or prefetched; where
memory is short, the least recently used maps are offloaded first. While a CONV layer runs in backward, the next map on
the host that is read before the CONV layer below has run is prefetched, if it fits (3.3.1). Each kernel then takes the
fastest of its algorithms whose workspace fits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import lifetimes
from vdnnsim.plans.liveness import maps_touched
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.schedule import (
    Offload,
    Prefetch,
    Run,
    ScheduleStep,
    Wait,
    backward_layers,
    backward_of,
    forward,
    update,
)
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import fastest_within
from vdnnsim.policies.interface import DecidedBy, Policy, Setting

CHEAP: Final = frozenset(
    {LayerKind.POOL, LayerKind.ACTV, LayerKind.BN, LayerKind.LRN, LayerKind.DROPOUT, LayerKind.LN, LayerKind.PRODUCT}
)
"""The paper's POOL, ACT, LRN, BN and dropout, and LN and products, which it does not have.

The others are not recomputed: joins and forks because its code ends segments there, the rest for their cost.
"""


class SuperNeurons(Policy, frozen=True, kw_only=True):
    """Recompute cheap layers, offload what does not fit, and spend the rest on workspaces."""

    name: ClassVar[str] = "superneurons"
    summary: ClassVar[str] = (
        "recomputes cheap layers, caches the other maps, workspace from the rest (Wang et al. 2018)"
    )
    only_built: ClassVar[str] = "recomputes and caches by the kinds of layers of its paper"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        runs = forward(workload) + backward_with_recomputation(workload) + update(workload)
        cached = frozenset(range(len(workload.graph.maps))) - recomputed_maps(workload)
        cache = TensorCache(workload, setting.costs, setting.limits, cached)
        cache.walk(runs)
        return lower(cache.steps, workload, cache.kernels, label=self.label, algorithms="what is left")


class TensorCache:
    """Writes the schedule of an iteration.

    Attributes:
        steps: the runs and the copies between them.
        kernels: the algorithm of each; of a recomputed kernel the one with the least workspace.
    """

    def __init__(self, workload: Workload, costs: CostTable, limits: MemoryLimits, cached: frozenset[int]) -> None:
        """Allow only the cached maps, by index, to be offloaded."""
        self._costs = costs
        self._limits = limits
        self._buffers = IterationBuffers(workload)
        self._cached = {self._buffers.maps[index] for index in cached}
        self._held = frozenset(buffer for buffer, _ in self._buffers.held(with_statistics=False))
        self._in_use_bytes = sum(self._size_bytes(each) for each in (*self._held, self._buffers.maps[0]))
        # Cached maps on the GPU, the least recently used first, and those on the host.
        self._recent: dict[int, None] = {}
        self._away: set[int] = set()
        self.steps: list[ScheduleStep] = []
        self.kernels: dict[tuple[int, Phase], KernelCost] = {}

    def walk(self, runs: Sequence[Run]) -> None:
        lived = lifetimes(runs, self._buffers, self._held)
        for position, run in enumerate(runs):
            reads, writes = self._buffers.touched(run)
            missing = [buffer for buffer in dict.fromkeys(reads) if buffer in self._away]
            least = self._costs.memory_optimal(run.layer.index, run.phase)
            needed_bytes = sum(self._size_bytes(buffer) for buffer in lived.begins[position] + missing)
            self._make_room(needed_bytes + self._rounded(least.workspace_bytes), run, {*reads, *writes})
            for buffer in missing:
                self._fetch(buffer, run, on_demand=True)
            self._in_use_bytes += sum(self._size_bytes(buffer) for buffer in lived.begins[position])
            self._prefetch(runs, position, self._rounded(least.workspace_bytes))
            self._choose(run)
            self.steps.append(run)
            for buffer in dict.fromkeys(reads + writes):
                if buffer in self._cached:
                    self._recent.pop(buffer, None)
                    self._recent[buffer] = None
            for buffer in lived.ends[position]:
                self._recent.pop(buffer, None)
                self._in_use_bytes -= self._size_bytes(buffer)

    @property
    def _free_bytes(self) -> int:
        return self._limits.device_bytes - self._in_use_bytes

    def _make_room(self, needed_bytes: int, run: Run, operands: set[int]) -> None:
        for buffer in tuple(self._recent):
            if self._free_bytes >= needed_bytes:
                return
            if buffer not in operands:
                self.steps += [Offload((buffer,), run.layer, run.phase), Wait((buffer,))]
                del self._recent[buffer]
                self._away.add(buffer)
                self._in_use_bytes -= self._size_bytes(buffer)

    def _fetch(self, buffer: int, run: Run, *, on_demand: bool) -> None:
        self.steps.append(Prefetch((buffer,), run.layer, run.phase, on_demand))
        self._away.remove(buffer)
        self._recent[buffer] = None
        self._in_use_bytes += self._size_bytes(buffer)

    def _prefetch(self, runs: Sequence[Run], position: int, reserved_bytes: int) -> None:
        """Prefetch, with the first kernel of backward of a CONV layer, the next map that is read, if it fits."""
        run = runs[position]
        if run.layer.kind is LayerKind.CONV and run.phase is run.layer.backward_phases[0]:
            wanted = next(self._wanted_after(runs, position), None)
            if wanted is not None and self._size_bytes(wanted) + reserved_bytes <= self._free_bytes:
                self._fetch(wanted, run, on_demand=False)

    def _wanted_after(self, runs: Sequence[Run], position: int) -> Iterator[int]:
        """Yield maps on the host that are read up to the CONV layer below, that included."""
        below = None
        for index in range(position + 1, len(runs)):
            layer = runs[index].layer
            if below is not None and layer is not below:
                return
            if layer.kind is LayerKind.CONV and layer is not runs[position].layer:
                below = layer
            yield from (buffer for buffer in self._buffers.touched(runs[index])[0] if buffer in self._away)

    def _choose(self, run: Run) -> None:
        free_bytes = self._free_bytes // self._limits.granule_bytes * self._limits.granule_bytes
        chosen = fastest_within(self._costs, run.layer.index, run.phase, free_bytes)
        before = self.kernels.get((run.layer.index, run.phase), chosen)
        self.kernels[run.layer.index, run.phase] = min(before, chosen, key=lambda kernel: kernel.workspace_bytes)

    def _size_bytes(self, buffer: int) -> int:
        return self._rounded(self._buffers.nbytes(buffer))

    def _rounded(self, nbytes: int) -> int:
        return round_up(nbytes, self._limits.granule_bytes)


def recomputed_maps(workload: Workload) -> frozenset[int]:
    """Return the maps that a cheap layer writes and another reads."""
    layers = workload.graph.layers
    return frozenset(
        each.index
        for each in workload.graph.maps
        if each.producer is not None and each.consumers and layers[each.producer].kind in CHEAP
    )


def largest_backward_bytes(workload: Workload) -> int:
    """Return l_peak: the maps and gradients of the kernel of backward that touches most of them."""
    return max(
        sum(
            workload.map_bytes(index)
            for touched in (maps_touched(workload, layer, phase),)
            for indices in (
                {*touched.maps_read, *touched.maps_written},
                {*touched.gradients_read, *touched.gradients_written},
            )
            for index in indices
        )
        for layer in workload.graph.layers
        for phase in layer.backward_phases
    )


def backward_with_recomputation(workload: Workload) -> list[Run]:
    """Return backward of all layers, and before each its recomputations; nothing in inference."""
    return _Recomputation(workload).runs() if workload.is_training else []


class _Recomputation:
    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._layers = workload.graph.layers
        self._maps = workload.graph.maps
        self._dropped = recomputed_maps(workload)
        self._segment_of = self._segments()
        limit_bytes = largest_backward_bytes(workload)
        sizes: Counter[int] = Counter()
        for index in self._dropped:
            sizes[self._segment_of[index]] += workload.map_bytes(index)
        self._small = {segment for segment, nbytes in sizes.items() if nbytes <= limit_bytes}
        # Live recomputed maps of small segments.
        self._held: set[int] = set()
        self._times: Counter[int] = Counter()

    def runs(self) -> list[Run]:
        runs: list[Run] = []
        for layer in backward_layers(self._workload):
            missing = self._dropped.intersection(layer.saved_maps) - self._held
            if missing:
                runs += self._recompute(missing, layer)
            runs += backward_of(layer)
        return runs

    def _segments(self) -> dict[int, int]:
        segment_of: dict[int, int] = {}
        for index in sorted(self._dropped):
            below = [segment_of[x] for x in self._layers[self._writers_of(index)[0]].inputs if x in segment_of]
            segment_of[index] = min(below, default=index)
            joined = dict.fromkeys(below, segment_of[index])
            segment_of |= {each: joined[number] for each, number in segment_of.items() if number in joined}
        return segment_of

    def _writers_of(self, index: int) -> tuple[int, ...]:
        """Return the layers that write a map, rewriters in place included."""
        producer = self._maps[index].producer
        assert producer is not None, "a layer writes it"
        return (producer, *self._maps[index].rewriters)

    def _recompute(self, missing: set[int] | frozenset[int], layer: Layer) -> list[Run]:
        wanted = set(missing)
        for segment in {self._segment_of[index] for index in missing} & self._small:
            wanted.update(
                index
                for index in self._dropped - self._held
                if self._segment_of[index] == segment
                and any(reader <= layer.index for reader in self._maps[index].saved_for)
            )
        again: list[Layer] = []
        pending = set(wanted)
        index = max(self._writers_of(each)[-1] for each in wanted)
        while pending:
            each = self._layers[index]
            index -= 1
            if each.output not in wanted:
                continue
            again.append(each)
            if not each.in_place:
                pending.remove(each.output)
                below = self._dropped.intersection(each.inputs) - self._held - wanted
                wanted |= below
                pending |= below
        self._held.update(index for index in wanted if self._segment_of[index] in self._small)
        for each in again:
            self._times[each.index] += 1
        return [Run(each, Phase.FORWARD, repeat=self._times[each.index]) for each in reversed(again)]
