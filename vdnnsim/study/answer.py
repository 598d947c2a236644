"""What makes a captured model fit: policies, micro-batches, a smaller batch, a larger card; tried from cheap to dear.

What `vdnnsim apply` runs is replayed as it runs there: in one piece of memory that leaves as much of the card as peaks
are known to be off. Micro-batches and smaller batches are plain loops under PyTorch's allocator.

Micro-batches are alike, so one and two are replayed: each further one takes as long as the second, and no more memory
(as `vdnnsim.policies.accumulate`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from vdnnsim.analysis.answer import Answer, Change, Way, limit_bytes
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage, slowest_of
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import InputError, PlanError, PolicyError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import card_words, shipped_profiles
from vdnnsim.memory.choices import MemoryModel, preallocated
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.plans.placement import Placement
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import Need, find_edge
from vdnnsim.units import Precision, format_bytes

PLAIN: Final = "pytorch"
POLICIES: Final = ("checkpoint", "save_on_cpu", "vdnn_all(p)", "memonger(p)")
"""That plan at once, of those that `apply` runs."""
OF_CONVOLUTIONS: Final = ("vdnn_conv(p)", "swap(p)")
"""That do nothing without convolutions."""
RECOMPUTING: Final = POLICIES[0]
SEARCH: Final = "optimal"
STATES_ON_HOST: Final = "optimal(offload_optimizer=true)"
LIMIT: Final = TimeLimit(3.5)
"""Of everything that is tried, in processor time: a capture of a large model leaves so much of 15 s."""
_LEAST_SEARCH_S: Final = 1.0
"""In less a search finds nothing of use."""
_MOST_TRIALS: Final = 3
"""Numbers of micro-batches that are tried from the estimated one on."""
_MARGIN: Final = 1.04
"""By how much more than estimated micro-batches take at the least: gaps, and a gradient that is being added."""
_GROWING: Final = AllocatorSettings(expandable_segments=True)


def answer(
    scenario: Scenario,
    result: ScenarioResult,
    types: PolicyTypes,
    found: Callable[[Way], object] = lambda _: None,
    limit: TimeLimit = LIMIT,
) -> Answer:
    """Return what was tried so that a captured model fits.

    Args:
        scenario: of a captured model.
        result: of the scenario.
        types: all known policies.
        found: gets each way as soon as it was tried.
        limit: of processor time; what was not tried by then is a way with that reason.
    """
    assert isinstance(scenario.workload, CapturedWorkload), "only captured models are answered for"
    trials = _Trials(scenario, result, scenario.workload, types, limit)
    for way in trials.ways():
        trials.done.append(way)
        found(way)
    return Answer(tuple(trials.done), tuple(trials.notes()))


def held_bytes(step: CapturedStep) -> int:
    """Return the bytes of parameters, optimizer states and weight gradients that are live when the update begins."""
    kinds = BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE
    last = len(step.operations) - 1
    return sum(
        each.nbytes
        for each in step.storages
        if (each.given and each.kind in (*kinds, BufferKind.WEIGHT_GRADIENT))
        or (each.kind is BufferKind.WEIGHT_GRADIENT and (each.freed_after is None or each.freed_after == last))
    )


def _states_bytes(step: CapturedStep) -> int:
    return sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)


@dataclass
class _Trials:
    scenario: Scenario
    result: ScenarioResult
    workload: CapturedWorkload
    types: PolicyTypes
    limit: TimeLimit
    done: list[Way] = field(default_factory=list)

    def __post_init__(self) -> None:
        gpu = self.scenario.server.gpu
        self.deadline = self.limit.begin()
        self.room_bytes = certain_bytes(gpu.memory_bytes) - gpu.context_bytes
        self.held_bytes = held_bytes(self.workload.captured)
        self.costs = simulator_of(self.scenario).cost_model
        # As `apply --memory` plans.
        pool = replace(gpu, memory_bytes=limit_bytes(gpu) + gpu.context_bytes)
        server = replace(self.scenario.server, gpu=pool)
        self.applied = replace(self.scenario, server=server, memory_model=preallocated(self.scenario.memory_model))

    def ways(self) -> Iterator[Way]:
        """Yield everything that is tried, from cheap to dear."""
        asked = {row.policy: row for row in self.result.slowest}
        for policy, row in asked.items():
            yield self._way(Change.POLICY, policy, self.scenario, row)
        for declined in self.result.declined:
            yield self._way(Change.POLICY, declined.policy, self.scenario, f"no plan: {declined.reason}")
        fits_at_all = self.held_bytes <= self.room_bytes
        if fits_at_all:
            yield from self._with_growing_segments()
            yield from self._micro_batches(PLAIN)
            has_convolutions = any(each.kind is LayerKind.CONV for each in self.workload.graph.layers)
            for name in (*POLICIES, *(OF_CONVOLUTIONS if has_convolutions else ())):
                if self._named(name).label not in asked:
                    yield self._tried(Change.POLICY, name, self.applied)
            yield from self._micro_batches(RECOMPUTING)
            yield from self._smaller_batch()
        yield from self._larger_card()
        search = SEARCH if fits_at_all else STATES_ON_HOST
        may_fit = self.held_bytes - _states_bytes(self.workload.captured) <= self.room_bytes
        if may_fit and self._named(search).label not in asked:
            if self.deadline.allows(_LEAST_SEARCH_S):
                yield self._tried(Change.POLICY, search, self.applied)
            else:
                yield self._way(Change.POLICY, self._named(search).label, self.applied, self._late)

    def notes(self) -> Iterator[str]:
        """Yield what was not tried, and what cannot help."""
        step, held = self.workload.captured, self.held_bytes
        states = _states_bytes(step)
        if held > self.room_bytes:
            kinds = ("of parameters", "of their gradients", f"of states of {step.optimizer}")
            parts = zip(kinds, (step.parameter_bytes, held - states - step.parameter_bytes, states), strict=True)
            sizes = listed([f"{format_bytes(nbytes)} {what}" for what, nbytes in parts if nbytes])
            yield f"no smaller batch helps: {sizes} are live at once"
            if self.room_bytes >= held - states:
                without = format_bytes(held - states)
                yield f"not tried: an optimizer without states, `--optimizer sgd`: {without} are live at once"
        precision = self.workload.precision
        if precision.element_type.nbytes > 2 and not precision.autocast:
            yield f"not tried: mixed precision, `--precision {Precision.AMP_BFLOAT16.value}`"

    def _named(self, name: str) -> Policy:
        return resolve_policy(name, self.types)

    @property
    def _late(self) -> str:
        return f"not tried in {self.limit} of processor time"

    def _tried(self, change: Change, name: str, scenario: Scenario) -> Way:
        return self._way(change, self._named(name).label, scenario, self._row(name, scenario))

    def _row(self, name: str, scenario: Scenario) -> PolicyResult | str:
        """Return the result of a policy, or why there is none."""
        if self.deadline.is_over:
            return self._late
        policy = self._named(name)
        costs = self.costs if scenario.server.name == self.scenario.server.name else None
        try:
            return slowest_of(
                replace(simulator_of(scenario, costs), deadline=self.deadline).run(policy, self.result.oracle)
            )
        except (PolicyError, PlanError) as refusal:
            return f"no plan: {str(refusal).removeprefix(f'{policy.label}: ')}"

    def _way(
        self, change: Change, policy: str, scenario: Scenario, found: PolicyResult | str, iteration_s: float = 0.0
    ) -> Way:
        """Return a way with its result, or why there is none; in a pool of its own it holds what is in use."""
        workload, gpu, is_applied = scenario.workload, scenario.server.gpu, scenario.server is self.applied.server
        assert isinstance(workload, CapturedWorkload), "so is that of the scenario"
        way = Way(
            change=change,
            policy=policy,
            batch_size=workload.part_size,
            rounds=workload.rounds,
            hardware=scenario.server.name,
            memory_bytes=self.scenario.server.gpu.memory_bytes if is_applied else gpu.memory_bytes,
            is_applied=is_applied,
            expandable=scenario.memory_model is _GROWING,
            reason=found if isinstance(found, str) else "",
            untried=found == self._late,
        )
        if isinstance(found, str):
            return way
        in_use = found.metrics.max_memory_bytes + gpu.framework_bytes(found.trace.plan.handles)
        reason = ""
        if found.refusal is not None and found.shortage is Shortage.HOST:
            reason = f"needs more than the {format_bytes(found.refusal.capacity_bytes)} of {found.refusal.pool.value}"
        return msgspec.structs.replace(
            way,
            iteration_s=iteration_s or found.metrics.iteration_s,
            held_bytes=in_use if is_applied else found.held_bytes(gpu),
            in_pieces=found.shortage is Shortage.GAPS,
            reason=reason,
        )

    def _with_growing_segments(self) -> Iterator[Way]:
        """Yield a plain loop again where its bytes fit, in segments that grow."""
        label = self._named(PLAIN).label
        in_pieces = any(way.in_pieces and way.policy == label for way in self.done)
        if in_pieces and self.scenario.memory_model is MemoryModel.PYTORCH:
            yield self._tried(Change.POLICY, PLAIN, replace(self.scenario, memory_model=_GROWING))

    def _micro_batches(self, name: str) -> Iterator[Way]:
        """Yield the fewest micro-batches with which a policy fits; where none fits, the last ones that were tried."""
        whole, label = self.workload.part_size, self._named(name).label
        known = [way.held_bytes for way in self.done if way.policy == label and way.held_bytes]
        parts = [parts for parts in range(2, whole + 1) if whole % parts == 0]
        if not known or not parts:
            return
        most = self.room_bytes / _MARGIN
        likely = [each for each in parts if self._estimated(known[0], whole // each) <= most] or parts[-1:]
        for number, each in enumerate(likely[:_MOST_TRIALS], start=1):
            way = self._divided(name, each)
            if way.fits or not way.iteration_s or number == min(len(likely), _MOST_TRIALS):
                yield way
                return

    def _estimated(self, held_bytes: int, batch_size: int) -> int:
        """Return the bytes of a batch if what is not held throughout grew with it."""
        growing = max(0, held_bytes - self.scenario.server.gpu.context_bytes - self.held_bytes)
        return self.held_bytes + growing * batch_size // self.workload.part_size

    def _divided(self, name: str, parts: int) -> Way:
        """Return a policy for so many parts of the batch, in a plain loop."""
        scenario = self.scenario
        assert scenario.captured is not None, "the scenario is of a captured model"
        batch_size, rounds = self.workload.part_size // parts, self.workload.rounds * parts
        label, change = self._named(name).label, Change.MICRO_BATCHES
        try:
            workload = scenario.captured.workload(batch_size, rounds)
        except InputError as refusal:
            way = self._way(change, label, scenario, str(refusal))
            return msgspec.structs.replace(way, batch_size=batch_size, rounds=rounds)
        alone, found = (
            self._row(name, replace(scenario, workload=replace(workload, batch_size=n * batch_size))) for n in (1, 2)
        )
        seconds = 0.0
        if isinstance(found, PolicyResult) and isinstance(alone, PolicyResult):
            first_s, both_s = alone.metrics.iteration_s, found.metrics.iteration_s
            seconds = both_s + (rounds - 2) * (both_s - first_s)
        return self._way(change, label, replace(scenario, workload=workload), found, seconds)

    def _smaller_batch(self) -> Iterator[Way]:
        """Yield the largest batch that fits in a plain loop."""
        whole = self.workload.part_size
        tried: dict[int, Way] = {}

        def need(batch_size: int) -> Need | None:
            assert self.scenario.captured is not None, "the scenario is of a captured model"
            try:
                workload = self.scenario.captured.workload(batch_size)
            except InputError:
                return None
            way = tried[batch_size] = self._tried(Change.BATCH, PLAIN, replace(self.scenario, workload=workload))
            return Need(way.fits, way.held_bytes / certain_bytes(way.memory_bytes)) if way.iteration_s else None

        known = [way.held_bytes for way in self.done if way.policy == self._named(PLAIN).label and way.held_bytes]
        if whole == 1 or not known:
            return
        likely = (batch for batch in range(whole - 1, 0, -1) if self._estimated(known[0], batch) <= self.room_bytes)
        found, _ = find_edge(need, next(likely, 1), whole - 1, self.deadline)
        if tried:
            yield tried[found or min(tried)]

    def _larger_card(self) -> Iterator[Way]:
        """Yield the smallest shipped card on which the first policy fits."""
        if not self.result.slowest:
            return
        row = self.result.slowest[0]
        own = self.scenario.server.gpu.memory_bytes
        servers = [profile.server for profile in reversed(shipped_profiles())]
        servers.sort(key=lambda each: len(each.gpu.flop_per_s))
        cards = {card_words(each.gpu.name): each for each in servers}
        for server in sorted(cards.values(), key=lambda each: each.gpu.memory_bytes):
            gpu = server.gpu
            if gpu.memory_bytes <= own or not server.computes_in(self.workload.element_type):
                continue
            on_it = replace(self.scenario, server=server, gpus=1, gradients=None)
            placed, most = simulator_of(on_it).place(row.trace.plan), certain_bytes(gpu.memory_bytes)
            if isinstance(placed, Placement) and placed.pool_bytes + gpu.context_bytes <= most:
                yield self._tried(Change.CARD, row.policy, on_it)
                return
