"""A workload that was captured: its step in the view of layers, and what one is asked, answered by that step.

Storages and tensors keep their numbers, operations their order. Activations and gradients that are none of the layer
graph's (`vdnnsim.dnn.captured_graph`) are workspaces of the layer that makes them: they live while they are needed, and
no policy may move them. So is a gradient of weights that is freed before the update, as the narrow one of autocast,
whose narrow copies of weights are statistics of the layer that reads them. What the program holds longer than any
operation reads it is held by the operation after which it is freed (`StepOperation.holds`).

A captured model says not where its classifier begins: all of it counts as feature extraction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from vdnnsim.dnn.captured_graph import TYPES, Layering
from vdnnsim.dnn.captured_step import CapturedStep, last_round, rounds_of
from vdnnsim.dnn.layers import CapturedLayer, Layer, Phase
from vdnnsim.dnn.step import RESIDENT, Access, BufferKind, Operand, Role, Step, StepOperation, Storage, WeightGradients
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.units import ElementType, Precision

_OPTIMIZERS: Final = {"none": Optimizer.NONE, "sgd": Optimizer.SGD, "momentum": Optimizer.MOMENTUM}


@dataclass(frozen=True)
class CapturedWorkload(Workload):
    """What one GPU does in one iteration that was captured.

    The program was captured whole, so its batch is not cut into parts, its weight gradients are dropped, and forward
    keeps what autograd kept.

    Attributes:
        captured: what was captured.
        step: in the view of layers; of one with several micro-batches the last and the update.

    Raises:
        PolicyError: something asks for it otherwise.
    """

    captured: CapturedStep = field(kw_only=True, hash=False, repr=False)
    step: Step = field(kw_only=True, hash=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what was not captured."""
        if self.parts > 1:
            raise PolicyError(
                f"{self.graph.name}: was captured with a batch of {self.batch_size}, which cannot be cut into "
                f"{self.parts} parts; expected a policy that runs all of it at a time"
            )
        if self.weight_gradients is not WeightGradients.DROPPED:
            raise PolicyError(
                f"{self.graph.name}: was captured with weight gradients that are dropped after each iteration, "
                f"found {self.weight_gradients.value!r}; expected a policy with set_to_none: true"
            )

    @classmethod
    def of(cls, captured: CapturedStep) -> "CapturedWorkload":
        """Return the workload of a step that was checked (`vdnnsim.dnn.captured_check`).

        Raises:
            ScenarioError: a layer's forward writes no activation.
        """
        last = last_round(captured)
        layering = Layering(last)
        return cls(
            graph=layering.graph,
            batch_size=captured.batch_size * rounds_of(captured),
            element_type=captured.precision.element_type,
            # The nearest of ours: profiles state fractions of their names, and of no other's.
            optimizer=_OPTIMIZERS.get(captured.optimizer.partition("_")[0], Optimizer.ADAM),
            mode=captured.mode,
            weight_gradients=WeightGradients.DROPPED,
            captured=captured,
            step=_LayerView(last, layering).step(),
        )

    @property
    def rounds(self) -> int:
        """Micro-batches whose weight gradients add up."""
        return self.batch_size // self.captured.batch_size

    @property
    def part_size(self) -> int:
        """Samples of a micro-batch."""
        return self.captured.batch_size

    @property
    def precision(self) -> Precision:
        """In what it computes."""
        return self.captured.precision

    def map_bytes(self, index: int) -> int:
        """Bytes of feature map `index`; its gradient map is mostly as large."""
        return self.step.storages[self.step.storage(BufferKind.FEATURE_MAP, index)].nbytes

    def arithmetic_type(self, layer: Layer, phase: Phase) -> ElementType:
        """In what the operation with the most FLOPs of a phase computes; integers and float64 as the workload does."""
        operations = self.step.operations_of(layer.index, phase)
        return self.computed_in(max(operations, key=lambda each: each.all_flop), self.element_type)

    def computed_in(self, operation: StepOperation, otherwise: ElementType) -> ElementType:
        """In what an operation computes: in TF32 only products do; `otherwise` where it is in what no workload is."""
        found = TYPES.get(operation.element_type, otherwise)
        if operation.work is None:
            return ElementType.FLOAT32 if found is ElementType.TF32 else found
        is_tf32 = self.element_type is ElementType.TF32 and found is ElementType.FLOAT32
        return ElementType.TF32 if is_tf32 else found

    def narrow_weight_bytes(self, layer: Layer) -> int:  # noqa: ARG002 - such copies are storages of their own
        """None: a copy of W under autocast is an operation and a storage like any other."""
        return 0

    def weight_bytes(self, layer: Layer) -> int:
        """Bytes of the W that a layer reads in forward, its own or another's."""
        operations = self.step.operations_of(layer.index, Phase.FORWARD) if Phase.FORWARD in self.phases(layer) else ()
        operands = (operand for each in operations for operand in each.operands if operand.access.reads)
        storages = (self.step.storages[each] for each in {self.step.tensors[each.memory].storage for each in operands})
        return sum(each.nbytes for each in storages if each.kind is BufferKind.WEIGHTS)

    def statistics_bytes(self, layer: Layer) -> int:
        """Bytes that backward of a layer reads and that are no map: moments, masks, reserves, narrow weights.

        In inference those that training left.
        """
        return self._statistics_bytes[layer.index]

    @cached_property
    def _statistics_bytes(self) -> Counter[int]:
        found = Counter[int]()
        for each in self.step.storages:
            if each.kind is BufferKind.STATISTICS and not (each.given and self.is_training):
                found[each.owner] += each.nbytes
        return found

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        """The phases of a layer that were captured, in the order in which they run."""
        assert isinstance(layer, CapturedLayer), "a captured workload has captured layers"
        return layer.phases


