"""Execution traces of PyTorch (`ExecutionTraceObserver`), and the lifetimes of a step's storages by one.

A tensor is `[tensor, storage, offset, elements, bytes of an element, device]`; a list of tensors is a list of those.
Operators are those of the profiler's trace of the same run, by the number of their record. Two schemas are read: up to
1.0 arguments are in the node itself, since 1.0.3 beside their shapes and types, with attributes in a list.
Source: PyTorch, `torch/csrc/profiler/standalone/execution_trace_observer.cpp`.

A storage's number is reused: an operator that returns a number which is none of its arguments, or that makes a tensor
empty, begins another storage. A storage counts as freed after its last use, for traces do not record when Python drops
it. Storages from before the step that the update changes are weights, or optimizer states if forward does not read
them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import INDEX_BYTES, Access, BufferKind, Operand, Role, Storage, Tensor
from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import file_name
from vdnnsim.recordings.recorded_step import RecordedStep
from vdnnsim.recordings.recording_file import read_json

_TENSOR: Final = 6
_LARGEST: Final = 2**50
_EXPECTED: Final = "expected an execution trace, as torch.profiler.ExecutionTraceObserver writes it"
_MAKES_EMPTY: Final = re.compile(r"^aten::(new_)?empty(_like|_strided|_permuted)?$")
_OVERWRITES: Final = frozenset({"fill_", "zero_", "copy_"})
_TYPES: Final = {1: "bool", 2: "float16", 4: "float32", 8: "int64"}
_ENOUGH: Final = 0.95
_NOTE: Final = "lifetimes are those of the execution trace: a storage is freed after its last use"


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor on the GPU that an operator read or returned.

    Attributes:
        storage: its number, which another storage may have later.
        end_bytes: of the tensor in its storage.
        argument: position of the argument that it is, or is in.
    """

    storage: int
    end_bytes: int
    offset_bytes: int
    elements: int
    element_bytes: int
    argument: int


class _Arguments(msgspec.Struct):
    values: Any = ()


class Node(msgspec.Struct, eq=False):
    """An operator that ran, as either schema has it."""

    id: int
    name: str = ""
    parent: int = 0
    ctrl_deps: int = 0
    rf_id: int | None = None
    inputs: _Arguments | list[Any] = ()  # type: ignore[assignment]
    outputs: _Arguments | list[Any] = ()  # type: ignore[assignment]
    attrs: list[dict[str, Any]] = []

    @property
    def caller(self) -> int:
        return self.ctrl_deps or self.parent

    @property
    def record(self) -> object:
        """Its number in the profiler's trace."""
        attributes = {str(each.get("name")): each.get("value") for each in self.attrs}
        return attributes.get("rf_id") if self.rf_id is None else self.rf_id


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """An execution trace, its nodes by their begin."""

    name: str
    nodes: tuple[Node, ...]
    by_record: dict[object, Node]


class _File(msgspec.Struct):
    nodes: list[Node] | None = None


def read_execution_trace(path: Path) -> ExecutionTrace:
    """Read an execution trace.

    Raises:
        RecordingError: the file cannot be read, is larger than 1 GiB unpacked, or is no execution trace.
    """
    name = file_name(path)
    file = read_json(path, _File, _EXPECTED)
    if file.nodes is None:
        raise RecordingError(f"{name}: found JSON without 'nodes', {_EXPECTED}")
    nodes = sorted(file.nodes, key=lambda each: each.id)
    return ExecutionTrace(name, tuple(nodes), {each.record: each for each in nodes if isinstance(each.record, int)})


def _views(arguments: _Arguments | list[Any]) -> tuple[TensorView, ...]:
    values = arguments.values if isinstance(arguments, _Arguments) else arguments
    views: list[TensorView] = []
    for argument, value in enumerate(values if isinstance(values, list) else ()):
        listed = value if isinstance(value, list) and value and all(_is_tensor(each) for each in value) else [value]
        for _, storage, offset, elements, size, device in filter(_is_tensor, listed):
            if device.startswith("cuda"):
                end = (offset + elements) * size
                views.append(TensorView(storage, end, offset * size, elements, size, argument))
    return tuple(views)


def _is_tensor(value: object) -> bool:
    if not isinstance(value, list) or len(value) != _TENSOR or not isinstance(value[-1], str):
        return False
    numbers = value[:-1]
    return all(isinstance(each, int) and 0 <= each < _LARGEST for each in numbers) and numbers[3] * numbers[4] > 0


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Storages and tensors of a step, and the operands and saved storages of each operation."""

    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    operands: tuple[tuple[Operand, ...], ...]
    saves: tuple[tuple[int, ...], ...]
    note: str
    lifetimes: bool


@dataclass(slots=True)
class _Storage:
    """One storage with its uses by operation, and whether one reads it as samples or as weights."""

    name: str
    given: bool
    nbytes: int = 0
    element_bytes: int = 4
    uses: list[tuple[int, Access]] = field(default_factory=list)
    is_sample: bool = False
    is_weight: bool = False


def recorded_memory(recorded: RecordedStep, phases: Sequence[Phase], execution: ExecutionTrace) -> StepMemory:
    """Return the lifetimes of a step's storages, by the execution trace of the same run.

    Raises:
        RecordingError: it is of another run, or lacks the step.
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


