"""Advice for a captured model that does not fit: a policy, a setting of the allocator, a batch, precision or card.

Each is tried unless it cannot help: parameters, optimizer states and the gradients of all weights before the update
take the same memory at any batch and under any policy.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult, slowest_of
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError, PolicyError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.placement import Placement
from vdnnsim.policies.interface import Policy, make_plans
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import largest_batches
from vdnnsim.units import Precision, format_bytes, format_seconds

POLICIES: Final = (
    *("pytorch", "checkpoint", "save_on_cpu", "vdnn_conv(p)", "vdnn_all(p)", "swap(p)", "memonger(p)"),
    "optimal(time_limit=10 s)",
)
"""Policies that are tried, PyTorch's own first; none plans for minutes."""
_MOST: Final = 3
"""Policies that are named, the fastest."""
_WITHOUT_GAPS: Final = AllocatorSettings(expandable_segments=True)
_NARROWER: Final = (Precision.AMP_BFLOAT16, Precision.BFLOAT16)

Recapture = Callable[[Precision], CapturedStep]
"""Captures the model in another precision."""


def advice(
    scenario: Scenario, result: ScenarioResult, types: PolicyTypes, recapture: Recapture | None
) -> tuple[str, ...]:
    """Return what would make a captured model fit, a sentence for each thing that was tried."""
    assert isinstance(scenario.workload, CapturedWorkload), "only captured models get advice"
    return tuple(_Advice(scenario, result, scenario.workload, types).lines(recapture))


def held_bytes(step: CapturedStep) -> int:
    """Return the bytes of parameters, optimizer states and weight gradients that are live when the update begins."""
    kinds = BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE
    last = len(step.operations) - 1
    return sum(
        each.nbytes
        for each in step.storages
        if (each.given and each.kind in kinds)
        or (each.kind is BufferKind.WEIGHT_GRADIENT and (each.freed_after is None or each.freed_after == last))
    )


def _searches(policy: str) -> bool:
    return policy.startswith("optimal")


def _states_bytes(step: CapturedStep) -> int:
    return sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)


