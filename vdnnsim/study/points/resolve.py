"""A point of a study as a scenario with one policy, and the key under which its result is kept."""

import hashlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final, Generic, TypeAlias, TypeVar, cast

from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.element_type import ElementType, Precision
from vdnnsim.errors import StudyError, VdnnsimError, is_fault
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory, memory_choice
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.port import Policy, is_shipped
from vdnnsim.scenario.captured import captured_model
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.figures import COMPUTE_SPEED, with_figures
from vdnnsim.study.version import model_version

Value: TypeAlias = int | float | str | Policy
"""One value of a point: figures are SI numbers, choices the words of a scenario."""

Point: TypeAlias = Mapping[str, Value]
"""One combination: a value for the key of every axis."""

Made = TypeVar("Made")

POLICY: Final = "policy"
_BATCH_SIZE: Final = "workload.batch_size"
STEP_KEY: Final = "workload.step"
OF_CAPTURE: Final = frozenset(
    f"workload.{name}" for name in ("network", "precision", "element_type", "optimizer", "mode")
)
"""What the file of a captured step says."""
_FIGURES: Final = ("gpu.", "link.", "host.", "cost_model.")
_KEPT: Final = 4096
_KEPT_GRAPHS: Final = 32


@dataclass(frozen=True, slots=True)
class Resolved:
    """One point with all choices made.

    Attributes:
        key: under which its result is kept: of all that decides it, and of the version of the model.
        scenario: with one policy; None where the values do not go together.
        compute_speed: every kernel takes its time over it.
        costs_key: equal where cost tables are.
        copies_key: equal where links, host and what it pins are.
        error: why there is no scenario; empty where there is one.
        is_fault: whether a file could not be read, and the values may go together another time.
    """

    key: str
    scenario: Scenario | None
    compute_speed: float = 1.0
    costs_key: str = ""
    copies_key: str = ""
    error: str = ""
    is_fault: bool = False


class Kept(Generic[Made]):
    """What was made last, kept for who asks again: up to `most` things by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, Made] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what was made under a key, or make it."""
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        made = self._made[key] = make()
        if len(self._made) > self._most:
            self._made.popitem(last=False)
        return made


class Resolver:
    """Resolves the points of one study; what many points have in common is made once."""

    def __init__(self, base: Scenario, folder: Path) -> None:
        """Resolve from a scenario; profiles are looked up beside a folder."""
        self._base = base
        self._folder = folder
        self._profiles: Kept[Server] = Kept(_KEPT_GRAPHS)
        self._servers: Kept[tuple[Server, str, str]] = Kept(_KEPT)
        self._graphs: Kept[LayerGraph] = Kept(_KEPT_GRAPHS)
        self._captures: Kept[CapturedModel] = Kept(_KEPT_GRAPHS)
        self._workloads: Kept[tuple[Workload, str]] = Kept(_KEPT)

    def resolve(self, point: Point) -> Resolved:
        """Return a point with its key; where its values do not go together, with the reason."""
        try:
            return self._resolve(point)
        except VdnnsimError as failure:
            values = sorted((key, repr(value)) for key, value in point.items())
            key = _digest(values, str(failure), model_version())
            return Resolved(key, None, error=str(failure), is_fault=is_fault(failure))

    def _resolve(self, point: Point) -> Resolved:
        base = self._base
        workload, workload_text = self._workload(point)
        server, costs_text, copies_text = self._server(point)
        gpus = cast("int", point.get("gpus", base.gpus))
        scenario = replace(
            base,
            workload=workload,
            server=server,
            policies=(cast("Policy", point[POLICY]),),
            memory_model=memory_choice(cast("str", point.get("memory_model", base.memory_model.value))),
            pinned_memory=PinnedMemory(point.get("pinned_memory", base.pinned_memory)),
            gpus=gpus,
            gradients=_gradients(point, base, gpus, workload.mode),
            # Made, it varies no more, and whoever computes the point need not be sent its captures.
            captured=None,
        )
        _check(scenario)
        speed = float(cast("float", point.get(COMPUTE_SPEED, 1.0)))
        choices = (scenario.memory_model.value, scenario.pinned_memory.value, gpus, str(scenario.gradients))
        costs_key = _digest(workload_text, scenario.execution.value, costs_text, speed)
        copies_key = _digest(copies_text, scenario.pinned_memory.value)
        whole = (
            costs_key,
            copies_key,
            server.gpu,
            server.host.memory_bytes,
            choices,
            _policy_text(scenario.policies[0]),
        )
        return Resolved(_digest(*whole, model_version()), scenario, speed, costs_key, copies_key)

    def _workload(self, point: Point) -> tuple[Workload, str]:
        base = self._base.workload
        if (model := self._captured(point)) is not None:
            return self._captured_workload(point, model)
        network = cast("str", point.get("workload.network", base.graph.name))
        batch_size = cast("int", point.get(_BATCH_SIZE, base.batch_size))
        precision = Precision(point.get("workload.precision", point.get("workload.element_type", base.precision)))
        optimizer = Optimizer(point.get("workload.optimizer", base.optimizer))
        mode = Mode(point.get("workload.mode", base.mode))
        named = (network, batch_size, precision.value, optimizer.value, mode.value)

        def make() -> tuple[Workload, str]:
            graph = self._graph(network, precision.autocast)
            return Workload(graph, batch_size, precision.element_type, optimizer, mode), repr(named)

        return self._workloads.get(named, make)

    def _captured(self, point: Point) -> CapturedModel | None:
        """Return the captured model of a point, or that of the base; None of a network of ours."""
        step = cast("str | None", point.get(STEP_KEY))
        if step is None:
            return self._base.captured
        return self._captures.get(step, lambda: captured_model(self._folder / step, self._base.execution))

    def _captured_workload(self, point: Point, model: CapturedModel) -> tuple[Workload, str]:
        """Return a captured model, of which only the batch may vary."""
        for key in sorted(OF_CAPTURE & point.keys()):
            raise StudyError(f"{key}: {told_by_capture(model)}")
        own = model.base if model is not self._base.captured else self._base.workload
        batch_size = cast("int", point.get(_BATCH_SIZE, own.batch_size))
        named = (batch_size, *(sha256 for _, sha256 in model.sources))
        return self._workloads.get(named, lambda: (model.workload(batch_size), repr(named)))

    def _graph(self, network: str, half: ElementType | None) -> LayerGraph:
        base = self._base.workload.graph
        if (network, half) == (base.name, base.autocast):
            return base
        if half is None:
            return self._graphs.get(network, lambda: build_network(network))
        return self._graphs.get((network, half), lambda: self._graph(network, None).under_autocast(half))

    def _server(self, point: Point) -> tuple[Server, str, str]:
        figures = {
            key: cast("float", value)
            for key, value in point.items()
            if key.startswith(_FIGURES) and key != COMPUTE_SPEED
        }
        name = cast("str | None", point.get("hardware"))

        def make() -> tuple[Server, str, str]:
            machine = self._base.server
            if name is not None:
                machine = self._profiles.get(name, lambda: read_profile(find_profile(name, self._folder)))
            server = with_figures(machine, figures)
            return server, _costs_text(server), _copies_text(server)

        return self._servers.get((name, *sorted(figures.items())), make)


