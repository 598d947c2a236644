"""What lives when in a recorded step, by the storages of an execution trace.

A number stands for a storage as long as nothing else is made under it: what an operator returns that it was not given,
and what PyTorch makes empty, is a new one. A storage is freed after the last operation that touches it, for no trace
tells when Python lets go of it; what a step finds there and its update changes are weights, and states of the optimizer
if forward does not read them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.dnn.captured_step import CapturedOperand, CapturedStorage, CapturedTensor
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import INDEX_BYTES, Access, BufferKind, Role
from vdnnsim.errors import RecordingError
from vdnnsim.recordings.execution_trace import ExecutionTrace, Node, TensorView
from vdnnsim.recordings.recorded_step import RecordedStep

_MAKES_EMPTY: Final = re.compile(r"^aten::(new_)?empty(_like|_strided|_permuted)?$")
_OVERWRITES: Final = frozenset({"fill_", "zero_", "copy_"})
_TYPES: Final = {1: "bool", 2: "float16", 4: "float32", 8: "int64"}
_ENOUGH: Final = 0.95
_NOTE: Final = "what lives when is as in the execution trace: freed after the last operation that touches it"


@dataclass(frozen=True, slots=True)
class Memory:
    """The storages and tensors of a step, and by operation what it touches and what autograd keeps of it."""

    storages: tuple[CapturedStorage, ...]
    tensors: tuple[CapturedTensor, ...]
    operands: tuple[tuple[CapturedOperand, ...], ...]
    saves: tuple[tuple[int, ...], ...]
    note: str
    lifetimes: bool


@dataclass(slots=True)
class _Storage:
    """One storage: which operations touch it and how, and whether one takes it for samples, or for weights."""

    name: str
    given: bool
    nbytes: int = 0
    element_bytes: int = 4
    uses: list[tuple[int, Access]] = field(default_factory=list)
    is_sample: bool = False
    is_weight: bool = False


def recorded_memory(recorded: RecordedStep, phases: Sequence[Phase], execution: ExecutionTrace) -> Memory:
    """Return what lives when in a step, by the execution trace of the same run.

    Raises:
        RecordingError: it is of another run, or does not have the step.
    """
    records = [each.call.event.record for each in recorded.operations]
    nodes = [execution.by_record.get(each) if each is not None else None for each in records]
    found = sum(each is not None for each in nodes)
    if found < _ENOUGH * len(nodes):
        raise RecordingError(
            f"{execution.name}: has {found:,} of the {len(nodes):,} operators of {recorded.step.name}, expected the "
            "execution trace of the same run: profile(..., execution_trace_observer=ExecutionTraceObserver())"
        )
    return _Reader(recorded, phases, execution, nodes).memory()


class _Reader:
    def __init__(
        self,
        recorded: RecordedStep,
        phases: Sequence[Phase],
        execution: ExecutionTrace,
        nodes: Sequence[Node | None],
    ) -> None:
        self._recorded = recorded
        self._phases = phases
        self._nodes = nodes
        self._execution = execution
        self._storages: list[_Storage] = []
        self._current: dict[int, int] = {}
        self._tensors: dict[tuple[int, int, int], int] = {}
        self._touched: list[list[tuple[int, TensorView, Access]]] = [[] for _ in nodes]

    def memory(self) -> Memory:
        self._walk()
        kinds = [self._kind(each) for each in self._storages]
        last = len(self._nodes) - 1
        storages = tuple(
            CapturedStorage(
                each.name,
                kind,
                each.nbytes,
                _TYPES.get(each.element_bytes, "float64"),
                each.given,
                None if each.given else last if kind is BufferKind.WEIGHT_GRADIENT else each.uses[-1][0],
            )
            for each, kind in zip(self._storages, kinds, strict=True)
        )
        operands = tuple(tuple(self._operands(at, kinds)) for at in range(len(self._nodes)))
        tensors = tuple(
            CapturedTensor(storage, (elements,), storages[storage].element_type, offset)
            for storage, offset, elements in self._tensors
        )
        return Memory(storages, tensors, operands, self._saves(), _NOTE, lifetimes=True)

    def _walk(self) -> None:
        """Go through the step as it ran, and tell storages apart that had the same number one after the other."""
        position = {each.number: at for at, each in enumerate(self._nodes) if each is not None}
        within: set[int] = set()
        numbers = sorted(position)
        for node in self._execution.nodes:
            if not numbers[0] <= node.number <= numbers[-1] and node.parent not in within:
                continue
            if node.parent in within or node.parent in position:
                within.add(node.number)
            if node.number in position:
                self._run(node, position[node.number])
            elif node.number not in within and _MAKES_EMPTY.match(node.name):
                for view in node.outputs:
                    self._current.pop(view.storage, None)

    def _run(self, node: Node, at: int) -> None:
        name = self._recorded.operations[at].name
        in_place = name.endswith("_") and not name.startswith("__")
        given = {each.storage for each in node.inputs}
        for view in _on_gpu(node.inputs):
            first = view.argument == 0 and in_place
            access = (Access.WRITE if name in _OVERWRITES else Access.UPDATE) if first else Access.READ
            self._touch(at, view, access, name)
        for view in _on_gpu(node.outputs):
            if view.storage not in given:
                self._current.pop(view.storage, None)
                self._touch(at, view, Access.WRITE, name)

    def _touch(self, at: int, view: TensorView, access: Access, name: str) -> None:
        number = self._current.get(view.storage)
        if number is None:
            number = self._current[view.storage] = len(self._storages)
            given = access is not Access.WRITE
            self._storages.append(_Storage(f"given {number}" if given else f"{name} {at}", given))
        storage = self._storages[number]
        storage.nbytes = max(storage.nbytes, view.end_bytes)
        storage.element_bytes = view.element_bytes
        storage.uses.append((at, access))
        if access is Access.READ and self._phases[at] is Phase.FORWARD:
            # Operators read samples first, or by number; products, weights after them.
            is_product = self._recorded.works[at].work is not None
            storage.is_weight |= is_product and view.argument > 0
            storage.is_sample |= view.argument == 0 or view.element_bytes == INDEX_BYTES
        self._touched[at].append((number, view, access))

    def _kind(self, storage: _Storage) -> BufferKind:
        phases = {self._phases[at] for at, _ in storage.uses}
        written = {self._phases[at] for at, access in storage.uses if access.writes}
        first = self._phases[storage.uses[0][0]]
        if Phase.UPDATE in phases:
            if not storage.given or Phase.BACKWARD in written:
                return BufferKind.WEIGHT_GRADIENT
            return BufferKind.WEIGHTS if Phase.FORWARD in phases else BufferKind.OPTIMIZER_STATE
        if storage.given:
            if storage.is_weight:
                return BufferKind.WEIGHTS
            return BufferKind.FEATURE_MAP if storage.is_sample else BufferKind.STATISTICS
        return BufferKind.GRADIENT_MAP if first is Phase.BACKWARD else BufferKind.FEATURE_MAP

    def _operands(self, at: int, kinds: Sequence[BufferKind]) -> Iterable[CapturedOperand]:
        """Yield what an operation touches, a storage that it reads and writes once."""
        seen: dict[int, CapturedOperand] = {}
        for number, view, access in self._touched[at]:
            key = number, view.offset_bytes, view.elements
            tensor = self._tensors.setdefault(key, len(self._tensors))
            before = seen.get(tensor)
            joint = access if before is None or before.access is access else Access.UPDATE
            seen[tensor] = CapturedOperand(_role(kinds[number], joint, self._phases[at]), tensor, joint)
        return seen.values()

    def _saves(self) -> tuple[tuple[int, ...], ...]:
        """Return by operation the storages of its own that its backward reads."""
        read: defaultdict[int, set[int]] = defaultdict(set)
        for at, operation in enumerate(self._recorded.operations):
            if operation.forward is not None and self._phases[at] is Phase.BACKWARD:
                read[operation.forward].update(number for number, _, access in self._touched[at] if access.reads)
        return tuple(
            tuple(sorted({number for number, *_ in touched} & read[at])) for at, touched in enumerate(self._touched)
        )


def _on_gpu(views: Iterable[TensorView]) -> Iterator[TensorView]:
    return (each for each in views if each.on_gpu)


def _role(kind: BufferKind, access: Access, phase: Phase) -> Role:
    match kind:
        case BufferKind.WEIGHTS:
            return Role.WEIGHTS
        case BufferKind.WEIGHT_GRADIENT:
            return Role.WEIGHT_GRADIENT
        case BufferKind.OPTIMIZER_STATE:
            return Role.STATE
        case BufferKind.STATISTICS:
            return Role.STATISTICS
        case BufferKind.GRADIENT_MAP:
            return Role.INPUT_GRADIENT if access.writes else Role.OUTPUT_GRADIENT
        case _:
            return Role.OUTPUT if access.writes or phase is not Phase.FORWARD else Role.INPUT
