"""cuDNN's plans for a convolution, on a GPU or for one that is only described.

    finder = PlanFinder(Target(properties=described_device(properties)))   # no GPU needed, since cuDNN 9.8
    finder = PlanFinder(Target(handle=cudnn.create_handle()))              # the GPU of this process

cuDNN is called through NVIDIA's package `cudnn` (PyPI: nvidia-cudnn-frontend), which finds the cuDNN 9 of PyTorch or
one installed beside it. Its heuristics list engines with knobs set, best guess first; engines that they leave out,
explicit GEMM among them, are requested by number with default knobs. The frontend shows the numerical notes of an
engine only by filtering, so each note is tried as a filter; notes are assumed to depend on engine, phase, element type
and layout, not on the shape.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibration.kernels.cudnn_plans import (
    ConvolutionPlan,
    ConvolutionProblem,
    Operand,
    distinct,
    engine_of,
    is_admitted,
    is_engine,
)
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import DeviceError
from vdnnsim.units import ElementType

_ENGINE_NUMBERS = range(128)
"""Beyond any engine of cuDNN 9; a number that no engine has is refused like one that cannot compute the problem."""

_DILATION = [1, 1]


@dataclass(frozen=True, slots=True)
class Target:
    """The device that plans are for: a handle of cuDNN on a GPU, or the properties of one that need not be there."""

    handle: Any = None
    properties: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"device_property": self.properties} if self.handle is None else {"handle": self.handle}


@dataclass(frozen=True, slots=True)
class Offer:
    """The plans of cuDNN for one problem.

    Attributes:
        operands: the graph's tensors by the names of the problem's operands.
        plans: one for each admitted engine and workspace, best guess of cuDNN's heuristics first.
        positions: of each plan in the graph, by its name.
        left_out: names of plans that could not be built.
    """

    graph: Any
    operands: Mapping[str, Any]
    plans: tuple[ConvolutionPlan, ...]
    positions: Mapping[str, int]
    left_out: tuple[str, ...]


def frontend() -> Any:  # noqa: ANN401 - the package has no types
    """Return NVIDIA's package `cudnn`, or raise DeviceError where it is not installed, or finds no cuDNN."""
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, RuntimeError, OSError) as failure:
        raise DeviceError(
            f"cuDNN cannot be asked: {first_line(failure)}; pip install nvidia-cudnn-frontend nvidia-cudnn-cu13"
        ) from None
    return cudnn


def first_line(failure: Exception) -> str:
    """Return the message of an exception of the frontend in one line."""
    return str(failure).partition("\n")[0] or type(failure).__name__


def described_device(properties: Mapping[str, object]) -> Any:  # noqa: ANN401 - as above
    """Return the frontend's object for a device that need not exist.

    Properties go by cuDNN's own names (`deviceVer` 900 is compute capability 9.0), and all are required.

    Raises:
        DeviceError: cuDNN is not there, or cannot read the properties.
    """
    cudnn = frontend()
    try:
        return cudnn.create_device_properties(json.dumps(properties))
    except RuntimeError as failure:
        raise DeviceError(f"cuDNN cannot describe a device: {first_line(failure)}") from None


@dataclass(frozen=True, slots=True)
class _Notes:
    numerical: frozenset[str]
    behavior: tuple[str, ...]


