"""The layer graph of a captured step: which storages are activations between its layers, and which layers use them.

Inputs are maps of the graph, and so is what forward of a layer writes and another layer, or any backward, uses. What
only forward of one layer uses is no map, nor is what backward writes, as a recomputed activation. The gradient of a map
is written in backward by a layer that reads the map in forward, and read by the layer that wrote the map.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

from vdnnsim.dnn.captured_groups import groups_of, maps_written, operator_name
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.graph import FeatureMap, LayerGraph
from vdnnsim.dnn.layers import CapturedLayer, CapturedOperator, LayerKind, Phase, Stage
from vdnnsim.dnn.operator import Arithmetic, SavingRule, Work
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import ELEMENT_BYTES, BufferKind, Tensor
from vdnnsim.errors import ScenarioError
from vdnnsim.units import ElementType

TYPES: Final = {each.value: each for each in ElementType}
_IMAGE_DIMENSIONS: Final = 4


@dataclass
class Uses:
    """The layers that use a storage, by index, in order.

    Attributes:
        first, last: operations that use it; -1 where none does.
        view: the first tensor that covers it.
    """

    readers: dict[int, None] = field(default_factory=dict)
    writers: dict[int, None] = field(default_factory=dict)
    backward_readers: dict[int, None] = field(default_factory=dict)
    backward_writers: dict[int, None] = field(default_factory=dict)
    phases: dict[tuple[int, Phase], None] = field(default_factory=dict)
    first: int = -1
    last: int = -1
    view: Tensor | None = None


class Layering:
    """The layers of a captured step, and the storages that are maps between them.

    Attributes:
        layer_of: by operation, the layer that it belongs to.
        maps: the storages of the maps, by their index; what is given first.
        index: the index of the map of a storage.
        gradients: by storage of a gradient, the index of its map.

    Raises:
        ScenarioError: forward of a layer writes no activation.
    """

    def __init__(self, captured: CapturedStep) -> None:
        self._captured = captured
        self._groups = groups_of(captured)
        self.layer_of = {number: at for at, group in enumerate(self._groups) for number in group.operations}
        self.uses = self._survey()
        self.maps = self._choose_maps()
        self.index = {storage: index for index, storage in enumerate(self.maps)}
        self._inputs, self._saved, self._weights = (defaultdict[int, list[int]](list) for _ in range(3))
        for index, use in enumerate(self._map_uses):
            for layer in use.readers:
                if layer != self._producers[index]:
                    self._inputs[layer].append(index)
            for layer in use.backward_readers:
                self._saved[layer].append(index)
        for storage in self.weight_owners:
            for layer in self.uses[storage].readers:
                self._weights[layer].append(storage)
        self._outputs = [self._outputs_of(layer) for layer in range(len(self._groups))]
        self.gradients = self._match_gradients()
        self._has_gradient = set(self.gradients.values())

    @cached_property
    def graph(self) -> LayerGraph:
        """The layers and the maps between them."""
        captured = self._captured
        layers = tuple(self._layer(index) for index in range(len(self._groups)))
        maps = tuple(self._feature_map(index) for index in range(len(self.maps)))
        autocast = captured.precision.autocast
        sample, weights = captured.sample, captured.parameters
        tokens = captured.sample_elements if sample == "sequence" else 1
        return LayerGraph(captured.model, layers, maps, SavingRule.AUTOGRAD, autocast, weights, sample, tokens)

    @cached_property
    def weight_owners(self) -> dict[int, int]:
        """By storage of weights that forward reads, the first layer that does."""
        return {
            number: next(iter(use.readers))
            for number, (storage, use) in enumerate(zip(self._captured.storages, self.uses, strict=True))
            if storage.kind is BufferKind.WEIGHTS and storage.given and use.readers
        }

    @cached_property
    def _map_uses(self) -> list[Uses]:
        return [self.uses[storage] for storage in self.maps]

    @cached_property
    def _producers(self) -> list[int | None]:
        given = (self._captured.storages[storage].given for storage in self.maps)
        return [
            None if is_given else next(iter(use.writers)) for is_given, use in zip(given, self._map_uses, strict=True)
        ]

    def _survey(self) -> list[Uses]:
        captured = self._captured
        uses = [Uses() for _ in captured.storages]
        for number, operation in enumerate(captured.operations):
            layer, phase = self.layer_of[number], operation.phase
            for operand in operation.operands:
                tensor = captured.tensors[operand.memory]
                use, storage = uses[tensor.storage], captured.storages[tensor.storage]
                use.first = number if use.first < 0 else use.first
                use.last = number
                use.phases[layer, phase] = None
                if use.view is None and prod(tensor.shape) * ELEMENT_BYTES[tensor.element_type] == storage.nbytes:
                    use.view = tensor
                is_forward = phase is Phase.FORWARD
                if operand.access.reads:
                    (use.readers if is_forward else use.backward_readers)[layer] = None
                if operand.access.writes:
                    (use.writers if is_forward else use.backward_writers)[layer] = None
        return uses

    def _choose_maps(self) -> list[int]:
        """Return the storages that are maps: inputs, what other layers use, and at least one of each layer."""
        storages, chosen = self._captured.storages, set()
        for number, (storage, use) in enumerate(zip(storages, self.uses, strict=True)):
            is_map = use.readers if storage.given else use.writers and len(use.phases) > 1
            if storage.kind is BufferKind.FEATURE_MAP and is_map:
                chosen.add(number)
        for group in self._groups:
            maps = maps_written(group.forward, self._captured)
            if group.forward and not maps:
                raise ScenarioError(f"{self._captured.model}: no operation of its forward writes a feature map")
            if maps and chosen.isdisjoint(maps):
                chosen.add(maps[-1])
        return sorted(chosen, key=lambda each: (not storages[each].given, each))

    def _outputs_of(self, layer: int) -> tuple[int, ...]:
        """Return the maps that forward of a layer writes; those that another layer reads come first."""
        written = maps_written(self._groups[layer].forward, self._captured)
        maps = [self.index[each] for each in written if each in self.index]
        return tuple(sorted(maps, key=lambda index: self._map_uses[index].readers.keys() <= {layer}))

    def _match_gradients(self) -> dict[int, int]:
        found = {}
        for number, (storage, use) in enumerate(zip(self._captured.storages, self.uses, strict=True)):
            if storage.kind is BufferKind.GRADIENT_MAP and len(use.phases) > 1 and use.backward_writers:
                found[number] = self._map_of(storage.nbytes, use)
        return found

    def _map_of(self, nbytes: int, use: Uses) -> int:
        """Return the map of a gradient that one layer writes and another reads, by its readers and its size."""
        writer = max(use.backward_writers)
        reader = min(use.backward_readers, default=writer)
        made = self._outputs[reader] or tuple(self._inputs[writer]) or (0,)

        def fits(index: int) -> tuple[bool, bool]:
            return writer in self._map_uses[index].readers, self._captured.storages[self.maps[index]].nbytes == nbytes

        return max(made, key=fits)

    def _is_in_place(self, layer: int) -> bool:
        outputs = self._outputs[layer]
        return bool(outputs) and all(self._producers[index] != layer for index in outputs)

    def _layer(self, index: int) -> CapturedLayer:
        captured, group, outputs = self._captured, self._groups[index], self._outputs[index]
        in_place = self._is_in_place(index)
        inputs = tuple(dict.fromkeys((*outputs, *self._inputs[index]) if in_place else self._inputs[index]))
        main = captured.operations[group.main]
        read = {each: self.weight_owners[each] for each in self._weights[index]}
        own = [each for each, owner in read.items() if owner == index]
        phases = {Phase.FORWARD: group.forward, Phase.BACKWARD: group.backward, Phase.UPDATE: group.update}
        operator = CapturedOperator(
            name=operator_name(main.name),
            kind=group.kind.value,
            arithmetic=Arithmetic.PRODUCT if main.flop.get(Arithmetic.PRODUCT) else Arithmetic.ELEMENTWISE,
            whole_backward=bool(group.backward),
            is_loss=group.kind is LayerKind.LOSS,
            in_place=in_place,
        )
        return CapturedLayer(
            index=index,
            name=group.name,
            operator=operator,
            inputs=inputs,
            outputs=outputs,
            in_shapes=tuple(self._shape(each) for each in inputs),
            out_shapes=tuple(self._shape(each) for each in outputs),
            work=Work(
                forward_flop=self._flop(group.forward),
                backward_flop=self._flop(group.backward),
                weights=sum(self._elements_of(each) for each in read),
                random=any(captured.operations[each].random for each in group.forward),
            ),
            stage=Stage.FEATURES,
            needs_input_gradient=bool(group.backward) and any(each in self._has_gradient for each in inputs),
            weights_of=index if own else min(read.values(), default=None),
            shares_weights=any(max(self.uses[each].readers) > index for each in own),
            phases=tuple(phase for phase, operations in phases.items() if operations),
            saved=tuple(self._saved[index]),
        )

    def _flop(self, operations: tuple[int, ...]) -> int:
        flop = sum(sum(self._captured.operations[each].flop.values()) for each in operations)
        return flop // self._captured.batch_size

    def _elements_of(self, storage: int) -> int:
        each = self._captured.storages[storage]
        return each.nbytes // ELEMENT_BYTES[each.element_type]

    def _feature_map(self, index: int) -> FeatureMap:
        storage, use = self._captured.storages[self.maps[index]], self._map_uses[index]
        producer = self._producers[index]
        rewriters = tuple(layer for layer in use.writers if layer != producer)
        return FeatureMap(
            index=index,
            name=storage.name,
            shape=self._shape(index),
            producer=producer,
            consumers=tuple(
                layer
                for layer in use.readers
                if layer != producer and not (layer in use.writers and self._is_in_place(layer))
            ),
            rewriters=rewriters,
            saved_for=tuple(sorted(use.backward_readers)),
            stage=Stage.FEATURES,
            holds_indices="int" in storage.element_type,
            element_type=TYPES.get(storage.element_type),
            is_constant=index not in self._has_gradient,
        )

    def _shape(self, index: int) -> MapShape:
        """Return the shape of a map for one sample: of images C, H, W, else all of it as channels.

        By elements where they divide, for a sequence by step; what is no multiple of the batch is rounded up.
        """
        captured, storage = self._captured, self._captured.storages[self.maps[index]]
        view, batch, steps = self._map_uses[index].view, captured.batch_size, captured.sample_elements
        if view is not None and len(view.shape) == _IMAGE_DIMENSIONS and view.shape[0] == batch and steps == 1:
            return MapShape(*view.shape[1:])
        elements = -(-storage.nbytes // ELEMENT_BYTES[storage.element_type] // batch)
        if storage.given and elements > steps:
            # Tokens and labels may be views of one storage, which has one more of them.
            elements -= elements % steps
        return MapShape(elements) if elements % steps else MapShape(elements // steps, steps=steps)
