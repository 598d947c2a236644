"""Stands in for NVIDIA's package `cudnn`, as far as plans are found with it: an invented list of engines."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any


class NotSupportedError(Exception):
    """An engine that cannot compute the problem."""


class Note(Enum):
    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    NONDETERMINISTIC = 2
    FFT = 3


class Behavior(Enum):
    RUNTIME_COMPILATION = 0


@dataclass(frozen=True)
class Engine:
    """An engine: its workspace is this many bytes more for each unit of its one knob."""

    notes: frozenset[Note] = frozenset()
    workspace_bytes: int = 0
    works: bool = True
    runs: bool = True
    behaviors: tuple[Behavior, ...] = ()


@dataclass(eq=False)
class Tensor:
    name: str = "result"
    dim: list[int] = field(default_factory=list)
    stride: list[int] = field(default_factory=list)
    is_output: bool = False

    def __getattr__(self, name: str) -> Callable[[Any], "Tensor"]:
        """One of `set_output`, `set_dim`, `set_stride` and `set_data_type`."""

        def set_to(value: object) -> Tensor:
            setattr(self, {"set_output": "is_output"}.get(name, name.removeprefix("set_")), value)
            return self

        return set_to


@dataclass
class Graph:
    frontend: "Frontend"
    plans: list[str] = field(default_factory=list)
    wanted: set[Note] = field(default_factory=set)
    device: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)

    def tensor(self, *, name: str, dim: list[int], stride: list[int], data_type: object) -> Tensor:
        assert data_type is not None
        return Tensor(name, dim, stride)

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        """One of `conv_fprop`, `conv_dgrad` and `conv_wgrad`."""

        def convolve(**asked: object) -> Tensor:
            self.asked = {"operation": name.removeprefix("conv_"), **asked}
            return Tensor()

        return convolve

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        assert modes == ["A", "B", "FALLBACK"]
        if not self.frontend.heuristics:
            raise NotSupportedError
        self.plans += self.frontend.heuristics

    def create_execution_plan(self, engine: int, knobs: dict[object, object]) -> None:
        assert not knobs
        if engine not in self.frontend.engines:
            raise NotSupportedError
        self.plans.append(f"eng{engine}")

    def select_numeric_notes(self, notes: list[Note]) -> None:
        self.wanted.update(notes)

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_plan_name_at_index(self, position: int) -> str:
        return self.plans[position]

    def build_plan_at_index(self, position: int) -> None:
        engine = self._engine(position)
        if not engine.works or self.wanted - engine.notes:
            raise RuntimeError

    def get_workspace_size_plan_at_index(self, position: int) -> int:
        knob = self.plans[position].partition("_k2=")[2]
        return self._engine(position).workspace_bytes + int(knob or 0)

    def get_behavior_notes_for_plan_at_index(self, position: int) -> list[Behavior]:
        return list(self._engine(position).behaviors)

    def execute_plan_at_index(self, pointers: dict[Tensor, int], workspace: int, position: int, handle: object) -> None:
        name = self.plans[position]
        if not self._engine(position).runs:
            raise RuntimeError
        tensors = {tensor.name: pointer for tensor, pointer in pointers.items()}
        self.frontend.executed.append((name, tensors, workspace, handle))

    def _engine(self, position: int) -> Engine:
        return self.frontend.engines[int(self.plans[position].partition("_")[0].removeprefix("eng"))]


class Frontend(ModuleType):
    heur_mode = SimpleNamespace(A="A", B="B", FALLBACK="FALLBACK")
    data_type = SimpleNamespace(FLOAT="float", HALF="half", BFLOAT16="bfloat16")
    numerical_note = Note
    cudnnGraphNotSupportedError = NotSupportedError  # noqa: N815  # as the package has it

    def __init__(self, engines: dict[int, Engine], heuristics: list[str]) -> None:
        super().__init__("cudnn")
        self.engines, self.heuristics = engines, heuristics
        self.graphs: list[Graph] = []
        self.executed: list[tuple[str, dict[str, int], int, object]] = []
        self.streams: list[int] = []

    def backend_version(self) -> int:
        return 91901

    def backend_version_string(self) -> str:
        return "9.19.1"

    def create_device_properties(self, description: str) -> str:
        return description

    def set_stream(self, *, handle: object, stream: int) -> None:
        assert handle is not None
        self.streams.append(stream)

    def pygraph(self, **device: object) -> Graph:
        graph = Graph(self, device={key: device[key] for key in device if not key.endswith("data_type")})
        self.graphs.append(graph)
        return graph