@dataclass(slots=True)
class _Reader:
    _recorded: RecordedStep
    _phases: Sequence[Phase]
    _execution: ExecutionTrace
    _nodes: Sequence[Node | None]
    _storages: list[_Storage] = field(default_factory=list)
    _current: dict[int, int] = field(default_factory=dict)
    _tensors: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _touched: defaultdict[int, list[tuple[int, TensorView, Access]]] = field(default_factory=lambda: defaultdict(list))

    def memory(self) -> StepMemory:
        self._walk()
        kinds = [self._kind(each) for each in self._storages]
        storages = []
        for each, kind in zip(self._storages, kinds, strict=True):
            last = len(self._nodes) - 1 if kind is BufferKind.WEIGHT_GRADIENT else each.uses[-1][0]
            element_type = _TYPES.get(each.element_bytes, "float64")
            freed_after = None if each.given else last
            storages.append(Storage(each.name, kind, each.nbytes, element_type, each.given, freed_after))
        operands = tuple(tuple(self._operands(at, kinds)) for at in range(len(self._nodes)))
        tensors = tuple(
            Tensor(storage, (elements,), storages[storage].element_type, offset)
            for storage, offset, elements in self._tensors
        )
        return StepMemory(tuple(storages), tensors, operands, self._saves(), _NOTE, lifetimes=True)

    def _walk(self) -> None:
        position = {each.id: at for at, each in enumerate(self._nodes) if each is not None}
        within: set[int] = set()
        numbers = sorted(position)
        for node in self._execution.nodes:
            if not numbers[0] <= node.id <= numbers[-1] and node.caller not in within:
                continue
            if node.caller in within or node.caller in position:
                within.add(node.id)
            if node.id in position:
                self._run(node, position[node.id])
            elif node.id not in within and _MAKES_EMPTY.match(node.name):
                for view in _views(node.outputs):
                    self._current.pop(view.storage, None)

    def _run(self, node: Node, at: int) -> None:
        name = self._recorded.operations[at].name
        in_place = name.endswith("_") and not name.startswith("__")
        inputs = _views(node.inputs)
        given = {each.storage for each in inputs}
        for view in inputs:
            first = view.argument == 0 and in_place
            access = (Access.WRITE if name in _OVERWRITES else Access.UPDATE) if first else Access.READ
            self._touch(at, view, access, name)
        for view in _views(node.outputs):
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
            # Samples are the first argument, or indices; weights of products come after them.
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

    def _operands(self, at: int, kinds: Sequence[BufferKind]) -> Iterable[Operand]:
        """Return the operands of an operation; what it reads and writes is updated."""
        seen: dict[int, Operand] = {}
        for number, view, access in self._touched[at]:
            key = number, view.offset_bytes, view.elements
            tensor = self._tensors.setdefault(key, len(self._tensors))
            before = seen.get(tensor)
            joint = access if before is None or before.access is access else Access.UPDATE
            seen[tensor] = Operand(_role(kinds[number], joint, self._phases[at]), tensor, joint)
        return seen.values()

    def _saves(self) -> tuple[tuple[int, ...], ...]:
        read: defaultdict[int, set[int]] = defaultdict(set)
        for at, operation in enumerate(self._recorded.operations):
            if operation.forward is not None and self._phases[at] is Phase.BACKWARD:
                read[operation.forward].update(number for number, _, access in self._touched[at] if access.reads)
        touched = ({number for number, *_ in self._touched[at]} for at in range(len(self._nodes)))
        return tuple(tuple(sorted(numbers & read[at])) for at, numbers in enumerate(touched))


_ROLES: Final = {
    BufferKind.WEIGHTS: Role.WEIGHTS,
    BufferKind.WEIGHT_GRADIENT: Role.WEIGHT_GRADIENT,
    BufferKind.OPTIMIZER_STATE: Role.STATE,
    BufferKind.STATISTICS: Role.STATISTICS,
}


def _role(kind: BufferKind, access: Access, phase: Phase) -> Role:
    if kind is BufferKind.GRADIENT_MAP:
        return Role.INPUT_GRADIENT if access.writes else Role.OUTPUT_GRADIENT
    return _ROLES.get(kind, Role.OUTPUT if access.writes or phase is not Phase.FORWARD else Role.INPUT)