@dataclass(frozen=True)
class _Advice:
    scenario: Scenario
    result: ScenarioResult
    workload: CapturedWorkload
    types: PolicyTypes

    def lines(self, recapture: Recapture | None) -> Iterator[str]:
        capacity = self.scenario.server.gpu.memory_bytes - self.scenario.server.gpu.context_bytes
        held = held_bytes(self.workload.captured)
        if held > capacity:
            sizes = f"{self._held(held)} are live at once, of {format_bytes(capacity)}"
            yield f"neither a smaller batch nor another policy: {sizes}"
        else:
            yield from self._policies()
            yield from self._batch()
        yield from self._optimizer(held, capacity)
        yield from self._precision(held, capacity, recapture)
        yield from self._card()

    def _held(self, held: int) -> str:
        step = self.workload.captured
        states = _states_bytes(step)
        gradients = held - states - step.parameter_bytes
        kinds = ("of parameters", "of their gradients", f"of states of {step.optimizer}")
        parts = zip(kinds, (step.parameter_bytes, gradients, states), strict=True)
        return listed([f"{format_bytes(nbytes)} {what}" for what, nbytes in parts if nbytes])

    def _policies(self) -> Iterator[str]:
        """Yield the fastest policies, and what is faster with less fragmentation of PyTorch's allocator."""
        asked = {policy.label for policy in self.scenario.policies}
        searches = any(map(_searches, asked))
        known = (resolve_policy(name, self.types) for name in POLICIES if not (searches and _searches(name)))
        others = [each for each in known if each.label not in asked]
        found = self._tried(self.scenario, others)
        fitting = [row for row in found if row.fits]
        for row in fitting[:_MOST]:
            yield f"another policy: {self._described(row)}"
        if found and not fitting:
            least = min(found, key=self._taken)
            taken = format_bytes(self._taken(least))
            yield f"another policy: none of {len(found)} that were tried; {least.policy} takes the least, {taken}"
        if self.scenario.memory_model is MemoryModel.PYTORCH:
            # What fits takes as long with less fragmentation; only a search finds something faster.
            settled = {row.policy for row in fitting if not _searches(row.policy)}
            again = [each for each in (*self.scenario.policies, *others) if each.label not in settled]
            rows = self._tried(replace(self.scenario, memory_model=_WITHOUT_GAPS), again)
            fastest = next((row for row in rows if row.fits), None)
            if fastest and not any(row.metrics.iteration_s <= fastest.metrics.iteration_s for row in fitting):
                yield f"another setting: under PYTORCH_ALLOC_CONF={_WITHOUT_GAPS.words} {self._described(fastest)}"

    def _tried(self, scenario: Scenario, policies: Iterable[Policy]) -> list[PolicyResult]:
        """Return the slowest GPU's result of each policy that has a plan, the fastest policy first."""
        simulator, found = simulator_of(scenario), list[PolicyResult]()
        for policy in policies:
            with suppress(PolicyError):
                found.append(slowest_of(simulator.run(policy, self.result.oracle)))
        return sorted(found, key=lambda row: row.metrics.iteration_s)

    def _described(self, row: PolicyResult) -> str:
        return (
            f"{row.policy} takes {format_bytes(self._taken(row))} and {format_seconds(row.metrics.iteration_s)} per "
            f"iteration, {1 / row.performance_ratio:.2f} times as long as in unlimited memory"
        )

    def _batch(self) -> Iterator[str]:
        workload, policy = self.workload, self.scenario.policies[0]
        if workload.batch_size == 1:
            return
        samples = sample_of(workload.graph).names
        try:
            (found,) = largest_batches(replace(self.scenario, policies=(policy,)))
        except InputError as refusal:
            yield f"a smaller batch: {refusal}"
            return
        size = f"of {found.batch_size} {samples}" if found.batch_size else "not even one of 1"
        yield f"a smaller batch: {size} under {policy.label}"

    def _optimizer(self, held: int, capacity: int) -> Iterator[str]:
        states = _states_bytes(self.workload.captured)
        if held > capacity >= held - states:
            without = f"without states, as of sgd, {format_bytes(held - states)} would be live at once"
            yield f"another optimizer: {without}; capture again to check"

    def _precision(self, held: int, capacity: int, recapture: Recapture | None) -> Iterator[str]:
        precision, policy = self.workload.precision, self.scenario.policies[0]
        if precision.element_type.nbytes == 2:
            return
        for other in _NARROWER[_NARROWER.index(precision) + 1 if precision in _NARROWER else 0 :]:
            # Mixed precision keeps the element type of parameters, gradients and states.
            least = held if other.autocast else held // (precision.element_type.nbytes // other.element_type.nbytes)
            if least > capacity:
                if not other.autocast:
                    yield f"another precision: not {other.value}, with {format_bytes(least)} live at once"
            elif recapture is None:
                yield f"another precision: {other.value}, {format_bytes(least)} live at once; capture again to check"
            else:
                try:
                    taken = self._taken_by(CapturedWorkload.of(recapture(other)), self.scenario.server, policy)
                except InputError as refusal:
                    yield f"another precision: {other.value}: {refusal}"
                    continue
                verdict = "not " if taken is None else ""
                how = "" if taken is None else f", which takes {format_bytes(taken)} under {policy.label}"
                yield f"another precision: {verdict}{other.value}{how}"

    def _card(self) -> Iterator[str]:
        """Yield the smallest cards that come with vdnnsim on which the model fits."""
        policy, own = self.scenario.policies[0], self.scenario.server.gpu.memory_bytes
        cards = {profile.server.gpu.name: profile.server for profile in reversed(shipped_profiles())}
        larger = [server for server in cards.values() if server.gpu.memory_bytes > own]
        held_by: list[Server] = []
        for server in sorted(larger, key=lambda each: each.gpu.memory_bytes):
            if held_by and server.gpu.memory_bytes > held_by[0].gpu.memory_bytes:
                break
            computes = server.computes_in(self.workload.element_type)
            if computes and self._taken_by(self.workload, server, policy) is not None:
                held_by.append(server)
        cards_named = "none that comes with vdnnsim"
        if held_by:
            memory = format_bytes(held_by[0].gpu.memory_bytes)
            cards_named = f"{' or '.join(each.name for each in held_by)}, with {memory},"
        yield f"another card: {cards_named} holds it under {policy.label}"

    def _taken_by(self, workload: Workload, server: Server, policy: Policy) -> int | None:
        """Return the process memory; None where the model does not fit."""
        simulator = simulator_of(replace(self.scenario, workload=workload, server=server, gpus=1, gradients=None))
        (plan,) = make_plans(policy, simulator.setting())
        placed = simulator.place(plan)
        return placed.pool_bytes + server.gpu.context_bytes if isinstance(placed, Placement) else None

    def _taken(self, row: PolicyResult) -> int:
        return row.held_bytes(self.scenario.server.gpu)
