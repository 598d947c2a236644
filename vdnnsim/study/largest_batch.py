"""The largest batch that fits, by policy: step 1 of the adaptive trigger (Kim et al. 2018, III-C), for any policy.

A batch fits if the plan of every GPU can be placed in its memory. No duration decides that, so nothing is replayed
during the search, and trials of a policy are only placed. The next batch is the one that would just fill the memory if
needs grew linearly, or, where that does not converge, the middle of the interval.

The answer is checked by real trials: the batch fits, and with one image more the policy's plan does not. Otherwise the
policy decides by durations of trials, and the search is repeated with real ones. If memory grows with the batch, no
larger batch fits. It need not: another convolution algorithm may be fastest at a larger batch and need less workspace.

A deadline is divided equally among the policies, and a part of each share is kept for the real trials. At the deadline
the answer is the largest batch that fitted and the least that did not. Policies that search end with their share; one
that ignores it is ended between two plans, and the answer has the delay.

A policy that cuts a batch into parts until they fit trains any batch if it trains one image; there the largest part is
searched for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from vdnnsim.analysis.kernel_origins import KernelOrigins, kernel_origins
from vdnnsim.analysis.results import Declined
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.plans.placement import DoesNotFit, Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, Setting, Trial, make_plans
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.read import LARGEST_BATCH
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The largest batch of one policy.

    Attributes:
        batch_size: images per GPU; 0 where not even one fits.
        images_per_s: of one GPU until the last is done, of a part where there are parts; None where no batch fits.
        refusal: of one image more; None where the largest batch of a scenario fits.
        part_size: images in the largest part that fits, where a batch of any size is cut into parts.
        tokens: of the longest sequence with this batch, where that was searched for; 0 where none fits.
        no_plan: why the policy has no plan at any batch; empty where it has.
        untried: at the deadline, the least batch that is known not to fit; none between was tried.
        late_s: delay of a policy that ignores its deadline.
    """

    policy: str
    batch_size: int
    images_per_s: float | None
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


@dataclass(frozen=True, slots=True)
class Need:
    """The memory of a batch.

    Attributes:
        share: of the capacity of GPU or host, the larger; an estimate that guides the search.
    """

    fits: bool
    share: float


_SEARCHED: Final = 0.75
"""Share of a policy's time for the search; the rest is for the real trials."""


def largest_batches(scenario: Scenario, deadline: Deadline = NEVER) -> tuple[LargestBatch, ...]:
    """Return the largest batch of every policy of a scenario; the search begins at the scenario's batch.

    The deadline is of all policies together.

    Raises:
        PolicyError: no policy has a plan.
    """
    batches = Sizes(scenario.workload_of, scenario.workload.batch_size, LARGEST_BATCH)
    return largest_sizes(Simulators(scenario, ServerCosts(scenario.server), batches), deadline)


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


def find_edge(
    need: Callable[[int], Need | None], guess: int, largest: int = LARGEST_BATCH, deadline: Deadline = NEVER
) -> tuple[int, int]:
    """Return a batch that fits and the next larger one, which does not.

    The batch is 0 if one image does not fit, `largest` if that does. At the deadline, or where `need` returns None, the
    two may not be adjacent.
    """
    known: dict[int, Need] = {}
    low, high = 0, largest + 1
    batch, width = guess, high
    while high - low > 1 and not deadline.is_over and (needed := need(batch)) is not None:
        known[batch] = needed
        low, high = (batch, high) if needed.fits else (low, batch)
        closing, width = 2 * (high - low) <= width, high - low
        estimate = _where_full(known, batch) if closing or len(known) < _ALWAYS_ESTIMATED else None
        if estimate is None:
            estimate = 2 * low if high > largest else (low + high) // 2
        batch = min(max(estimate, low + 1), high - 1)
    return low, high


_ALWAYS_ESTIMATED = 4
"""Estimates that are used even if they do not halve the interval; linear needs take no more."""


def _where_full(known: dict[int, Need], last: int) -> int | None:
    """Return the batch that would fill the memory, on a line through the last two, or through the origin for one."""
    others = [batch for batch in known if batch != last]
    other, share = (others[-1], known[others[-1]].share) if others else (0, 0.0)
    slope = (known[last].share - share) / (last - other)
    return int(min(last + (1 - known[last].share) / slope, 2 * LARGEST_BATCH)) if slope > 0 else None


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

    def __getitem__(self, batch: int) -> Simulator:
        if batch not in self.made:
            at_batch = replace(self.scenario, workload=self.sizes.workload(batch))
            self.made[batch] = simulator_of(at_batch, self.costs)
        return self.made[batch]

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
        batch = count * multiple
        needed = _need(simulators[batch], make_plans(policy, simulators.setting(batch, deadline, placed=placed)))
        # A policy whose search ended early may have missed a plan that fits.
        return needed if needed.fits or not deadline.is_over else None

    batch, more = find_edge(need, guess, sizes.largest // multiple, deadline)
    return multiple * batch, multiple * more


def _hold_against_trials(
    simulators: Simulators, policy: Policy, batch: int, untried: int | None, deadline: Deadline
) -> LargestBatch | None:
    """Return the answer by real trials; None where the batch does not fit or the next one does."""
    images_per_s = refusal = None
    kernels = KernelOrigins()
    if batch > 0:
        simulator = simulators[batch]
        plans = make_plans(policy, simulators.setting(batch, deadline, placed=False))
        trials = simulator.run_server_trial(plans)
        if not all(trial.fits for trial in trials):
            return None
        images_per_s = batch / max(trial.cost_s for trial in trials)
        kernels = kernel_origins(plans, simulator.cost_model)
    more = batch + simulators.sizes.multiple(policy)
    if untried is None and more <= simulators.sizes.largest:
        refusal = next(iter(replace(simulators[more], deadline=deadline).planned(policy).refusals), None)
        if deadline.is_over:
            refusal, untried = None, more
        elif refusal is None:
            return None
    return LargestBatch(
        policy.label, batch, images_per_s, refusal, kernels=kernels, untried=untried, late_s=deadline.late_s
    )


def _need(simulator: Simulator, plans: Sequence[TrainingPlan]) -> Need:
    limits = simulator.limits
    device_bytes, host_bytes = max(1, limits.device_bytes), max(1, limits.host_bytes)
    shares, fits = [], True
    # Several GPUs may share a plan.
    for plan in {id(plan): plan for plan in simulator.completed(plans)}.values():
        unlimited = simulator.place_unlimited(plan)
        shares += [unlimited.pool_bytes / device_bytes, unlimited.host_bytes / host_bytes]
        fits = fits and isinstance(simulator.place(plan), Placement)
    return Need(fits, max(shares))
