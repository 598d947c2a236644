"""Buffers of activation gradients in backward: one for each map, or passed on as autograd's engine does."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.step import Access
from vdnnsim.dnn.workload_sizes import WorkloadSizes


@dataclass(frozen=True, slots=True)
class LayerGradients:
    """The gradient maps of backward of one layer.

    Attributes:
        incoming: numbers of dY, by position of the output.
        outgoing: number of each dX and its access, by position of the input.
        temporary_bytes: of gradients that are computed in memory of their own and then added.
    """

    incoming: Mapping[int, int]
    outgoing: Mapping[int, tuple[int, Access]]
    temporary_bytes: int = 0

    def shifted(self, first: int) -> "LayerGradients":
        return replace(
            self,
            incoming={at: first + number for at, number in self.incoming.items()},
            outgoing={at: (first + number, access) for at, (number, access) in self.outgoing.items()},
        )


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradient maps of an iteration.

    Attributes:
        maps: by number, the feature map that each is of, and which of its versions: 0 behind, 1 before its rectifier.
        layers: by index of the layer.
    """

    maps: tuple[tuple[int, int], ...]
    layers: Mapping[int, LayerGradients]


def gradients_of(workload: WorkloadSizes) -> Gradients:
    if workload.graph.saving is SavingRule.PAPER:
        return _in_one_buffer_each(workload)
    copied: set[tuple[int, int]] = set()
    while True:
        found = _handed_on(workload, copied)
        if isinstance(found, Gradients):
            return found
        copied.add(found)


def _in_one_buffer_each(workload: WorkloadSizes) -> Gradients:
    """Gradients in place where the layer is; kernels accumulate into them."""
    maps = tuple(each.index for each in workload.graph.maps if each.needs_gradient)
    number = {index: position for position, index in enumerate(maps)}
    layers = {
        layer.index: LayerGradients(
            {at: number[index] for at, index in enumerate(layer.outputs) if index in number},
            {
                at: (number[x], Access.UPDATE if workload.accumulates(layer, x) else Access.WRITE)
                for at, x in enumerate(layer.inputs)
                if x in number
            },
        )
        for layer in workload.graph.layers
    }
    return Gradients(tuple((index, 0) for index in maps), layers)


def _handed_on(workload: WorkloadSizes, copied: Collection[tuple[int, int]]) -> Gradients | tuple[int, int]:
    """Return the gradients as autograd's engine passes them on; or the layer and input for which one must be copied.

    Each node writes new memory, but a sum passes its dY on to all its inputs. Later gradients of a map are computed in
    memory of their own and added to the first; where that is also the gradient of another map, the sum must copy it.
    """
    maps: list[tuple[int, int]] = []
    pending: dict[int, int] = {}
    handed_on: dict[int, tuple[int, int]] = {}
    versions: Counter[int] = Counter()
    layers: dict[int, LayerGradients] = {}
    for layer in reversed(workload.graph.layers):
        incoming = {at: pending.pop(index) for at, index in enumerate(layer.outputs) if index in pending}
        outgoing: dict[int, tuple[int, Access]] = {}
        temporary_bytes = 0
        for at, x in enumerate(layer.inputs if layer.backward_phases else ()):
            if not workload.graph.maps[x].needs_gradient:
                continue
            types = {workload.map_type(index) for index in (x, layer.output)}
            passes = layer.operator.passes_gradient and len(types) == 1
            if x in pending:
                if list(pending.values()).count(pending[x]) > 1:
                    return handed_on[x]
                outgoing[at] = pending[x], Access.UPDATE
                temporary_bytes += 0 if passes else workload.map_bytes(x)
            elif passes and (layer.index, at) not in copied:
                pending[x], handed_on[x] = incoming[0], (layer.index, at)
                outgoing[at] = incoming[0], Access.READ
            else:
                pending[x] = len(maps)
                maps.append((x, versions[x]))
                versions[x] += 1
                outgoing[at] = pending[x], Access.WRITE
        layers[layer.index] = LayerGradients(incoming, outgoing, temporary_bytes)
    return Gradients(tuple(maps), layers)
