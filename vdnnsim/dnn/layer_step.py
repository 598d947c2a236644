"""The step of a built network: storages, tensors and operations of its layers.

Bytes moved are the compulsory traffic of a phase: each operand read once, each result written once; where several
layers read one map, all but the first to run in backward add to its gradient and so read it too. Where sums over a
batch are needed before the first value, the operand is read twice. Of a table, the rows looked up are read. The update
by SGD reads W and dW and writes W; momentum reads and writes one state more, Adam two. States have the element type of
the weights. Statistics are written by forward for backward; in inference those of the batch are read.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

import msgspec

from vdnnsim.dnn.gradients import Gradients, LayerGradients, gradients_of
from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase, Stage
from vdnnsim.dnn.operator import Arithmetic, SavingRule
from vdnnsim.dnn.step import (
    ELEMENT_BYTES,
    RESIDENT,
    Access,
    BufferKind,
    Module,
    Operand,
    Role,
    Step,
    StepOperation,
    Storage,
    Tensor,
    WeightGradients,
)
from vdnnsim.dnn.workload_sizes import WorkloadSizes
from vdnnsim.units import ElementType

_Key = tuple[BufferKind, int, int]
"""A storage by kind, owner and ordinal."""


_NARROW: Final = 1
"""Ordinal of the copy of W under autocast, after the statistics of a layer."""


def step_of(workload: WorkloadSizes) -> Step:
    return _StepBuilder(workload).build()


class _StepBuilder:
    def __init__(self, workload: WorkloadSizes) -> None:
        self._workload = workload
        self._graph = workload.graph
        self._training = workload.is_training
        self._autograd = workload.graph.saving is SavingRule.AUTOGRAD
        self._storages: list[Storage] = []
        self._tensors: list[Tensor] = []
        self._numbers: dict[_Key, int] = {}
        self._gradients: Mapping[int, LayerGradients] = {}

    def build(self) -> Step:
        for each in self._graph.maps:
            self._add_map(BufferKind.FEATURE_MAP, each, f"map {each.name}", given=each.producer is None)
        if self._training:
            self._add_gradients(gradients_of(self._workload))
        for layer in self._graph.layers:
            self._add_memory_of(layer)
        operations = tuple(self._operation(layer, phase) for layer, phase in self._order())
        modules = tuple(Module(each.name, each.operator.name) for each in self._graph.layers)
        return Step(modules, tuple(self._with_lifetimes(operations)), tuple(self._tensors), operations)

    def _order(self) -> Iterator[tuple[Layer, Phase]]:
        layers = self._graph.layers
        yield from ((layer, Phase.FORWARD) for layer in layers)
        if self._training:
            yield from ((layer, phase) for layer in reversed(layers) for phase in layer.backward_phases)
        yield from ((layer, Phase.UPDATE) for layer in self._workload.updated_layers)

    def _add_map(self, kind: BufferKind, each: FeatureMap, name: str, *, given: bool = False, ordinal: int = 0) -> None:
        is_long = each.holds_indices and self._autograd
        element_type = "int64" if is_long else _stored_as(self._workload.map_type(each.index))
        steps = (each.shape.steps,) if each.shape.steps > 1 else ()
        shape = (self._workload.part_size, *steps, each.shape.channels, each.shape.height, each.shape.width)
        self._add(name, kind, shape, element_type, each.stage, each.index, given=given, ordinal=ordinal)

    def _add_gradients(self, gradients: Gradients) -> None:
        first = len(self._storages)
        for index, version in gradients.maps:
            each = self._graph.maps[index]
            name = f"gradient of {each.name}" + " before its rectifier" * bool(version)
            self._add_map(BufferKind.GRADIENT_MAP, each, name, ordinal=version)
        self._gradients = {layer: each.shifted(first) for layer, each in gradients.layers.items()}

    def _add_memory_of(self, layer: Layer) -> None:
        workload = self._workload

        def add(name: str, kind: BufferKind, size: int, element_type: str, *, given: bool, ordinal: int = 0) -> None:
            self._add(name, kind, (size,), element_type, layer.stage, layer.index, given=given, ordinal=ordinal)

        if layer.parameters:
            size, of_weights = layer.parameters, _stored_as(workload.element_type)
            add(f"weights of {layer.name}", BufferKind.WEIGHTS, size, of_weights, given=True)
            if self._training:
                is_kept = workload.weight_gradients is WeightGradients.KEPT
                name = f"weight gradient of {layer.name}"
                add(name, BufferKind.WEIGHT_GRADIENT, size, of_weights, given=is_kept)
                for state in range(workload.optimizer.states):
                    name = f"state {state + 1} of {layer.name}"
                    add(name, BufferKind.OPTIMIZER_STATE, size, of_weights, given=True, ordinal=state)
        if nbytes := workload.statistics_bytes(layer):
            given = not self._training
            add(f"statistics of {layer.name}", BufferKind.STATISTICS, nbytes, "uint8", given=given)
        if self._training and workload.narrow_weight_bytes(layer):
            size, name = layer.work.weights - layer.work.biases, f"narrow weights of {layer.name}"
            narrow = _stored_as(self._graph.autocast or workload.element_type)
            add(name, BufferKind.STATISTICS, size, narrow, given=False, ordinal=_NARROW)
        if labels := workload.part_size * layer.work.labels:
            add("labels", BufferKind.LABELS, labels, "int64", given=True)

    def _add(
        self,
        name: str,
        kind: BufferKind,
        shape: tuple[int, ...],
        element_type: str,
        stage: Stage,
        owner: int,
        *,
        given: bool,
        ordinal: int,
    ) -> None:
        """Add a storage, and the tensor of the same number that covers it."""
        number = self._numbers[kind, owner, ordinal] = len(self._storages)
        nbytes = prod(shape) * ELEMENT_BYTES[element_type]
        self._storages.append(Storage(name, kind, nbytes, element_type, given, stage=stage, owner=owner))
        self._tensors.append(Tensor(number, shape, element_type))

    def _operation(self, layer: Layer, phase: Phase) -> StepOperation:
        return StepOperation(
            name=layer.operator.name,
            module=layer.index,
            layer=layer.index,
            phase=phase,
            operands=tuple(self._operands(layer, phase)),
            element_type=_stored_as(self._workload.arithmetic_type(layer, phase)),
            flop=self._flop(layer, phase),
            bytes_moved=self._bytes_moved(layer, phase),
            temporary_bytes=self._temporary_bytes(layer, phase),
            random=layer.work.random and phase is Phase.FORWARD,
            saves=tuple(self._saves(layer)) if phase is Phase.FORWARD and self._training else (),
        )

    def _temporary_bytes(self, layer: Layer, phase: Phase) -> int:
        """Memory beside the operands; to kept weight gradients backward adds what it computes in temporary memory."""
        workload, nbytes = self._workload, 0
        if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD):
            nbytes += layer.work.temporaries * workload.part_size * workload.map_type(layer.inputs[0]).nbytes
            nbytes += self._gradients[layer.index].temporary_bytes
        adds = workload.weight_gradients is WeightGradients.KEPT or (self._autograd and layer.shares_weights)
        if phase in (Phase.BACKWARD_WEIGHTS, Phase.BACKWARD) and adds:
            nbytes += workload.weight_bytes(layer)
        if phase is Phase.FORWARD and not self._training:
            nbytes += workload.narrow_weight_bytes(layer)
        return nbytes

    def _saves(self, layer: Layer) -> Iterator[int]:
        yield from (self._numbers[BufferKind.FEATURE_MAP, index, 0] for index in layer.saved_maps)
        for kind in (BufferKind.STATISTICS, BufferKind.LABELS):
            for ordinal in (0, _NARROW):
                if layer.backward_phases and (kind, layer.index, ordinal) in self._numbers:
                    yield self._numbers[kind, layer.index, ordinal]

    def _operands(self, layer: Layer, phase: Phase) -> Iterator[Operand]:
        """Yield the operands of a phase, those of one role in order."""
        data, whole = phase is Phase.BACKWARD_DATA, phase is Phase.BACKWARD
        if phase is Phase.FORWARD:
            yield from self._maps(Role.INPUT, layer.inputs)
            yield from self._weights(layer, Access.READ)
            yield from self._maps(Role.OUTPUT, layer.outputs, Access.WRITE)
            yield from self._kept(layer, Access.WRITE if self._training else Access.READ)
            return
        if phase is Phase.UPDATE:
            yield from self._weights(layer, Access.UPDATE)
            yield from self._of_layer(Role.WEIGHT_GRADIENT, BufferKind.WEIGHT_GRADIENT, layer, Access.READ)
            for ordinal in range(self._workload.optimizer.states):
                yield from self._of_layer(Role.STATE, BufferKind.OPTIMIZER_STATE, layer, Access.UPDATE, ordinal)
            return
        if phase is Phase.BACKWARD_WEIGHTS:
            yield from self._maps(Role.INPUT, layer.inputs)
        elif whole or layer.weights_of is None:
            saved = set(layer.saved_maps)
            yield from self._maps(Role.INPUT, layer.inputs, of=saved if not layer.in_place else set())
            yield from self._maps(Role.OUTPUT, layer.outputs, of=saved)
        gradients = self._gradients[layer.index]
        for position, number in gradients.incoming.items():
            yield Operand(Role.OUTPUT_GRADIENT, number, Access.READ, position)
        if data or whole:
            for position, (number, access) in gradients.outgoing.items():
                yield Operand(Role.INPUT_GRADIENT, number, access, position)
            if not self._workload.narrow_weight_bytes(layer):
                yield from self._weights(layer, Access.READ)
            yield from self._kept(layer, Access.READ)
        elif self._workload.narrow_weight_bytes(layer) or Phase.BACKWARD_DATA not in layer.backward_phases:
            yield from self._kept(layer, Access.READ)
        if layer.weights_of is not None and not data:
            adds = layer.shares_weights or self._workload.weight_gradients is WeightGradients.KEPT
            access = Access.UPDATE if adds else Access.WRITE
            yield from self._of_layer(Role.WEIGHT_GRADIENT, BufferKind.WEIGHT_GRADIENT, layer, access)

    def _maps(
        self, role: Role, indices: tuple[int, ...], access: Access = Access.READ, *, of: set[int] | None = None
    ) -> Iterator[Operand]:
        for position, index in enumerate(indices):
            if of is None or index in of:
                yield Operand(role, self._numbers[BufferKind.FEATURE_MAP, index, 0], access, position)

    def _weights(self, layer: Layer, access: Access) -> Iterator[Operand]:
        if layer.weights_of is not None:
            yield from self._of_layer(Role.WEIGHTS, BufferKind.WEIGHTS, layer, access)

    def _kept(self, layer: Layer, access: Access) -> Iterator[Operand]:
        if (BufferKind.STATISTICS, layer.index, 0) in self._numbers:
            yield Operand(Role.STATISTICS, self._numbers[BufferKind.STATISTICS, layer.index, 0], access)
        if (BufferKind.STATISTICS, layer.index, _NARROW) in self._numbers:
            yield Operand(Role.STATISTICS, self._numbers[BufferKind.STATISTICS, layer.index, _NARROW], access, _NARROW)
        if (BufferKind.LABELS, layer.index, 0) in self._numbers:
            yield Operand(Role.LABELS, self._numbers[BufferKind.LABELS, layer.index, 0], Access.READ)

    def _of_layer(
        self, role: Role, kind: BufferKind, layer: Layer, access: Access, ordinal: int = 0
    ) -> Iterator[Operand]:
        assert layer.weights_of is not None, f"{layer.name} has weights"
        yield Operand(role, self._numbers[kind, layer.weights_of, ordinal], access, ordinal)

    def _flop(self, layer: Layer, phase: Phase) -> dict[Arithmetic, int]:
        if phase is Phase.UPDATE:
            return {Arithmetic.ELEMENTWISE: self._workload.optimizer.flop_per_weight * layer.parameters}
        work = layer.work
        flop = work.forward_flop if phase is Phase.FORWARD else work.backward_flop
        return {layer.operator.arithmetic: flop * self._workload.part_size}

    def _bytes_moved(self, layer: Layer, phase: Phase) -> int:
        workload, work = self._workload, layer.work
        weights = workload.weight_bytes(layer)
        if phase is Phase.UPDATE:
            return (3 + 2 * workload.optimizer.states) * weights
        looked_up = work.lookup.elements(workload.part_size) if work.lookup else work.weights
        rows = looked_up * workload.element_type.nbytes
        narrow = workload.narrow_weight_bytes(layer)
        x = sum(workload.map_bytes(index) for index in layer.inputs)
        y = sum(workload.map_bytes(index) for index in layer.outputs)
        dy = sum(workload.map_bytes(index) for index in layer.outputs if self._graph.maps[index].needs_gradient)
        dx = sum(
            workload.map_bytes(index) * (1 + workload.accumulates(layer, index))
            for index in layer.inputs
            if self._graph.maps[index].needs_gradient
        )
        statistics = workload.statistics_bytes(layer)
        saved = sum(workload.map_bytes(index) for index in layer.saved_maps)
        match phase:  # pragma: no branch
            case Phase.FORWARD:
                # Inference knows the moments of the batch, so no sums come before the first value.
                known = not self._training and work.statistics is not None and work.statistics.of_batch
                x *= (1 if known else work.passes) + 2 * work.copies * self._training
                return x + rows + 2 * narrow + y + statistics
            case Phase.BACKWARD_WEIGHTS:
                return x + y + 2 * narrow + (2 * rows if layer.shares_weights else weights)
            case Phase.BACKWARD_DATA:
                return (saved if layer.weights_of is None else narrow or weights) + dy + statistics + dx
            case Phase.BACKWARD:
                return work.passes * (saved + dy) + 2 * weights + statistics + dx

    def _with_lifetimes(self, operations: tuple[StepOperation, ...]) -> Iterator[Storage]:
        last = {
            self._tensors[operand.memory].storage: position
            for position, operation in enumerate(operations)
            for operand in operation.operands
        }
        for number, storage in enumerate(self._storages):
            freed_after = None if storage.kind in RESIDENT else last.get(number, 0)
            yield msgspec.structs.replace(storage, freed_after=freed_after)


def _stored_as(element_type: ElementType) -> str:
    return "float32" if element_type is ElementType.TF32 else str(element_type.value)
