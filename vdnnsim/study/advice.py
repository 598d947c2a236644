"""Advice for a captured model that does not fit: a policy, a setting of the allocator, a batch, precision or card.

Each is tried, and what cannot help is not: what an iteration holds from its beginning to its end, parameters and states
of the optimizer, and gradients of all weights before the update, takes its memory whatever the batch and the policy.
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
"""What is tried, beside what is asked for: what PyTorch does first, and nothing that needs minutes to decide."""
_MOST: Final = 3
"""How many policies are named, the fastest."""
_WITHOUT_GAPS: Final = AllocatorSettings(expandable_segments=True)
_NARROWER: Final = (Precision.AMP_BFLOAT16, Precision.BFLOAT16)

Recapture = Callable[[Precision], CapturedStep]
"""Captures the model in another precision."""


def advice(
    scenario: Scenario, result: ScenarioResult, types: PolicyTypes, recapture: Recapture | None
) -> tuple[str, ...]:
    """Return what would make a captured model fit that does not, a sentence for each thing that was tried.

    Args:
        scenario: the question.
        result: what came of it.
        types: the policies that there are.
        recapture: None where nobody can capture the model again.
    """
    assert isinstance(scenario.workload, CapturedWorkload), "others are asked about by their policies"
    return tuple(_Advice(scenario, result, scenario.workload, types).lines(recapture))


def held_bytes(step: CapturedStep) -> int:
    """Return what is held from the beginning to the end, and the gradients of weights that an update reads at once."""
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
        there = self.scenario.server.gpu.memory_bytes - self.scenario.server.gpu.context_bytes
        held = held_bytes(self.workload.captured)
        if held > there:
            sizes = f"{self._held(held)} are held at once, of {format_bytes(there)}"
            yield f"neither a smaller batch nor another policy: {sizes}"
        else:
            yield from self._policies()
            yield from self._batch()
        yield from self._optimizer(held, there)
        yield from self._precision(held, there, recapture)
        yield from self._card()

    def _held(self, held: int) -> str:
        """Return what is held, by kind."""
        step = self.workload.captured
        states = _states_bytes(step)
        gradients = held - states - step.parameter_bytes
        parts = (
            ("of parameters", step.parameter_bytes),
            ("of their gradients", gradients),
            (f"of states of {step.optimizer}", states),
        )
        return listed([f"{format_bytes(nbytes)} {what}" for what, nbytes in parts if nbytes])

    def _policies(self) -> Iterator[str]:
        """Yield what is fastest, and what is faster than that where PyTorch's allocator leaves fewer gaps."""
        asked = {policy.label for policy in self.scenario.policies}
        others = [each for each in self._others() if each.label not in asked]
        found = self._tried(self.scenario, others)
        fitting = [row for row in found if row.fits]
        for row in fitting[:_MOST]:
            yield f"another policy: {self._described(row)}"
        if found and not fitting:
            least = min(found, key=self._taken)
            taken = format_bytes(self._taken(least))
            yield f"another policy: none of {len(found)} that were tried; {least.policy} takes the least, {taken}"
        if self.scenario.memory_model is MemoryModel.PYTORCH:
            apart = replace(self.scenario, memory_model=_WITHOUT_GAPS)
            # What fits takes as long with fewer gaps; only a search finds something faster in them.
            settled = {row.policy for row in fitting if not _searches(row.policy)}
            again = [each for each in (*self.scenario.policies, *others) if each.label not in settled]
            rows = self._tried(apart, again)
            fastest = next((row for row in rows if row.fits), None)
            if fastest and not any(row.metrics.iteration_s <= fastest.metrics.iteration_s for row in fitting):
                yield f"another setting: under PYTORCH_ALLOC_CONF={_WITHOUT_GAPS.words} {self._described(fastest)}"

    def _others(self) -> list[Policy]:
        searching = any(_searches(policy.label) for policy in self.scenario.policies)
        names = (name for name in POLICIES if not (searching and _searches(name)))
        return [resolve_policy(name, self.types) for name in names]

    def _tried(self, scenario: Scenario, policies: Iterable[Policy]) -> list[PolicyResult]:
        """Return what comes of policies, the slowest GPU of each, the fastest first."""
        simulator, found = simulator_of(scenario), list[PolicyResult]()
        for policy in policies:
            # One that has no plan for this model is no advice.
            with suppress(PolicyError):
                found.append(slowest_of(simulator.run(policy, self.result.oracle)))
        return sorted(found, key=lambda row: row.metrics.iteration_s)

    def _described(self, row: PolicyResult) -> str:
        return (
            f"{row.policy} takes {format_bytes(self._taken(row))} and {format_seconds(row.metrics.iteration_s)} per "
            f"iteration, {1 / row.performance_ratio:.2f} times as long as with memory enough"
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
        if found.batch_size:
            yield f"a smaller batch: of {found.batch_size} {samples} under {policy.label}"
        else:
            yield f"a smaller batch: not even one of 1 under {policy.label}"

    def _optimizer(self, held: int, there: int) -> Iterator[str]:
        """Yield what would be held without states; what else it would take is not known without another capture."""
        states = _states_bytes(self.workload.captured)
        if held > there >= held - states:
            without = f"without states, as of sgd, {format_bytes(held - states)} would be held at once"
            yield f"another optimizer: {without}; capture it to know"

    def _precision(self, held: int, there: int, recapture: Recapture | None) -> Iterator[str]:
        precision, policy = self.workload.precision, self.scenario.policies[0]
        if precision.element_type.nbytes == 2:
            return
        for other in _NARROWER[_NARROWER.index(precision) + 1 if precision in _NARROWER else 0 :]:
            # Parameters, gradients and states have the element type that they are computed in; mixed, that of before.
            least = held if other.autocast else held // (precision.element_type.nbytes // other.element_type.nbytes)
            if least > there:
                if not other.autocast:
                    yield f"another precision: not {other.value}, of which {format_bytes(least)} would be held at once"
            elif recapture is None:
                yield f"another precision: {other.value} would hold {format_bytes(least)} at once; capture it to know"
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
        """Yield the smallest of the cards that come with vdnnsim which holds it, and those with as much memory."""
        policy, own = self.scenario.policies[0], self.scenario.server.gpu.memory_bytes
        cards = {profile.server.gpu.name: profile.server for profile in reversed(shipped_profiles())}
        larger = [server for server in cards.values() if server.gpu.memory_bytes > own]
        held_by: list[Server] = []
        for server in sorted(larger, key=lambda each: each.gpu.memory_bytes):
            if held_by and server.gpu.memory_bytes > held_by[0].gpu.memory_bytes:
                break
            if (
                server.computes_in(self.workload.element_type)
                and self._taken_by(self.workload, server, policy) is not None
            ):
                held_by.append(server)
        if held_by:
            names, memory = " or ".join(each.name for each in held_by), format_bytes(held_by[0].gpu.memory_bytes)
            yield f"another card: {names}, with {memory}, holds it under {policy.label}"
        else:
            yield f"another card: none that comes with vdnnsim holds it under {policy.label}"

    def _taken_by(self, workload: Workload, server: Server, policy: Policy) -> int | None:
        """Return the memory that a process takes, None where it does not fit; no duration decides that."""
        simulator = simulator_of(replace(self.scenario, workload=workload, server=server, gpus=1, gradients=None))
        (plan,) = make_plans(policy, simulator.setting())
        placed = simulator.place(plan)
        return placed.pool_bytes + server.gpu.context_bytes if isinstance(placed, Placement) else None

    def _taken(self, row: PolicyResult) -> int:
        return row.held_bytes(self.scenario.server.gpu)
