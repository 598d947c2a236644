"""The largest batch that fits, by policy: step 1 of the adaptive trigger (Kim et al. 2018, III-C), for any policy.

A batch fits if the plan of every GPU can be placed in its memory. No duration decides that, so nothing is replayed
during the search, and trials of a policy are only placed. The next batch is the one that would just fill the memory if
needs grew linearly, or, where that does not converge, the middle of the interval.

The answer is checked by real trials: the batch fits, and with one image more the policy's plan does not. Otherwise the
policy decides by durations of trials, and the search is repeated with real ones. If memory grows with the batch, no
larger batch fits. It need not: another convolution algorithm may be fastest at a larger batch and need less workspace,
and PyTorch's allocator may reserve less for a larger one. So of a captured model larger ones are tried, too (`beyond`).

A deadline is divided equally among the policies, and a part of each share is kept for the real trials. At the deadline
the answer is the largest batch that fitted and the least that did not. Policies that search end with their share; one
that ignores it is ended between two plans, and the answer has the delay.

Where a policy cuts a batch into parts until they fit, so that it trains any, the largest part is searched for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from vdnnsim.analysis.kernel_origins import KernelOrigins, kernel_origins
from vdnnsim.analysis.results import Declined
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy, Setting, Trial
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.read import LARGEST_BATCH
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.edge import Need, beyond, find_edge


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The largest batch of one policy.

    Attributes:
        batch_size: images per GPU; 0 where not even one fits.
        samples_per_s: of one GPU until the last is done, of a part where there are parts; None where no batch fits.
        refusal: of one image more; None where the largest batch of a scenario fits.
        part_size: images in the largest part that fits, where a batch of any size is cut into parts.
        tokens: of the longest sequence with this batch, where that was searched for; 0 where none fits.
        no_plan: why the policy has no plan at any batch; empty where it has.
        untried: at the deadline, the least batch that is known not to fit; none between was tried.
        late_s: delay of a policy that ignores its deadline.
    """

    policy: str
    batch_size: int
    samples_per_s: float | None
    refusal: DoesNotFit | None
    part_size: int | None = None
    kernels: KernelOrigins = field(default_factory=KernelOrigins, compare=False)
    no_plan: str = ""
    tokens: int | None = None
    untried: int | None = None
    late_s: float = field(default=0.0, compare=False)

    @property
    def size(self) -> int:
        """The tokens, where these were searched for, else the batch."""
        return self.batch_size if self.tokens is None else self.tokens

    @property
    def stopped_by(self) -> tuple[str, str]:
        """The layer and the phase in which one image more does not fit; empty where there is none."""
        if self.refusal is None:
            return "", ""
        return self.refusal.plan.layers[self.refusal.layer], self.refusal.phase.value


_SEARCHED: Final = 0.75
"""Share of a policy's time for the search; the rest is for the real trials."""


def largest_batches(scenario: Scenario, deadline: Deadline = NEVER) -> tuple[LargestBatch, ...]:
    """Return the largest batch of every policy of a scenario; the search begins at the scenario's batch.

    The deadline is of all policies together.

    Raises:
        PolicyError: no policy has a plan.
    """
    return largest_sizes(Simulators.of_batches(scenario), deadline)


def largest_sizes(simulators: "Simulators", deadline: Deadline) -> tuple[LargestBatch, ...]:
    """Return the largest size under every policy, as a batch, or raise PolicyError where no policy has a plan."""
    scenario = simulators.scenario
    found, refusals = list[LargestBatch](), list[PolicyError]()
    for left, policy in zip(range(len(scenario.policies), 0, -1), scenario.policies, strict=True):
        try:
            found.append(_largest_batch(simulators, policy, deadline.part(1 / left)))
        except PolicyError as refusal:
            refusals.append(refusal)
            declined = Declined.by(policy.label, refusal)
            found.append(LargestBatch(policy.label, 0, None, None, no_plan=declined.reason))
    if refusals and len(refusals) == len(found):
        raise refusals[0]
    return tuple(found)