class _LayerView:
    """The view of layers of a captured step."""

    def __init__(self, captured: CapturedStep, layering: Layering) -> None:
        self._captured = captured
        self._layering = layering
        self._end = len(captured.operations) - 1
        phases = [each.phase for each in captured.operations]
        self._forward_end = max((at for at, phase in enumerate(phases) if phase is Phase.FORWARD), default=-1)
        self._first_update = phases.index(Phase.UPDATE) if Phase.UPDATE in phases else self._end
        self._written = {number for number, each in enumerate(captured.storages) if each.given}

    def step(self) -> Step:
        captured = self._captured
        storages = tuple(self._storage(number) for number in range(len(captured.storages)))
        return Step(captured.modules, storages, captured.tensors, tuple(self._operations()))

    def _storage(self, number: int) -> Storage:
        each = self._captured.storages[number]
        kind, owner = self._kind_and_owner(number)
        return replace(each, kind=kind, owner=owner, freed_after=None if kind in RESIDENT else each.freed_after)

    def _kind_and_owner(self, number: int) -> tuple[BufferKind, int]:
        """Return what a storage is in the view of layers, and of which map or layer."""
        layering, each = self._layering, self._captured.storages[number]
        maps = {BufferKind.FEATURE_MAP: layering.index, BufferKind.GRADIENT_MAP: layering.gradients}
        if each.kind in maps and number in maps[each.kind]:
            return each.kind, maps[each.kind][number]
        if number in layering.weight_owners:
            return each.kind, layering.weight_owners[number]
        first = layering.layer_of[layering.uses[number].first] if layering.uses[number].first >= 0 else 0
        match each.kind:
            case BufferKind.FEATURE_MAP | BufferKind.GRADIENT_MAP:
                return BufferKind.LABELS if each.given else BufferKind.WORKSPACE, first
            case BufferKind.WEIGHTS | BufferKind.OPTIMIZER_STATE if not each.given:
                return BufferKind.STATISTICS, first
            case BufferKind.WEIGHT_GRADIENT if not each.is_held_after(self._first_update - 1):
                return BufferKind.WORKSPACE, first
            case BufferKind.WEIGHT_GRADIENT:
                owner = layering.graph.layers[first].weights_of
                return each.kind, first if owner is None else owner
            case kind:
                return kind, first

    def _operations(self) -> Iterator[StepOperation]:
        holds = defaultdict[int, list[int]](list)
        for number, each in enumerate(self._captured.storages):
            freed_after = self._end if each.freed_after is None else each.freed_after
            is_resident = each.given and each.kind in RESIDENT
            if not is_resident and freed_after > self._layering.uses[number].last:
                holds[freed_after].append(number)
        for number, operation in enumerate(self._captured.operations):
            yield replace(
                operation,
                layer=self._layering.layer_of[number],
                operands=tuple(self._operands(operation)),
                saves=tuple(self._saves(operation)),
                holds=tuple(holds[number]),
            )

    def _operands(self, operation: StepOperation) -> Iterator[Operand]:
        """What is written once more keeps its memory, and perhaps some of its content: it is updated."""
        positions = Counter[Role]()
        for each in operation.operands:
            is_update = each.access is Access.WRITE and self._captured.tensors[each.memory].storage in self._written
            yield Operand(each.role, each.memory, Access.UPDATE if is_update else each.access, positions[each.role])
            positions[each.role] += 1
        for each in operation.operands:
            if each.access.writes:
                self._written.add(self._captured.tensors[each.memory].storage)

    def _saves(self, operation: StepOperation) -> Iterator[int]:
        """Autograd keeps weights and buffers too, which stay anyway; forward keeps none of what is recomputed.

        Nor what it saved and freed, as of a part of the graph that no loss hangs on.
        """
        passing = (BufferKind.FEATURE_MAP, BufferKind.LABELS)
        for each in operation.saves if operation.phase is Phase.FORWARD else ():
            storage = self._captured.storages[each]
            if storage.is_held_after(self._forward_end) and (not storage.given or storage.kind in passing):
                yield each
