"""A captured step as what the rest works on: its storages, tensors and operations, and the layers that they make up.

Storages and tensors keep their numbers, operations their order. Feature maps and gradients that are none of the layer
graph's (`vdnnsim.dnn.captured_graph`) are workspaces of the layer that makes them: they live while they are needed, and
no policy may move them. So is a gradient of weights that is given up before the update, as the narrow one of autocast,
whose narrow copies of weights are statistics of the layer that reads them. What the program holds longer than any
operation reads it is held by the operation after which it is freed (`StepOperation.holds`).

A captured model says not where its classifier begins: all of it counts as feature extraction.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from vdnnsim.dnn.captured_graph import TYPES, Layering
from vdnnsim.dnn.captured_step import CapturedOperation, CapturedStep, CapturedStorage
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Step, StepOperation, Storage, Tensor

_RESIDENT: Final = (BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE)
"""What holds from iteration to iteration."""


@dataclass(frozen=True)
class CapturedView:
    """What a captured step is to costs, policies and reports.

    Attributes:
        rounds: micro-batches before the update; `step` and `graph` are of one.
    """

    captured: CapturedStep
    rounds: int
    step: Step
    graph: LayerGraph


def view_of(captured: CapturedStep) -> CapturedView:
    """Return the view of a step that was checked (`vdnnsim.dnn.captured_check`).

    Of one with several micro-batches it is that of the last (`vdnnsim.dnn.captured_view`).

    Raises:
        ScenarioError: it has a forward that makes no map.
    """
    last = last_round(captured)
    layering = Layering(last)
    return CapturedView(captured, rounds_of(captured), _Steps(last, layering).step(), layering.graph)


class _Steps:
    def __init__(self, captured: CapturedStep, layering: Layering) -> None:
        self._captured = captured
        self._layering = layering
        self._end = len(captured.operations) - 1
        phases = [each.phase for each in captured.operations]
        self._forward_end = max((at for at, phase in enumerate(phases) if phase is Phase.FORWARD), default=-1)
        self._written = {number for number, each in enumerate(captured.storages) if each.given}
        updates = (at for at, each in enumerate(captured.operations) if each.phase is Phase.UPDATE)
        self._updates = next(updates, self._end)

    def step(self) -> Step:
        captured = self._captured
        return Step(
            tuple(self._storage(number) for number in range(len(captured.storages))),
            tuple(Tensor(each.storage, each.shape, each.offset_bytes) for each in captured.tensors),
            tuple(self._operations()),
        )

    def _storage(self, number: int) -> Storage:
        each, use = self._captured.storages[number], self._layering.uses[number]
        kind, owner = self._kind_and_owner(number)
        is_resident = kind in _RESIDENT
        return Storage(
            name=each.name,
            kind=kind,
            nbytes=each.nbytes,
            element_type=TYPES.get(each.element_type),
            stage=Stage.FEATURES,
            given=each.given,
            owner=owner,
            birth=0 if each.given or is_resident else use.first,
            death=self._end if is_resident or each.freed_after is None else each.freed_after,
        )

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
            case BufferKind.WEIGHT_GRADIENT if each.freed_after is not None and each.freed_after < self._updates:
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
            if not _is_resident(each) and freed_after > self._layering.uses[number].last:
                holds[freed_after].append(number)
        for number, operation in enumerate(self._captured.operations):
            yield StepOperation(
                module=self._captured.modules[operation.module].path,
                layer=self._layering.layer_of[number],
                phase=operation.phase,
                operands=tuple(self._operands(operation)),
                flop=operation.flop,
                bytes_moved=operation.bytes_moved,
                temporary_bytes=operation.temporary_bytes,
                random=operation.random,
                saves=tuple(self._saves(operation)),
                holds=tuple(holds[number]),
                captured=operation,
            )

    def _operands(self, operation: CapturedOperation) -> Iterator[Operand]:
        """What is written once more keeps its memory, and perhaps some of its content: it is updated."""
        positions = Counter[Role]()
        for each in operation.operands:
            storage = self._captured.tensors[each.tensor].storage
            again = each.access is Access.WRITE and storage in self._written
            access = Access.UPDATE if again else each.access
            yield Operand(each.role, each.tensor, access, positions[each.role])
            positions[each.role] += 1
        for each in operation.operands:
            if each.access.writes:
                self._written.add(self._captured.tensors[each.tensor].storage)

    def _saves(self, operation: CapturedOperation) -> Iterator[int]:
        """Autograd keeps weights and buffers too, which stay anyway; forward keeps none of what is computed again.

        Nor what it saved and freed, as of a part of the graph that no loss hangs on.
        """
        passing = (BufferKind.FEATURE_MAP, BufferKind.LABELS)
        for each in operation.saves if operation.phase is Phase.FORWARD else ():
            storage = self._captured.storages[each]
            if storage.is_held_after(self._forward_end) and (not storage.given or storage.kind in passing):
                yield each


def _is_resident(storage: CapturedStorage) -> bool:
    return storage.given and storage.kind in _RESIDENT


def rounds_of(step: CapturedStep) -> int:
    """Return how many micro-batches an iteration has: how often it runs forward and backward before it updates."""
    return max(1, len(_starts(step)))


def last_round(step: CapturedStep) -> CapturedStep:
    """Return the last micro-batch and the update, as an iteration that finds what those before it left.

    All but the first are alike: weight gradients are there, to which backward adds. So the last is the iteration that
    policies plan, and what they plan is done as often as there are micro-batches (`vdnnsim.plans.lowering`). Of the
    first it says a little too much memory: that of gradients which backward is about to make.
    """
    starts = _starts(step)
    if len(starts) < 2:
        return step
    return _Cut(step, starts[-1]).rest()


def _starts(step: CapturedStep) -> list[int]:
    phases = [each.phase for each in step.operations]
    before = [None, *phases]
    return [at for at, phase in enumerate(phases) if phase is Phase.FORWARD and before[at] is not Phase.FORWARD]


@dataclass
class _Cut:
    """A step, and the first of the operations that stay."""

    step: CapturedStep
    first: int

    def rest(self) -> CapturedStep:
        """Return the operations that stay, with the storages that they find or make, by new numbers."""
        step, kept = self.step, self.step.operations[self.first :]
        touched = {step.tensors[each.tensor].storage for operation in kept for each in operation.operands}
        made = self._made_before()
        stays = [
            number
            for number, each in enumerate(step.storages)
            if number in touched or (number in made and each.is_held_after(self.first - 1))
        ]
        storages = {number: at for at, number in enumerate(stays)}
        tensors = [number for number, each in enumerate(step.tensors) if each.storage in storages]
        views = {number: at for at, number in enumerate(tensors)}
        return msgspec.structs.replace(
            step,
            storages=tuple(self._storage(number, found=number in made, read=number in touched) for number in stays),
            tensors=tuple(
                msgspec.structs.replace(step.tensors[number], storage=storages[step.tensors[number].storage])
                for number in tensors
            ),
            operations=tuple(self._operation(each, storages, views) for each in kept),
        )

    def _made_before(self) -> set[int]:
        """Return the storages that are there when the first operation begins."""
        given = {number for number, each in enumerate(self.step.storages) if each.given}
        tensors = self.step.tensors
        written = (each for operation in self.step.operations[: self.first] for each in operation.operands)
        return given | {tensors[each.tensor].storage for each in written if each.access.writes}

    def _storage(self, number: int, *, found: bool, read: bool) -> CapturedStorage:
        each = self.step.storages[number]
        # An input of another micro-batch is memory that the program holds, and no map.
        kind = BufferKind.LABELS if each.kind is BufferKind.FEATURE_MAP and found and not read else each.kind
        freed_after = None if each.freed_after is None else each.freed_after - self.first
        return msgspec.structs.replace(each, kind=kind, given=found, freed_after=freed_after)

    def _operation(
        self, operation: CapturedOperation, storages: dict[int, int], views: dict[int, int]
    ) -> CapturedOperation:
        return msgspec.structs.replace(
            operation,
            operands=tuple(msgspec.structs.replace(each, tensor=views[each.tensor]) for each in operation.operands),
            forward=None if operation.forward is None else operation.forward - self.first,
            saves=tuple(storages[each] for each in operation.saves if each in storages),
        )
