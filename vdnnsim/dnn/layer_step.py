"""The iteration of a network that we build: what its layers read, write, compute and keep.

Bytes moved are the compulsory traffic of a phase: each operand read once, each result written once; where several
layers read one map, all but the first to run in backward add to its gradient and so read it too. Where sums over a
batch must be known before the first value, what is summed is read twice. Of a table, the rows looked up are read. The
weight update follows its optimizer: SGD reads W and dW and writes W; momentum reads and writes one state more, Adam
two. States have the element type of the weights.

Statistics are written by forward for backward; those of a batch, in inference, which has no batch to speak of, are what
training left, and forward reads them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Step, StepOperation, Storage, Tensor

if TYPE_CHECKING:
    from vdnnsim.dnn.workload import Workload

_Key = tuple[BufferKind, int, int]
"""A storage by what it holds, of whom, and which of several."""


def step_of(workload: "Workload") -> Step:
    """Return one iteration of a workload."""
    return _StepBuilder(workload).build()


class _StepBuilder:
    def __init__(self, workload: "Workload") -> None:
        self._workload = workload
        self._graph = workload.graph
        self._training = workload.is_training
        self._storages: list[Storage] = []
        self._tensors: list[Tensor] = []
        self._numbers: dict[_Key, int] = {}

    def build(self) -> Step:
        self._add_maps()
        for layer in self._graph.layers:
            self._add_memory_of(layer)
        operations = tuple(self._operation(layer, phase) for layer, phase in self._order())
        return Step(tuple(self._with_lifetimes(operations)), tuple(self._tensors), operations)

    def _order(self) -> Iterator[tuple[Layer, Phase]]:
        layers = self._graph.layers
        yield from ((layer, Phase.FORWARD) for layer in layers)
        if self._training:
            yield from ((layer, phase) for layer in reversed(layers) for phase in layer.backward_phases)
        yield from ((layer, Phase.UPDATE) for layer in self._workload.updated_layers)

    def _add_maps(self) -> None:
        workload, kinds = self._workload, (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
        for kind, name in zip(kinds, ("map", "gradient of"), strict=True):
            for each in self._graph.maps:
                if kind is BufferKind.GRADIENT_MAP and not (self._training and each.needs_gradient):
                    continue
                storage = Storage(
                    name=f"{name} {each.name}",
                    kind=kind,
                    nbytes=workload.map_bytes(each.index),
                    element_type=workload.element_type,
                    stage=each.stage,
                    given=kind is BufferKind.FEATURE_MAP and each.producer is None,
                    owner=each.index,
                )
                self._add(storage, self._batch_of(each.shape))

    def _add_memory_of(self, layer: Layer) -> None:
        workload = self._workload
        if layer.parameters:
            nbytes = workload.weight_bytes(layer)

            def add(name: str, kind: BufferKind, ordinal: int = 0) -> None:
                given = kind is not BufferKind.WEIGHT_GRADIENT
                storage = Storage(
                    f"{name} of {layer.name}", kind, nbytes, workload.element_type, layer.stage, given, layer.index
                )
                self._add(storage, (layer.parameters,), ordinal)

            add("weights", BufferKind.WEIGHTS)
            if self._training:
                add("weight gradient", BufferKind.WEIGHT_GRADIENT)
                for ordinal in range(workload.optimizer.states):
                    add(f"state {ordinal + 1}", BufferKind.OPTIMIZER_STATE, ordinal)
        if nbytes := workload.statistics_bytes(layer):
            name, given = f"statistics of {layer.name}", not self._training
            storage = Storage(name, BufferKind.STATISTICS, nbytes, None, layer.stage, given, layer.index)
            self._add(storage, (nbytes,))

    def _add(self, storage: Storage, shape: tuple[int, ...], ordinal: int = 0) -> None:
        self._numbers[storage.kind, storage.owner, ordinal] = len(self._storages)
        self._storages.append(storage)
        self._tensors.append(Tensor(len(self._tensors), shape))

    def _batch_of(self, shape: MapShape) -> tuple[int, ...]:
        steps = (shape.steps,) if shape.steps > 1 else ()
        return (self._workload.part_size, *steps, shape.channels, shape.height, shape.width)

    def _operation(self, layer: Layer, phase: Phase) -> StepOperation:
        operands = tuple(self._operands(layer, phase))
        return StepOperation(
            module=layer.name,
            layer=layer.index,
            phase=phase,
            operands=operands,
            flop=self._flop(layer, phase),
            bytes_moved=self._bytes_moved(layer, phase),
            random=layer.work.random and phase is Phase.FORWARD,
            saves=tuple(self._saves(layer)) if phase is Phase.FORWARD and self._training else (),
        )

    def _saves(self, layer: Layer) -> Iterator[int]:
        yield from (self._numbers[BufferKind.FEATURE_MAP, index, 0] for index in layer.saved_maps)
        if layer.backward_phases and (BufferKind.STATISTICS, layer.index, 0) in self._numbers:
            yield self._numbers[BufferKind.STATISTICS, layer.index, 0]

    def _operands(self, layer: Layer, phase: Phase) -> Iterator[Operand]:
        """Return the operands of a phase; of those read, and of those written, the order is that of the roles."""
        data, whole = phase is Phase.BACKWARD_DATA, phase is Phase.BACKWARD
        if phase is Phase.FORWARD:
            yield from self._maps(Role.INPUT, layer.inputs)
            yield from self._weights(layer, Access.READ)
            yield from self._maps(Role.OUTPUT, layer.outputs, Access.WRITE)
            yield from self._statistics(layer, Access.WRITE if self._training else Access.READ)
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
        gradients = BufferKind.GRADIENT_MAP
        for position, index in enumerate(layer.outputs):
            if self._graph.maps[index].needs_gradient:
                yield Operand(Role.OUTPUT_GRADIENT, self._numbers[gradients, index, 0], Access.READ, position)
        if data or whole:
            for position, index in enumerate(layer.inputs):
                if self._graph.maps[index].needs_gradient:
                    access = Access.UPDATE if self._workload.accumulates(layer, index) else Access.WRITE
                    yield Operand(Role.INPUT_GRADIENT, self._numbers[gradients, index, 0], access, position)
            yield from self._weights(layer, Access.READ)
            yield from self._statistics(layer, Access.READ)
        if layer.weights_of is not None and not data:
            access = Access.UPDATE if layer.shares_weights else Access.WRITE
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

    def _statistics(self, layer: Layer, access: Access) -> Iterator[Operand]:
        if (BufferKind.STATISTICS, layer.index, 0) in self._numbers:
            yield Operand(Role.STATISTICS, self._numbers[BufferKind.STATISTICS, layer.index, 0], access)

    def _of_layer(
        self, role: Role, kind: BufferKind, layer: Layer, access: Access, ordinal: int = 0
    ) -> Iterator[Operand]:
        assert layer.weights_of is not None, f"{layer.name} has weights"
        yield Operand(role, self._numbers[kind, layer.weights_of, ordinal], access, ordinal)

    def _flop(self, layer: Layer, phase: Phase) -> Mapping[Arithmetic, int]:
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
        match phase:
            case Phase.FORWARD:
                return x * work.passes + rows + y + statistics
            case Phase.BACKWARD_WEIGHTS:
                return x + y + (2 * rows if layer.shares_weights else weights)
            case Phase.BACKWARD_DATA:
                return (saved if layer.weights_of is None else weights) + dy + statistics + dx
            case Phase.BACKWARD:  # pragma: no branch
                return work.passes * (saved + dy) + 2 * weights + statistics + dx

    def _with_lifetimes(self, operations: tuple[StepOperation, ...]) -> Iterator[Storage]:
        touched: dict[int, list[int]] = {}
        for position, operation in enumerate(operations):
            for operand in operation.operands:
                touched.setdefault(self._tensors[operand.memory].storage, []).append(position)
        resident = (BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE)
        for number, storage in enumerate(self._storages):
            if storage.kind in resident:
                yield replace(storage, birth=0, death=len(operations) - 1)
            else:
                positions = touched.get(number, [0])
                yield replace(storage, birth=0 if storage.given else positions[0], death=positions[-1])
