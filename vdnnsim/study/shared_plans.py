"""Plans and placements of captured models that several replays share, under other allocators and on other cards.

A plan that costs alone decide is the same wherever its kernels have the same algorithms, but for their workspaces: our
policies of this kind look at no times. In PyTorch's own segments a plan is placed the same on every card on which it
fits.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryModel, is_of_plain_loop, is_of_pytorch
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.repetition import cublas_bytes
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.workspaces import algorithms_of, captured_as, with_workspaces, workspaces_of
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Policy, is_shipped
from vdnnsim.scenario.simulator import Planned, Simulator, once


@dataclass(frozen=True, slots=True)
class SharedPlans:
    """What was planned and placed, by what decides it."""

    # With the workload, so that its identity stays unique; likewise with the plan.
    _plans: dict[Hashable, tuple[Workload, tuple[TrainingPlan, ...]]] = field(default_factory=dict)
    _placements: dict[Hashable, tuple[TrainingPlan, Placement]] = field(default_factory=dict)
    _first_two: dict[int, tuple[Workload, Workload]] = field(default_factory=dict)

    def planned(self, policy: Policy, simulator: Simulator) -> Planned:
        """Return the plans of a policy and their placements.

        Raises:
            PolicyError, PlanError: as `Simulator.made`.
        """
        plans = self.made(policy, simulator)
        if simulator.limits.model is not MemoryModel.PYTORCH:
            return simulator.placed(plans)
        unlimited = once(lambda plan: self._unlimited(plan, simulator), plans)
        if all(_fits(plan, placed, simulator) for plan, placed in zip(plans, unlimited, strict=True)):
            return Planned(plans, unlimited, unlimited)
        return Planned(plans, once(simulator.place, plans), unlimited)

    def first_two(self, workload: CapturedWorkload) -> Workload:
        """Return the first two micro-batches of a workload, always the same ones."""
        if id(workload) not in self._first_two:
            self._first_two[id(workload)] = workload, replace(workload, batch_size=2 * workload.part_size)
        return self._first_two[id(workload)][1]

    def made(self, policy: Policy, simulator: Simulator) -> tuple[TrainingPlan, ...]:
        """Return the plans of a policy; it raises what `planned` does."""
        if policy.decided_by is not DecidedBy.COSTS:
            return simulator.made(policy)
        workload, limits = simulator.workload, simulator.limits
        asked = policy.label, is_of_pytorch(limits.model), is_of_plain_loop(limits.model), limits.granule_bytes
        # Each rank of a pipeline has a workload of its own.
        is_shared = is_shipped(type(policy)) and not (isinstance(workload, CapturedWorkload) and workload.pipeline)
        if is_shared and isinstance(policy, ByRule) and isinstance(workload, CapturedWorkload):
            return self._by_rule(policy, workload, simulator, (*asked, simulator.gpus))
        key = *asked, simulator.gpus, simulator.server.name, id(workload)
        if key not in self._plans:
            self._plans[key] = workload, simulator.made(policy)
        return self._plans[key][1]

    def _by_rule(
        self, policy: ByRule, workload: CapturedWorkload, simulator: Simulator, asked: tuple[Hashable, ...]
    ) -> tuple[TrainingPlan, ...]:
        """Return the plans of a policy whose kernels are chosen by a rule, made once for all cards that choose alike.

        Cards for which the same is captured share its step.
        """
        kernels = policy.kernels(simulator.setting(), workload)
        held_bytes = cublas_bytes(workload, simulator.limits.granule_bytes)
        alike = *asked, id(workload.step), workload.batch_size, held_bytes, algorithms_of(kernels)
        key = *alike, workspaces_of(kernels)
        if key not in self._plans:
            others = self._plans[alike][1] if alike in self._plans else ()
            adapted = once(lambda plan: with_workspaces(plan, kernels), others)
            plans = tuple(filter(None, adapted)) or simulator.made(policy)
            self._plans[key] = workload, plans
            self._plans.setdefault(alike, self._plans[key])
        return once(lambda plan: captured_as(plan, workload), self._plans[key][1])

    def _unlimited(self, plan: TrainingPlan, simulator: Simulator) -> Placement:
        # Of cards for which the same is captured, plans differ in that alone.
        key = id(plan.buffers), id(plan.operations), simulator.limits.granule_bytes
        if key not in self._placements:
            self._placements[key] = plan, simulator.place_unlimited(plan)
        return self._placements[key][1]


def _fits(plan: TrainingPlan, placed: Placement, simulator: Simulator) -> bool:
    """Return whether a plan that needs no host memory has room for all of its segments."""
    return not placed.host_bytes and placed.pool_bytes <= simulator.limits.pool_bytes(plan)
