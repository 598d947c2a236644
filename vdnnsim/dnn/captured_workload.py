"""Workloads of captured models: their step in the layer view.

Storages and tensors keep their numbers, operations their order. Activations and gradients that are not in the layer
graph (`vdnnsim.dnn.captured_graph`) are workspaces of the layer that makes them, which no policy may offload. So is a
weight gradient that is freed before the update, as the narrow one of autocast; autocast's narrow copies of weights are
statistics of the layer that reads them. What the program references longer than any operation reads it is held by the
operation after which it is freed (`StepOperation.holds`).

The classifier of a captured model is not known: all of it counts as feature extraction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from vdnnsim.dnn.captured_accumulation import accumulating
from vdnnsim.dnn.captured_graph import TYPES, Layering
from vdnnsim.dnn.captured_step import CapturedStep, last_round, rounds_of
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import CapturedLayer, Layer, Phase
from vdnnsim.dnn.step import RESIDENT, Access, BufferKind, Operand, Role, Step, StepOperation, Storage, WeightGradients
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PolicyError, ScenarioError
from vdnnsim.units import ElementType, Precision

_OPTIMIZERS: Final = {"none": Optimizer.NONE, "sgd": Optimizer.SGD, "momentum": Optimizer.MOMENTUM}


@dataclass(frozen=True)
class CapturedWorkload(Workload):
    """One captured iteration of one GPU.

    Its batch cannot be split, its weight gradients are dropped, and forward saves what autograd saved.

    Attributes:
        step: in the layer view; of several micro-batches the last, with the update.
        pipeline: the workloads of the ranks of a pipeline, this one's as the first; of others none.

    Raises:
        PolicyError: the batch is to be split, or weight gradients are to be kept.
    """

    captured: CapturedStep = field(kw_only=True, hash=False, repr=False)
    step: Step = field(kw_only=True, hash=False, repr=False)
    pipeline: tuple["CapturedWorkload", ...] = field(default=(), kw_only=True, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.parts > 1:
            raise PolicyError(
                f"{self.graph.name}: was captured with a batch of {self.batch_size}, which cannot be cut into "
                f"{self.parts} parts; expected micro-batches, as `--accumulate {self.parts}` of a smaller `--batch`"
            )
        if self.weight_gradients is not WeightGradients.DROPPED:
            raise PolicyError(
                f"{self.graph.name}: was captured with weight gradients that are dropped after each iteration, "
                f"found {self.weight_gradients.value!r}; expected a policy with set_to_none: true"
            )

    @classmethod
    def of(cls, captured: CapturedStep, rounds: int = 1) -> "CapturedWorkload":
        """Return the workload of a step that was checked (`vdnnsim.dnn.captured_check`).

        Of a step of one micro-batch `rounds` make an iteration; their gradients are accumulated.

        Raises:
            ScenarioError: a layer's forward writes no activation, or backward of micro-batches updates weights.
        """
        if rounds > 1 and captured.in_backward:
            raise ScenarioError(
                f"{captured.model}: found {rounds} micro-batches, expected one, for backward updates its parameters"
            )
        if rounds > 1 and any(each.on_host for each in captured.storages):
            raise ScenarioError(
                f"{captured.model}: found {rounds} micro-batches with {captured.parallel}, expected one, or sync=last, "
                "for the host would add up their gradients"
            )
        if rounds > 1:
            captured = accumulating(captured, rounds)
        last = last_round(captured)
        layering = Layering(last)
        return cls(
            graph=layering.graph,
            batch_size=captured.batch_size * max(rounds, rounds_of(captured)),
            element_type=captured.precision.element_type,
            # The nearest of `Optimizer`: profiles state fractions by its names.
            optimizer=_OPTIMIZERS.get(captured.optimizer.partition("_")[0], Optimizer.ADAM),
            mode=captured.mode,
            weight_gradients=WeightGradients.DROPPED,
            captured=captured,
            step=_LayerView(last, layering).step(),
        )

    @cached_property
    def captured_round(self) -> CapturedStep:
        """The last micro-batch as it was captured, with the storages of the step."""
        return last_round(self.captured)

    def kind_shown(self, storage: int) -> BufferKind:
        """Return the kind of a storage as it was captured, for an activation that policies see as a workspace too.

        So for what a stage of a pipeline receives, which they see as they see inputs that are no activations.
        """
        kind = self.step.storages[storage].kind
        is_other = kind is BufferKind.WORKSPACE or (kind is BufferKind.LABELS and self.as_captured)
        return self.captured_round.storages[storage].kind if is_other else kind

    @property
    def rounds(self) -> int:
        """Micro-batches whose weight gradients add up."""
        return self.batch_size // self.captured.batch_size

    @property
    def as_captured(self) -> bool:
        """Whether micro-batches of its step overlap or differ."""
        return self.captured.micro_batches > 1

    @property
    def part_size(self) -> int:
        """Samples of a micro-batch."""
        return self.captured.part_size

    @property
    def precision(self) -> Precision:
        return self.captured.precision

    def map_bytes(self, index: int) -> int:
        """Bytes of feature map `index`; its gradient map is mostly as large."""
        return self.step.storages[self.step.storage(BufferKind.FEATURE_MAP, index)].nbytes

    def arithmetic_type(self, layer: Layer, phase: Phase) -> ElementType:
        """Element type of the operation of a phase with the most FLOPs; the workload's for integers and float64."""
        operations = self.step.operations_of(layer.index, phase)
        return self.computed_in(max(operations, key=lambda each: each.all_flop), self.element_type)

    def computed_in(self, operation: StepOperation, otherwise: ElementType) -> ElementType:
        """Element type of an operation, TF32 for products alone; `otherwise` for types of no workload."""
        found = TYPES.get(operation.element_type, otherwise)
        if operation.work is None:
            return ElementType.FLOAT32 if found is ElementType.TF32 else found
        is_tf32 = self.element_type is ElementType.TF32 and found is ElementType.FLOAT32
        return ElementType.TF32 if is_tf32 else found

    @cached_property
    def has_convolutions(self) -> bool:
        return any(isinstance(each.work, ConvolutionWork) for each in self.captured.operations)

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
        """Bytes that backward of a layer reads beside maps: moments, masks, reserves, narrow weights.

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
        assert isinstance(layer, CapturedLayer), "a captured workload has captured layers"
        return layer.phases


class _LayerView:
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
            is_resident = each.on_host or (each.given and each.kind in RESIDENT)
            if not is_resident and freed_after > self._layering.uses[number].last:
                holds[freed_after].append(number)
        for number, operation in enumerate(self._captured.operations):
            yield replace(
                operation,
                layer=self._layering.layer_of[number],
                operands=tuple(self._operands(operation)),
                saves=tuple(self._saves(operation)),
                holds=tuple(holds[number]),
                # Ranks recompute together or not at all.
                repeatable=operation.collective is None and not operation.aside,
            )

    def _operands(self, operation: StepOperation) -> Iterator[Operand]:
        """A second write to a storage is an update, for it may keep some of the content."""
        positions: dict[Role, int] = {}
        for each in operation.operands:
            is_update = each.access is Access.WRITE and self._captured.tensors[each.memory].storage in self._written
            position = positions.get(each.role, 0)
            yield Operand(each.role, each.memory, Access.UPDATE if is_update else each.access, position)
            positions[each.role] = position + 1
        for each in operation.operands:
            if each.access.writes:
                self._written.add(self._captured.tensors[each.memory].storage)

    def _saves(self, operation: StepOperation) -> Iterator[int]:
        """Saved storages but for weights, buffers and those that are freed before backward."""
        passing = (BufferKind.FEATURE_MAP, BufferKind.LABELS)
        for each in operation.saves if operation.phase is Phase.FORWARD else ():
            storage = self._captured.storages[each]
            if storage.is_held_after(self._forward_end) and (not storage.given or storage.kind in passing):
                yield each


def ranks_of(workload: Workload) -> int:
    return workload.captured.ranks if isinstance(workload, CapturedWorkload) else 1
