"""Resolved points: the scenario with one policy of a point, and the key of its result."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from vdnnsim.cost.machine import lacking_peak
from vdnnsim.cost.model import checked_profile
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.workload import Mode, Optimizer, Workload, under_autocast
from vdnnsim.engine.host import Execution
from vdnnsim.errors import StudyError, VdnnsimError, is_fault
from vdnnsim.files.value import Entry
from vdnnsim.hardware.profile import find_profile
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory, memory_choice
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.captured import captured_model, check_fused
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.digests import costs_text, digest, key_of_failure, policy_source
from vdnnsim.study.points.server_figures import COMPUTE_SPEED, with_figures
from vdnnsim.study.version import model_version
from vdnnsim.units import ElementType, Precision

Value: TypeAlias = int | float | str | Policy
"""One value of a point: figures are SI numbers, choices as in a scenario."""

Point: TypeAlias = Mapping[str, Value]
"""One combination: a value for the key of every axis."""

Made = TypeVar("Made")

POLICY: Final = "policy"
_BATCH_SIZE: Final = "workload.batch_size"
TOKENS_KEY: Final = "workload.tokens"
STEP_KEY: Final = "workload.step"
EXECUTION_KEY: Final = "execution"
OF_CAPTURE: Final = frozenset(
    f"workload.{name}" for name in ("network", "precision", "element_type", "optimizer", "mode")
)
"""Keys that the file of a captured step states."""
_HARDWARE: Final = "hardware"
"""A model may be captured for its card."""
_OF_WORKLOAD: Final = (*sorted(OF_CAPTURE), _BATCH_SIZE, TOKENS_KEY, STEP_KEY, EXECUTION_KEY, _HARDWARE)
_OF_CHOICES: Final = ("gpus", "gradients", "memory_model", "pinned_memory")
_FIGURES: Final = ("gpu.", "link.", "host.", "power.", "cost_model.")
_OF_MACHINE: Final = (*_FIGURES, _HARDWARE)
_KEPT: Final = 4096
_KEPT_GRAPHS: Final = 32


@dataclass(frozen=True, slots=True)
class Resolved:
    """One point with all choices made.

    Attributes:
        key: of its result: a digest of all that decides it, with the version of the model.
        scenario: with one policy; None if the values are incompatible.
        compute_speed: divides the time of every kernel.
        copies_key: equal where links, host and pinning are.
        error: why there is no scenario; empty if there is one.
        is_fault: whether a file could not be read, which may pass.
    """

    key: str
    scenario: Scenario | None
    compute_speed: float = 1.0
    costs_key: str = ""
    copies_key: str = ""
    error: str = ""
    is_fault: bool = False


class _Machine(NamedTuple):
    """A server with keys of its costs and its copies."""

    key: str
    server: Server
    costs_text: str
    copies_text: str


class _Choices(NamedTuple):
    """Values of a point beside workload, machine and policy."""

    key: str
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    gpus: int
    gradients: Aggregation | None


class Kept(Generic[Made]):
    """A cache of the `most` values that were used last, by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, Made] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        made = self._made[key] = make()
        if len(self._made) > self._most:
            self._made.popitem(last=False)
        return made