@dataclass
class PlanFinder:
    """Finds the plans of problems for one device, and caches the notes of engines."""

    target: Target
    _notes: dict[tuple[Phase, ElementType, bool, int], _Notes] = field(default_factory=dict)

    def find(self, problem: ConvolutionProblem) -> Offer:
        graph, operands = _graph(problem, self.target)
        _list_plans(graph)
        plans = []
        positions: dict[str, int] = {}
        left_out = []
        for position in range(graph.get_execution_plan_count()):
            name = graph.get_plan_name_at_index(position)
            if not is_engine(name) or name in positions:
                continue
            notes = self._notes_of(problem, engine_of(name))
            if notes is None or not _builds(graph, position):
                left_out.append(name)
                continue
            positions[name] = position
            workspace_bytes = int(graph.get_workspace_size_plan_at_index(position))
            plans.append(ConvolutionPlan(name, workspace_bytes, notes.numerical, notes.behavior))
        counting = distinct(plan for plan in plans if is_admitted(plan.numerical_notes, problem))
        return Offer(graph, operands, tuple(counting), positions, tuple(left_out))

    def _notes_of(self, problem: ConvolutionProblem, engine: int) -> _Notes | None:
        """Return the notes of an engine; None where it cannot be built alone with its default knobs."""
        key = (problem.phase, problem.element_type, problem.channels_last, engine)
        if key not in self._notes:
            if (graph := self._alone(problem, engine)) is None or not _builds(graph, 0):
                return None
            behavior = tuple(note.name for note in graph.get_behavior_notes_for_plan_at_index(0))
            self._notes[key] = _Notes(self._numerical_notes(problem, engine), behavior)
        return self._notes[key]

    def _numerical_notes(self, problem: ConvolutionProblem, engine: int) -> frozenset[str]:
        """Return the numerical notes of an engine: those with which as the required note it is still built.

        A refusal costs nothing, while some engines are compiled when they are built: so notes are required, not barred.
        """
        found = set()
        for name, note in frontend().numerical_note.__members__.items():
            graph = self._alone(problem, engine)
            assert graph is not None, "an engine that was found once is found again"
            graph.select_numeric_notes([note])
            if _builds(graph, 0):
                found.add(name)
        return frozenset(found)

    def _alone(self, problem: ConvolutionProblem, engine: int) -> Any | None:  # noqa: ANN401
        """Return a graph with one plan: frontends before 1.32 mix up the notes of several requested engines."""
        graph, _ = _graph(problem, self.target)
        return graph if _add_engine(graph, engine) else None


def _list_plans(graph: Any) -> None:  # noqa: ANN401
    """List the plans of cuDNN's heuristics, then every engine that they leave out."""
    modes = frontend().heur_mode
    if not _succeeds(graph.create_execution_plans, [modes.A, modes.B, modes.FALLBACK]):
        return
    names = {graph.get_plan_name_at_index(position) for position in range(graph.get_execution_plan_count())}
    listed = {engine_of(name) for name in names if is_engine(name)}
    for engine in _ENGINE_NUMBERS:
        if engine not in listed:
            _add_engine(graph, engine)


def _graph(problem: ConvolutionProblem, target: Target) -> tuple[Any, dict[str, Any]]:
    cudnn = frontend()
    element = {
        ElementType.FLOAT32: cudnn.data_type.FLOAT,
        ElementType.FLOAT16: cudnn.data_type.HALF,
        ElementType.BFLOAT16: cudnn.data_type.BFLOAT16,
    }[problem.element_type]
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=element, intermediate_data_type=single, compute_data_type=single, **target.arguments
    )

    def given(operand: Operand) -> Any:  # noqa: ANN401
        return graph.tensor(
            name=operand.name, dim=list(operand.dimensions), stride=list(operand.strides), data_type=element
        )

    x, w, y = problem.map_operand, problem.filter_operand, problem.output_operand
    window: dict[str, Any] = {
        "padding": list(problem.shape.padding),
        "stride": list(problem.shape.stride),
        "dilation": _DILATION,
        "compute_data_type": single,
    }
    match problem.phase:
        case Phase.FORWARD:
            result, operands = y, {x.name: given(x), w.name: given(w)}
            output = graph.conv_fprop(image=operands[x.name], weight=operands[w.name], **window)
        case Phase.BACKWARD_DATA:
            result, operands = x, {y.name: given(y), w.name: given(w)}
            output = graph.conv_dgrad(loss=operands[y.name], filter=operands[w.name], **window)
        case _:
            assert problem.phase is Phase.BACKWARD_WEIGHTS, f"{problem.phase} is no phase of a convolution"
            result, operands = w, {x.name: given(x), y.name: given(y)}
            output = graph.conv_wgrad(image=operands[x.name], loss=operands[y.name], **window)
    # Without strides the frontend assumes an output in N, H, W, C and adds a conversion.
    output.set_output(True).set_dim(list(result.dimensions)).set_stride(list(result.strides)).set_data_type(element)
    graph.validate()
    graph.build_operation_graph()
    return graph, {**operands, result.name: output}


def _add_engine(graph: Any, engine: int) -> bool:  # noqa: ANN401
    """Add an engine with its default knobs; return whether it can compute the problem."""
    return _succeeds(graph.create_execution_plan, engine, {})


def _builds(graph: Any, position: int) -> bool:  # noqa: ANN401
    return _succeeds(graph.build_plan_at_index, position)


def _succeeds(call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
    except (RuntimeError, frontend().cudnnGraphNotSupportedError):
        return False
    return True
