"""Replays for an answer: a captured model under other policies, in micro-batches, in other loops and on other cards.

What `vdnnsim apply` runs is replayed as it runs there: in one piece of memory that leaves as much of the card as peaks
are known to be off. Micro-batches and smaller batches are plain loops under PyTorch's allocator.

Micro-batches are alike, so two are replayed: each further one takes as long as the second, from the end of the first,
and no more memory (as `vdnnsim.policies.accumulate`).
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Self

import msgspec

from vdnnsim.analysis.answer import Change, Way, limit_bytes
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage, slowest_of
from vdnnsim.cost.table import CostModel
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.training_loops import Loop, temporary_bytes
from vdnnsim.errors import InputError, PlanError, PolicyError
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import preallocated
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.replay_budget import SEARCHED, ReplayBudget
from vdnnsim.study.shared_plans import SharedPlans
from vdnnsim.units import format_bytes

GROWING = AllocatorSettings(expandable_segments=True)
LATE = "not tried yet"


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


@dataclass(frozen=True)
class AnswerReplays:
    """Replays of one model in one loop.

    Attributes:
        scenario: a plain loop under the allocator that was asked for.
        applied: the same in the memory of `apply --memory`.
        loop: what differs from the loop that was captured.
        shared: plans that were made, maybe for other cards.
    """

    scenario: Scenario
    result: ScenarioResult
    types: PolicyTypes
    budget: ReplayBudget
    costs: CostModel
    loop: Loop = field(default_factory=Loop)
    shared: SharedPlans = field(default_factory=SharedPlans)

    @classmethod
    def begin(cls, scenario: Scenario, result: ScenarioResult, types: PolicyTypes, budget: ReplayBudget) -> Self:
        """Return the replays of a scenario in the loop that was captured."""
        return cls(scenario, result, types, budget, simulator_of(scenario).cost_model)

    @property
    def workload(self) -> CapturedWorkload:
        """Of the model as it is."""
        workload = self.scenario.workload
        assert isinstance(workload, CapturedWorkload), "only captured models are answered for"
        return workload

    @property
    def is_sharded(self) -> bool:
        """Whether FSDP shards the model, which `apply` refuses."""
        return self.workload.captured.is_sharded

    @property
    def room_bytes(self) -> int:
        """Memory of the card that surely fits beside the context."""
        gpu = self.scenario.server.gpu
        return certain_bytes(gpu.memory_bytes) - gpu.context_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of parameters, states and gradients that are live when the update begins."""
        return held_bytes(self.workload.captured)

    @property
    def floor_bytes(self) -> int:
        """Bytes of these with the temporaries of the update: no batch needs less."""
        return self.held_bytes + temporary_bytes(self.workload.captured)

    @property
    def can_fit(self) -> bool:
        """Whether some batch may fit."""
        return self.floor_bytes <= self.room_bytes

    @property
    def applied(self) -> Scenario:
        """The scenario as `apply --memory` plans."""
        gpu = self.scenario.server.gpu
        pool = replace(gpu, memory_bytes=limit_bytes(gpu) + gpu.context_bytes)
        server = replace(self.scenario.server, gpu=pool)
        return replace(self.scenario, server=server, memory_model=preallocated(self.scenario.memory_model))

    def of(self, model: CapturedModel, loop: Loop) -> Self:
        rounds = self.workload.rounds
        workload = model.workload(self.workload.part_size, None if loop.in_backward else rounds)
        return replace(self, scenario=replace(self.scenario, workload=workload, captured=model), loop=loop)

    @property
    def without_limit(self) -> Self:
        return replace(self, budget=replace(self.budget, operations=sys.maxsize))

    def named(self, name: str) -> Policy:
        return resolve_policy(name, self.types)

    @property
    def operations(self) -> int:
        """Operations of the captured step."""
        return len(self.workload.captured.operations)

    def asked(self) -> Iterator[Way]:
        """Yield the policies that were asked about."""
        for row in self.result.slowest:
            yield self.way(Change.POLICY, row.policy, self.scenario, row)
        for declined in self.result.declined:
            yield self.way(Change.POLICY, declined.policy, self.scenario, f"no plan: {declined.reason}")

    def tried(
        self,
        name: str,
        scenario: Scenario | None = None,
        change: Change = Change.POLICY,
        *,
        steps: int = 0,
        operations: int = 0,
    ) -> Way:
        """Replay a policy, by default as it is applied, with `operations` of its own and those of the step.

        A search takes at most so many steps.
        """
        chosen = scenario or self.applied
        asked, cost = self.untried(name, chosen, change), operations + self.operations
        return self.budget.once(
            asked,
            cost,
            lambda: self.way(change, asked.policy, chosen, self.row(name, chosen, steps)),
            steps=steps,
        )

    def untried(self, name: str, scenario: Scenario | None = None, change: Change = Change.POLICY) -> Way:
        """Return a policy as it is before it is tried, by default as it is applied."""
        return self.way(change, self.named(name).label, scenario or self.applied, LATE)

    def plain(self, name: str) -> Way:
        return self.tried(name, self.scenario)

    @property
    def growing(self) -> Self:
        """These in segments that grow."""
        return replace(self, scenario=replace(self.scenario, memory_model=GROWING))

    def row(self, name: str, scenario: Scenario, steps: int = 0) -> PolicyResult | str:
        """Return the result of a policy, or why there is none."""
        policy = self.named(name)
        costs = self.costs if scenario.server.name == self.scenario.server.name else None
        simulator = replace(simulator_of(scenario, costs), steps=steps or inf, deadline=self.budget.deadline)
        try:
            planned = self.shared.planned(policy, simulator)
            return slowest_of(simulator.outcome(planned, self.result.oracle))
        except (PolicyError, PlanError) as refusal:
            return f"no plan: {str(refusal).removeprefix(f'{policy.label}: ')}"

    def way(
        self, change: Change, policy: str, scenario: Scenario, found: PolicyResult | str, iteration_s: float = 0.0
    ) -> Way:
        """Return a way with its result, or why there is none; in a pool of its own it holds what is in use."""
        workload, gpu = scenario.workload, scenario.server.gpu
        assert isinstance(workload, CapturedWorkload), "so is that of the scenario"
        assert scenario.captured is not None, "as it is of a captured model"
        own = self.scenario.server
        is_applied = scenario.server.name == own.name and scenario.server != own
        way = Way(
            change=change,
            policy=policy,
            loop=self.loop,
            batch_size=workload.part_size,
            rounds=workload.rounds,
            hardware=scenario.server.name,
            memory_bytes=own.gpu.memory_bytes if is_applied else gpu.memory_bytes,
            is_applied=is_applied,
            expandable=scenario.memory_model is GROWING,
            has_fewer_pairs=change is Change.MICRO_BATCHES and scenario.captured.compares_samples,
            reason=found if isinstance(found, str) else "",
            untried=found == LATE,
        )
        if isinstance(found, str):
            return way
        certificate = found.trace.plan.certificate
        reason = ""
        if found.refusal is not None and found.shortage is Shortage.HOST:
            reason = f"needs more than the {format_bytes(found.refusal.capacity_bytes)} of {found.refusal.pool.value}"
        return msgspec.structs.replace(
            way,
            iteration_s=iteration_s or found.metrics.iteration_s,
            allocated_bytes=found.metrics.allocated_bytes,
            held_bytes=found.needed_bytes(gpu, scenario.memory_model),
            in_pieces=found.shortage is Shortage.GAPS,
            cut_short=certificate is not None and not certificate.complete,
            reason=reason,
        )

    def divided(self, name: str, parts: int, *, steps: int = 0) -> Way:
        """Replay a policy for so many parts of the batch; another batch needs a second capture.

        It is in a plain loop; a search, of so many steps, as it is applied.
        """
        chosen = self.applied if steps else self.scenario
        asked = self.untried_parts(name, parts, chosen)
        model, lines = self.scenario.captured, self.budget.lines
        is_captured = model is None or not model.can_be_of_any_batch or model.batches or self.loop in lines
        captures = 0 if is_captured else self.budget.capturing(self.operations)
        cost = captures + 2 * self.operations + (SEARCHED if steps else 0)
        found = self.budget.once(asked, cost, lambda: self._divided(name, asked, chosen, steps), steps=steps)
        if not found.untried:
            lines.add(self.loop)
        return found

    def untried_parts(self, name: str, parts: int, scenario: Scenario | None = None) -> Way:
        """Return a policy for so many parts of the batch as it is before it is tried, by default in a plain loop."""
        asked = self.untried(name, scenario or self.scenario, Change.MICRO_BATCHES)
        batch_size, rounds = self.workload.part_size // parts, self.workload.rounds * parts
        return msgspec.structs.replace(asked, batch_size=batch_size, rounds=rounds)

    def _divided(self, name: str, asked: Way, scenario: Scenario, steps: int) -> Way:
        label, batch_size, rounds = asked.policy, asked.batch_size, asked.rounds
        assert scenario.captured is not None, "the scenario is of a captured model"
        try:
            workload = scenario.captured.workload(batch_size, rounds)
        except InputError as refusal:
            return msgspec.structs.replace(asked, reason=str(refusal), untried=False)
        found, seconds = self.row(name, replace(scenario, workload=self.shared.first_two(workload)), steps), 0.0
        if isinstance(found, PolicyResult):
            trace = found.trace
            ends = [span.end_s for span, kernel in trace.kernels if kernel.phase is not Phase.UPDATE]
            second_s = ends[-1] - ends[len(ends) // 2 - 1]
            seconds = trace.iteration_s + (rounds - 2) * second_s
        return self.way(Change.MICRO_BATCHES, label, replace(scenario, workload=workload), found, seconds)

    def of_batch(self, name: str, batch_size: int) -> Way | None:
        """Replay a policy of a smaller batch in a plain loop; None where its step is not known."""
        asked = msgspec.structs.replace(self.untried(name, self.scenario, Change.BATCH), batch_size=batch_size)
        if known := self.budget.known.get(asked) or self.budget.kept.get((asked, 0)):
            return known
        assert self.scenario.captured is not None, "the scenario is of a captured model"
        try:
            workload = self.scenario.captured.workload(batch_size)
        except InputError:
            return None
        return self.tried(name, replace(self.scenario, workload=workload), Change.BATCH)

    def of_tokens(self, name: str, tokens: int) -> Way | None:
        """Replay a policy on sequences of so many tokens in a plain loop; None where they cannot be captured."""
        model = self.scenario.captured
        assert model is not None, "the scenario is of a captured model"
        asked = msgspec.structs.replace(self.untried(name, self.scenario, Change.SEQUENCE), tokens=tokens)

        def tried() -> Way:
            shorter = self.of(model.at_tokens(tokens), self.loop)
            found = shorter.way(asked.change, asked.policy, shorter.scenario, shorter.row(name, shorter.scenario))
            return msgspec.structs.replace(found, tokens=tokens)

        try:
            cost = self.budget.capturing(self.operations) + self.operations
            return self.budget.once(asked, cost, tried)
        except InputError:
            return None

    def on(self, server: Server) -> Scenario:
        return replace(self.scenario, server=server, gpus=1, gradients=None)