def surely_largest(
    simulators: "Simulators", found: Sequence[LargestBatch], deadline: Deadline = NEVER
) -> tuple[LargestBatch, ...]:
    """Return the largest batch of each policy that fits even if peaks are too low by as much as they are known to be.

    As in a run, the peak of its replay is compared; a policy that plans for the memory that there is gets less of it.

    Args:
        simulators: with which the largest batches were found.
        found: those, by policy.
        deadline: of all policies together.
    """
    return tuple(
        each if not each.batch_size or each.part_size else _surely(simulators, policy, each, deadline.part(1 / left))
        for left, policy, each in zip(range(len(found), 0, -1), simulators.scenario.policies, found, strict=True)
    )


def _surely(simulators: "Simulators", policy: Policy, found: LargestBatch, deadline: Deadline) -> LargestBatch:
    gpu = simulators.scenario.server.gpu
    certain, multiple = certain_bytes(gpu.memory_bytes), simulators.sizes.multiple(policy)
    if policy.decided_by is not DecidedBy.COSTS:
        server = replace(simulators.scenario.server, gpu=replace(gpu, memory_bytes=certain))
        scenario = replace(simulators.scenario, server=server)
        return _largest_batch(Simulators(scenario, simulators.costs, simulators.sizes), policy, deadline)

    def need(count: int) -> Need:
        needed = simulators.need(policy, count * multiple, deadline, placed=True)
        return Need(needed.is_sure, needed.share * gpu.memory_bytes / certain)

    most = found.batch_size // multiple
    batch, more = find_edge(need, max(1, most * certain // gpu.memory_bytes), most, deadline)
    if batch and more == batch + 1 and simulators.may_shrink:
        batch, more = beyond(need, batch, most, deadline)
    untried = multiple * more if more > batch + 1 else None
    return LargestBatch(policy.label, multiple * batch, None, None, untried=untried)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is searched for, batches or steps of a sequence: their workloads, the first and the largest one."""

    workload: Callable[[int], Workload]
    start: int
    largest: int
    by_batch: bool = True

    def multiple(self, policy: Policy) -> int:
        """Return the number of which sizes are multiples under a policy."""
        return policy.batch_multiple if self.by_batch else 1


@dataclass(slots=True)
class Simulators:
    """A simulator for each size, with one cost model for all."""

    scenario: Scenario
    costs: ServerCosts
    sizes: Sizes
    made: dict[int, Simulator] = field(default_factory=dict)
    needs: dict[tuple[str, int], Need] = field(default_factory=dict)

    @classmethod
    def of_batches(cls, scenario: Scenario) -> "Simulators":
        """Return those of a scenario at any batch; a search begins at the scenario's own."""
        together = scenario.captured.base.micro_batches if scenario.captured else 1
        batches = Sizes(scenario.workload_of, scenario.workload.part_size, LARGEST_BATCH // together)
        return cls(scenario, ServerCosts(scenario.server), batches)

    @property
    def may_shrink(self) -> bool:
        """Whether a larger batch may take less memory, as of a captured model; lengths may need a capture each."""
        return self.sizes.by_batch and self.scenario.captured is not None

    def __getitem__(self, batch: int) -> Simulator:
        if batch not in self.made:
            at_batch = replace(self.scenario, workload=self.sizes.workload(batch))
            self.made[batch] = simulator_of(at_batch, self.costs)
        return self.made[batch]

    def need(self, policy: Policy, batch: int, deadline: Deadline, *, placed: bool) -> Need:
        """Return the memory of a policy at a batch, known where neither memory nor trials decided its plan."""
        if (policy.label, batch) in self.needs:
            return self.needs[policy.label, batch]
        found = _need(self[batch], self[batch].plans(policy, self.setting(batch, deadline, placed=placed)))
        if policy.decided_by is DecidedBy.COSTS:
            self.needs[policy.label, batch] = found
        return found

    def setting(self, batch: int, deadline: Deadline, *, placed: bool) -> Setting:
        """Return the setting of a policy at a batch, with real trials or ones that are only placed."""
        setting = replace(self[batch].setting(), deadline=deadline)
        if not placed:
            return setting
        trials = PlacedTrials(self[batch])
        return replace(setting, known_trials=trials, server_trials=trials)


@dataclass(frozen=True, slots=True)
class PlacedTrials:
    """Trials that are placed and not replayed."""

    simulator: Simulator

    def run_trial(self, plan: TrainingPlan) -> Trial:
        return self.run_server_trial((plan,))[0]

    def run_server_trial(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        return tuple(Trial(self.simulator.place(plan), 0.0) for plan in self.simulator.completed(plans))


def _largest_batch(simulators: Simulators, policy: Policy, deadline: Deadline) -> LargestBatch:
    part_policy = policy.of_a_part
    if part_policy is not None and simulators.sizes.by_batch:
        if simulators.scenario.captured is not None:
            raise PolicyError(
                f"{policy.label}: cuts a batch into parts, and {simulators.scenario.workload.graph.name} was captured "
                "with all of it at a time; expected another policy"
            )
        part = _largest_batch(simulators, part_policy, deadline)
        if part.batch_size == 0:
            return replace(part, policy=policy.label)
        return replace(part, policy=policy.label, batch_size=LARGEST_BATCH, refusal=None, part_size=part.batch_size)
    for placed in (True, False):
        batch, more = _edge(simulators, policy, deadline.part(_SEARCHED), placed=placed)
        untried = more if more > batch + simulators.sizes.multiple(policy) else None
        found = None if deadline.is_over else _hold_against_trials(simulators, policy, batch, untried, deadline)
        if found is not None:
            return found
        if deadline.is_over:
            break
    # A policy whose own search ends by the clock may find a plan once, and none the next time.
    assert deadline != NEVER, f"{policy.label} plans differently each time"
    return LargestBatch(policy.label, batch, None, None, untried=more, late_s=deadline.late_s)


def _edge(simulators: Simulators, policy: Policy, deadline: Deadline, *, placed: bool) -> tuple[int, int]:
    """Search among the batches that a policy can have."""
    multiple, sizes = simulators.sizes.multiple(policy), simulators.sizes
    guess = max(1, sizes.start // multiple)

    def need(count: int) -> Need | None:
        needed = simulators.need(policy, count * multiple, deadline, placed=placed)
        # A policy whose search ended early may have missed a plan that fits.
        return needed if needed.fits or not deadline.is_over else None

    batch, more = find_edge(need, guess, sizes.largest // multiple, deadline)
    if batch and more == batch + 1 and simulators.may_shrink and policy.decided_by is DecidedBy.COSTS:
        batch, more = beyond(need, batch, sizes.largest // multiple, deadline)
    return multiple * batch, multiple * more


def _hold_against_trials(
    simulators: Simulators, policy: Policy, batch: int, untried: int | None, deadline: Deadline
) -> LargestBatch | None:
    """Return the answer by real trials; None where the batch does not fit or the next one does."""
    samples_per_s = refusal = None
    kernels = KernelOrigins()
    if batch > 0:
        simulator = simulators[batch]
        plans = simulator.plans(policy, simulators.setting(batch, deadline, placed=False))
        trials = simulator.run_server_trial(plans)
        if not all(trial.fits for trial in trials):
            return None
        samples_per_s = simulator.workload.batch_size / max(trial.cost_s for trial in trials)
        kernels = kernel_origins(plans, simulator.cost_model)
    more = batch + simulators.sizes.multiple(policy)
    if untried is None and more <= simulators.sizes.largest:
        refusal = next(iter(replace(simulators[more], deadline=deadline).planned(policy).refusals), None)
        if deadline.is_over:
            refusal, untried = None, more
        elif refusal is None:
            return None
    return LargestBatch(
        policy.label, batch, samples_per_s, refusal, kernels=kernels, untried=untried, late_s=deadline.late_s
    )


def _need(simulator: Simulator, plans: Sequence[TrainingPlan]) -> Need:
    limits = simulator.limits
    device_bytes, host_bytes = max(1, limits.device_bytes), max(1, limits.host_bytes)
    gpu, shares, fits, sure = simulator.server.gpu, [], [], []
    # Several GPUs may share a plan.
    for plan in {id(plan): plan for plan in simulator.completed(plans)}.values():
        unlimited, placed = simulator.place_unlimited(plan), simulator.place(plan)
        shares += [unlimited.pool_bytes / device_bytes, unlimited.host_bytes / host_bytes]
        fits.append(isinstance(placed, Placement))
        held_bytes = placed.pool_bytes + gpu.framework_bytes(plan.handles) if isinstance(placed, Placement) else None
        sure.append(held_bytes is not None and held_bytes <= certain_bytes(gpu.memory_bytes))
    return Need(all(fits), max(shares), is_sure=all(sure))
