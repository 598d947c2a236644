"""When each map and gradient is on the GPU under Layrub, and what lies over what; steps instead of seconds.

A step is forward of a layer, by its index, or backward of a layer that has one, in their order behind forward.

Fixed regions of memory are shared by stays of buffers: Layrub (3.3) selects "two pairs or more of the largest memory
spaces" before training begins. How is read from its source: each buffer takes the first region that is free, which
grows to hold it, or a new one where none is (github.com/CGCL-codes/Layrub at 0657919, src/caffe/net.cpp,
getMemoryBlock).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.liveness import last_forward_use, maps_touched, needed_in_backward
from vdnnsim.plans.schedule import backward_layers

_IN_PLACE = (LayerKind.BN, LayerKind.POOL)
"""Kinds whose kernel may write dX over the X that it reads; LRN may not (5.2.3)."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """Which memory is reused.

    Attributes:
        within_layers: gradients lie over their maps where nobody reads these any more, for rectifiers read records in
            the place of their maps; weight gradients are computed before data gradients.
        between_layers: maps leave with their last reader in forward, and come back a step before the first in backward.
    """

    within_layers: bool
    between_layers: bool


@dataclass(frozen=True, slots=True)
class Stay:
    """A buffer on the GPU from one step of an iteration to another, both included; None for a space kept free."""

    buffer: int | None
    nbytes: int
    first: int
    last: int

    def of_buffer(self, buffer: int) -> "Stay":
        """Return the stay with its buffer."""
        return replace(self, buffer=buffer)


@dataclass(frozen=True, slots=True)
class Regions:
    """Regions and who lies where.

    Attributes:
        sizes: bytes of each region.
        region_of: the region of each stay, in the order in which they were given.
    """

    sizes: tuple[int, ...]
    region_of: tuple[int, ...]


def share_regions(stays: Iterable[Stay]) -> Regions:
    """Lay out stays; those that begin with the same step take their regions in the order given."""
    numbered = sorted(enumerate(stays), key=lambda each: each[1].first)
    sizes: list[int] = []
    busy_until: list[int] = []
    region_of: dict[int, int] = {}
    for number, stay in numbered:
        region = next((i for i, until in enumerate(busy_until) if until < stay.first), len(sizes))
        if region == len(sizes):
            sizes.append(0)
            busy_until.append(-1)
        sizes[region] = max(sizes[region], stay.nbytes)
        busy_until[region] = stay.last
        region_of[number] = region
    return Regions(tuple(sizes), tuple(region_of[number] for number in range(len(region_of))))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where maps and gradients stay.

    Attributes:
        map_stays: by index of the map.
        gradient_stays: likewise, of the gradients that do not lie over their map.
        split_stays: of the further diffs that Caffe has for a map of several readers, until they are summed; a plan,
            whose kernels add to one gradient, has no buffers for them.
        offloads: by layer, the maps that leave with its forward.
        prefetches: by step, the maps that come back beside it.
        over_maps: by kernel that is the first to write them, the gradients that lie over their map from then on.
        gradients_over_maps_ending: by step, those of them that end with it.
    """

    reuse: Reuse
    map_stays: list[tuple[int, Stay]] = field(default_factory=list)
    gradient_stays: list[tuple[int, Stay]] = field(default_factory=list)
    split_stays: list[Stay] = field(default_factory=list)
    offloads: dict[int, list[int]] = field(default_factory=dict)
    prefetches: dict[int, list[int]] = field(default_factory=dict)
    over_maps: dict[tuple[int, Phase], list[int]] = field(default_factory=dict)
    gradients_over_maps_ending: dict[int, list[int]] = field(default_factory=dict)

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        """Return the phases of backward of a layer in their order."""
        return tuple(reversed(layer.backward_phases)) if self.reuse.within_layers else layer.backward_phases


def lay_out(workload: Workload, reuse: Reuse) -> Layout:
    """Lay out an iteration."""
    builder = _Builder(workload, reuse)
    for each in workload.graph.maps:
        builder.add(each)
    return builder.layout