class Resolver:
    """Resolves the points of one study; parts that many points share are made once."""

    def __init__(self, base: Scenario, folder: Path) -> None:
        """Vary a scenario; profiles are looked up from a folder."""
        self._base = base
        self._folder = folder
        self._profiles: Kept[Server] = Kept(_KEPT_GRAPHS)
        self._machines: Kept[_Machine] = Kept(_KEPT)
        self._graphs: Kept[LayerGraph] = Kept(_KEPT_GRAPHS)
        self._captures: Kept[CapturedModel] = Kept(_KEPT_GRAPHS)
        self._workloads: Kept[tuple[Workload, str]] = Kept(_KEPT)
        self._choices: Kept[_Choices] = Kept(_KEPT)

    def key(self, point: Point) -> str:
        """Return the key of a point alone, by which a grid of a million is looked up."""
        try:
            return self._decided(point)[0]
        except VdnnsimError as failure:
            return key_of_failure(point, failure)

    def resolve(self, point: Point) -> Resolved:
        """Return a point with its key; if its values are incompatible, with the reason."""
        try:
            key, workload, of_workload, machine, choices = self._decided(point)
        except VdnnsimError as failure:
            key = key_of_failure(point, failure)
            return Resolved(key, None, error=str(failure), is_fault=is_fault(failure))
        scenario = replace(
            self._base,
            workload=workload,
            server=machine.server,
            policies=(cast("Policy", point[POLICY]),),
            memory_model=choices.memory_model,
            pinned_memory=choices.pinned_memory,
            gpus=choices.gpus,
            gradients=choices.gradients,
            execution=self._execution(point),
            captured=None,  # the workload is made, so that workers need no captures
        )
        speed = float(cast("float", point.get(COMPUTE_SPEED, 1.0)))
        costs_key = digest(of_workload, scenario.execution.value, machine.costs_text, speed)
        return Resolved(key, scenario, speed, costs_key, digest(machine.copies_text, choices.pinned_memory))

    def _decided(self, point: Point) -> "tuple[str, Workload, str, _Machine, _Choices]":
        """Return the key of a point, its workload with its key, its machine and its other values."""
        workload, of_workload = self._workloads.get(tuple(map(point.get, _OF_WORKLOAD)), lambda: self._workload(point))
        on_machine = tuple([item for item in point.items() if item[0].startswith((*_OF_MACHINE, STEP_KEY))])
        machine = self._machines.get(on_machine, lambda: self._machine(point))
        chosen = tuple(map(point.get, _OF_CHOICES))
        choices = self._choices.get((of_workload, chosen), lambda: self._chosen(point, workload.mode))
        _check(machine.server, workload, choices.gpus)
        speed = point.get(COMPUTE_SPEED, 1.0)
        policy = cast("Policy", point[POLICY])
        # Not cached by the policy, for a user's may have no hash.
        text = f"{type(policy).__module__} {policy!r} {policy_source(type(policy))}"
        way = self._execution(point).value
        key = digest(of_workload, way, machine.key, speed, choices.key, text, model_version())
        return key, workload, of_workload, machine, choices

    def _execution(self, point: Point) -> Execution:
        return Execution(point.get(EXECUTION_KEY, self._base.execution))

    def _chosen(self, point: Point, mode: Mode) -> "_Choices":
        base = self._base
        memory_model = memory_choice(cast("str", point.get("memory_model", base.memory_model.value)))
        pinned = PinnedMemory(point.get("pinned_memory", base.pinned_memory))
        gpus = cast("int", point.get("gpus", base.gpus))
        gradients = _gradients(point, base, gpus, mode)
        key = digest(memory_model.value, pinned.value, gpus, str(gradients))
        return _Choices(key, memory_model, pinned, gpus, gradients)

    def _workload(self, point: Point) -> tuple[Workload, str]:
        base = self._base.workload
        if (model := self._captured(point)) is not None:
            return self._captured_workload(point, model)
        check_fused(self._execution(point), None, Entry("", EXECUTION_KEY, None, StudyError))
        network = cast("str", point.get("workload.network", base.graph.name))
        batch_size = cast("int", point.get(_BATCH_SIZE, base.batch_size))
        precision = Precision(point.get("workload.precision", point.get("workload.element_type", base.precision)))
        optimizer = Optimizer(point.get("workload.optimizer", base.optimizer))
        mode = Mode(point.get("workload.mode", base.mode))
        tokens = cast("int | None", point.get(TOKENS_KEY))
        graph = self._graph(network, tokens, precision.autocast)
        workload = Workload(graph, batch_size, precision.element_type, optimizer, mode)
        tokens = sample_of(graph).tokens
        return workload, digest(network, tokens, batch_size, precision.value, optimizer.value, mode.value)

    def _captured(self, point: Point) -> CapturedModel | None:
        """Return the captured model of a point or of the base, in its way of execution; None for a network."""
        step, base, way = cast("str | None", point.get(STEP_KEY)), self._base.captured, self._execution(point)
        if step is not None:
            return self._captures.get((step, way), lambda: captured_model(self._folder / step, way))
        if base is None:
            return None
        model = base
        if way is not self._base.execution:
            model = self._captures.get((None, way), lambda: base.executed(way.value))
        if (name := cast("str | None", point.get(_HARDWARE))) is None:
            return model
        return self._captures.get((name, way), lambda: model.on_card(self._profile(name)))

    def _captured_workload(self, point: Point, model: CapturedModel) -> tuple[Workload, str]:
        """Return the workload of a captured model; only its batch and its tokens may vary."""
        for key in sorted(OF_CAPTURE & point.keys()):
            raise StudyError(f"{key}: {stated_by_capture(model)}")
        own = model.base.part_size if STEP_KEY in point else self._base.workload.part_size
        batch_size = cast("int", point.get(_BATCH_SIZE, own))
        if (tokens := cast("int | None", point.get(TOKENS_KEY))) is not None:
            model = model.at_tokens(tokens)
        digests = (sha256 for _, sha256 in model.sources)
        return model.workload(batch_size), digest(batch_size, model.tokens, *digests)

    def _graph(self, network: str, tokens: int | None, half: ElementType | None) -> LayerGraph:
        base = self._base.workload.graph
        if network == base.name:
            own = sample_of(base).tokens
            if (tokens or own, half) == (own, base.autocast):
                return base
            tokens = tokens or own or None
        if half is None:
            return self._graphs.get((network, tokens), lambda: build_network(network, tokens))
        return self._graphs.get(
            (network, tokens, half), lambda: under_autocast(self._graph(network, tokens, None), half)
        )

    def _machine(self, point: Point) -> "_Machine":
        named = (each for each in point.items() if each[0].startswith(_FIGURES) and each[0] != COMPUTE_SPEED)
        figures = {key: cast("float", value) for key, value in named}
        server = self._base.server
        if (name := cast("str | None", point.get(_HARDWARE))) is not None:
            server = self._profile(name)
            if (model := self._captured(point)) is not None:
                server = machine_of_rank(name, server, model.base)
        server = with_figures(server, figures)
        costs, copies = costs_text(server), repr((server.link, replace(server.host, memory_bytes=0), server.topology))
        return _Machine(digest(costs, copies, server.gpu, server.host.memory_bytes), server, costs, copies)

    def _profile(self, name: str) -> Server:
        return self._profiles.get(name, lambda: checked_profile(find_profile(name, self._folder)).server)


def stated_by_capture(model: CapturedModel) -> str:
    """Return why keys that the file of a captured step states cannot vary."""
    return f"{model.base.model} was captured, and its file states it; expected another capture"


def shown(value: Value) -> int | float | str:
    return value.label if isinstance(value, Policy) else value


def _gradients(point: Point, base: Scenario, gpus: int, mode: Mode) -> Aggregation | None:
    """Return how gradients are added up, by the point, the base, or else the CPU."""
    if gpus == 1 or mode is Mode.INFERENCE or (base.captured is not None and base.captured.base.ranks > 1):
        return None
    return Aggregation(point.get("gradients", base.gradients or Aggregation.CPU))


def _check(server: Server, workload: Workload, gpus: int) -> None:
    there = server.gpu_count
    if gpus > there:
        raise StudyError(f"{server.name}: found {gpus} GPUs, but it has {there}")
    if lacking := lacking_peak(server.name, server, workload.element_type):
        raise StudyError(lacking)
    if workload.mode is Mode.INFERENCE and workload.optimizer is not Optimizer.NONE:
        raise StudyError("inference updates no weights, expected the optimizer none")
