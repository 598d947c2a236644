"""Execution traces of PyTorch (`ExecutionTraceObserver`): which storages each operator read and returned.

A tensor is `[tensor, storage, offset, elements, bytes of an element, device]`; a list of tensors is a list of those.
Operators are those of the profiler's trace of the same run, by the number of their record. Two schemas are read: up to
1.0 arguments stand in the node itself, since 1.0.3 beside their shapes and types, with attributes in a list.
Source: PyTorch, `torch/csrc/profiler/standalone/execution_trace_observer.cpp`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import file_name
from vdnnsim.recordings.recording_file import read_json

_TENSOR: Final = 6
_LARGEST: Final = 2**50
_EXPECTED: Final = "expected an execution trace, as torch.profiler.ExecutionTraceObserver writes it"


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor that an operator read or returned.

    Attributes:
        storage: its number, which another storage may have later.
        end_bytes: of the storage that it covers at least.
        argument: the position of the argument that it is, or is in.
    """

    storage: int
    end_bytes: int
    offset_bytes: int
    elements: int
    element_bytes: int
    argument: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Node:
    """An operator that ran; `parent` is the node that called it."""

    number: int
    parent: int
    name: str
    inputs: tuple[TensorView, ...]
    outputs: tuple[TensorView, ...]


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """What was recorded.

    Attributes:
        nodes: in the order in which they began.
        by_record: by the number by which the profiler's trace calls them.
    """

    name: str
    nodes: tuple[Node, ...]
    by_record: dict[int, Node]


class _Arguments(msgspec.Struct):
    values: Any = ()


class _Node(msgspec.Struct):
    id: int
    name: str = ""
    parent: int = 0
    ctrl_deps: int = 0
    rf_id: int | None = None
    inputs: _Arguments | list[Any] = ()  # type: ignore[assignment]
    outputs: _Arguments | list[Any] = ()  # type: ignore[assignment]
    attrs: list[dict[str, Any]] = []


class _File(msgspec.Struct):
    nodes: list[_Node] | None = None


def read_execution_trace(path: Path) -> ExecutionTrace:
    """Read an execution trace.

    Raises:
        RecordingError: the file cannot be read, is larger than 1 GiB unpacked, or is no execution trace.
    """
    name = file_name(path)
    file = read_json(path, _File, _EXPECTED)
    if file.nodes is None:
        raise RecordingError(f"{name}: found JSON without 'nodes', {_EXPECTED}")
    nodes, by_record = [], {}
    for each in sorted(file.nodes, key=lambda each: each.id):
        node = Node(each.id, each.ctrl_deps or each.parent, each.name, _views(each.inputs), _views(each.outputs))
        nodes.append(node)
        record = each.rf_id if each.rf_id is not None else _attribute(each, "rf_id")
        if record is not None:
            by_record[record] = node
    return ExecutionTrace(name, tuple(nodes), by_record)


def _attribute(node: _Node, name: str) -> int | None:
    found = next((each.get("value") for each in node.attrs if each.get("name") == name), None)
    return found if isinstance(found, int) else None


def _views(arguments: _Arguments | list[Any]) -> tuple[TensorView, ...]:
    values = arguments.values if isinstance(arguments, _Arguments) else arguments
    views: list[TensorView] = []
    for argument, value in enumerate(values if isinstance(values, list) else ()):
        listed = value if isinstance(value, list) and value and all(_is_tensor(each) for each in value) else [value]
        views.extend(_view(each, argument) for each in listed if _is_tensor(each))
    return tuple(views)


def _is_tensor(value: object) -> bool:
    """Whether a value is a tensor with elements."""
    if not isinstance(value, list) or len(value) != _TENSOR or not isinstance(value[-1], str):
        return False
    numbers = value[:-1]
    return all(isinstance(each, int) and 0 <= each < _LARGEST for each in numbers) and numbers[3] * numbers[4] > 0


def _view(value: list[Any], argument: int) -> TensorView:
    _, storage, offset, elements, size, device = value
    return TensorView(
        storage, (offset + elements) * size, offset * size, elements, size, argument, device.startswith("cuda")
    )