class _Builder:
    def __init__(self, workload: Workload, reuse: Reuse) -> None:
        self.layout = Layout(reuse)
        self._workload, self._reuse = workload, reuse
        self._layers = workload.graph.layers
        self._step_of = {
            layer.index: step for step, layer in enumerate(backward_layers(workload), start=len(self._layers))
        }
        # By layer, the step after which nobody behind it, nor itself, runs backward any more.
        behind = accumulate((self._step_of.get(layer.index, 0) for layer in reversed(self._layers)), max)
        self._end_of = list(reversed(list(behind)))

    def add(self, each: FeatureMap) -> None:
        """Say where a map and its gradient stay."""
        first, last_forward = each.producer or 0, last_forward_use(each)
        readers = self._readers(each)
        last = self._step_of[min(readers)] if readers else last_forward
        # What the very first backward reads does not leave: it would have to be back at once.
        if self._reuse.between_layers and readers and self._step_of[max(readers)] > len(self._layers):
            fetch = self._step_of[max(readers)] - 1
            self._stay(self.layout.map_stays, each, first, last_forward)
            self.layout.offloads.setdefault(last_forward, []).append(each.index)
            self.layout.prefetches.setdefault(fetch, []).append(each.index)
            first = fetch
        if each.needs_gradient and self._workload.mode is Mode.TRAINING:
            last = self._add_gradient(each, readers, last)
        self._stay(self.layout.map_stays, each, first, last)

    def _add_gradient(self, each: FeatureMap, readers: list[int], last: int) -> int:
        """Say where a gradient stays; return until when its map does, longer where the gradient lies over it."""
        writer, phase = self._first_writer(each)
        assert each.producer is not None, "the input batch has no gradient"
        writers = [self._step_of[index] for index in reversed(each.consumers)]
        nbytes = self._workload.map_bytes(each.index)
        self.layout.split_stays.extend(Stay(None, nbytes, step, writers[-1]) for step in writers[1:])
        end = self._end_of[each.producer]
        if self._lies_over(each, readers, writer, phase):
            self.layout.over_maps.setdefault((writer.index, phase), []).append(each.index)
            self.layout.gradients_over_maps_ending.setdefault(end, []).append(each.index)
            return end
        self._stay(self.layout.gradient_stays, each, self._step_of[writer.index], end)
        return last

    def _readers(self, each: FeatureMap) -> list[int]:
        """Return the layers for whose backward a map is on the GPU, by index; a rectifier reads its record instead.

        Where maps leave, each comes back for its last reader in forward, at least.
        """
        records = self._reuse.within_layers
        saved_for = each.saved_for if needed_in_backward(self._workload, each) else ()
        readers = [i for i in saved_for if not (records and isinstance(self._layers[i].operator, Activation))]
        comes_back = self._reuse.between_layers and each.consumers and each.consumers[-1] in self._step_of
        return readers or ([each.consumers[-1]] if comes_back else [])

    def _first_writer(self, each: FeatureMap) -> tuple[Layer, Phase]:
        layer = self._layers[each.consumers[-1]]
        phases = self.layout.phases(layer)
        return layer, next(x for x in phases if each.index in maps_touched(self._workload, layer, x).gradients_written)

    def _lies_over(self, each: FeatureMap, readers: list[int], writer: Layer, phase: Phase) -> bool:
        """Whether nobody reads the map any more once the first kernel writes its gradient, and it is there."""
        if not self._reuse.within_layers or (self._reuse.between_layers and not readers):
            return False
        phases = self.layout.phases(writer)
        to_come = phases[phases.index(phase) + (writer.kind in _IN_PLACE) :]
        return all(index >= writer.index for index in readers) and not any(
            each.index in maps_touched(self._workload, writer, each_phase).maps_read for each_phase in to_come
        )

    def _stay(self, stays: list[tuple[int, Stay]], each: FeatureMap, first: int, last: int) -> None:
        stays.append((each.index, Stay(None, self._workload.map_bytes(each.index), first, last)))