def told_by_capture(model: CapturedModel) -> str:
    """Return why what the file of a captured step says cannot be varied."""
    return f"{model.base.model} was captured, and its file says it; expected another capture"


def shown(value: Value) -> int | float | str:
    """Return a value as tables have it."""
    return value.label if isinstance(value, Policy) else value


def _gradients(point: Point, base: Scenario, gpus: int, mode: Mode) -> Aggregation | None:
    """Return how gradients are added up: as the point or its base say, the CPU's way where neither does."""
    if gpus == 1 or mode is Mode.INFERENCE:
        return None
    return Aggregation(point.get("gradients", base.gradients or Aggregation.CPU))


def _check(scenario: Scenario) -> None:
    """Refuse values that do not go together.

    Raises:
        StudyError: the machine lacks the GPUs or the element type, or inference has an optimizer.
    """
    server, workload = scenario.server, scenario.workload
    there = 1 if server.topology is None else len(server.topology.gpus)
    if scenario.gpus > there:
        raise StudyError(f"{server.name}: found {scenario.gpus} GPUs, but it has {there}")
    if not server.computes_in(workload.element_type):
        raise StudyError(f"{server.name}: states no gpu.peak for {workload.element_type.value}")
    if workload.mode is Mode.INFERENCE and workload.optimizer is not Optimizer.NONE:
        raise StudyError("inference updates no weights, expected the optimizer none")


def _costs_text(server: Server) -> str:
    gpu, kernels = server.gpu, server.kernels
    peaks = sorted((element_type.value, rate) for element_type, rate in gpu.flop_per_s.items())
    measured = () if kernels is None else (kernels.sha256, kernels.tf32, kernels.channels_last)
    model = server.cost_model_kind, sorted(server.cost_model.items())
    return repr((server.name, peaks, gpu.dram_bytes_per_s, gpu.multiprocessors, model, measured))


def _copies_text(server: Server) -> str:
    return repr((server.link, replace(server.host, memory_bytes=0), server.topology))


@cache
def _source(policy: type[Policy]) -> str:
    """Return the digest of the module of a user's policy; those of vdnnsim are in the version of the model."""
    if is_shipped(policy):
        return ""
    file = inspect.getsourcefile(policy)
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _policy_text(policy: Policy) -> str:
    return f"{type(policy).__module__} {policy!r} {_source(type(policy))}"


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
