"""Ranking of machines for a captured model by what `run` finds on each: PyTorch's own loop, or what makes it fit.

On every machine the plain loop is replayed. Where it does not surely fit, what `run` tries there is tried in its order
(`vdnnsim.study.answer`) until something does: micro-batches, checkpointed blocks, policies, a search. Only what
computes the same step counts, no optimizer of 8 bits and no smaller batch. The step is captured for each card.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Final, TypeAlias

from vdnnsim.analysis.answer import Way
from vdnnsim.analysis.machines import Offer, Ranking, Unfit
from vdnnsim.analysis.results import ScenarioResult, Setup, slowest_of
from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import Profile
from vdnnsim.hardware.server import Server
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import ways_here
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.less_work import PLAIN
from vdnnsim.study.machines import Prices, ranking_of
from vdnnsim.study.policies_on_machine import held_alone, suited, trusted
from vdnnsim.study.replay_budget import PER_S, SHARED, ReplayBudget
from vdnnsim.study.shared_plans import SharedPlans
from vdnnsim.units import format_bytes

CapturedFor: TypeAlias = Callable[[Server], CapturedModel]
OPERATIONS: Final = 25 * PER_S
"""Of a ranking, by default."""
_OTHER_LOOPS: Final = "`run` tries updates in backward and states on the host"


def rank_by_ways(
    scenario: Scenario,
    profiles: Sequence[Profile],
    types: PolicyTypes,
    captured_for: CapturedFor | None = None,
    prices: Prices | None = None,
    *,
    operations: int = OPERATIONS,
    done: Callable[[Offer | Unfit], object] = id,
) -> Ranking:
    """Rank machines for a captured model.

    Args:
        scenario: of the model; its machine and policies do not count.
        profiles: the machines.
        types: all known policies.
        captured_for: captures the model for a card; None where the step is taken as it is.
        prices: as of `rank_machines`.
        operations: that may be captured and replayed, as of `ReplayBudget`.
        done: gets what was found on each machine, the largest memory first, of those that need no way.
    """
    found: dict[int, Offer | Unfit] = {}
    lacking: dict[int, AnswerReplays] = {}
    plain, shared, elsewhere = resolve_policy(PLAIN, types), SharedPlans(), dict[int, dict[Way, Way]]()
    asked, budget, used = replace(scenario, policies=(plain,)), ReplayBudget(operations), [plain.label]
    for at in sorted(range(len(profiles)), key=lambda at: -profiles[at].server.gpu.memory_bytes):
        there = _on(asked, profiles[at], captured_for, budget, elsewhere)
        if isinstance(there, Unfit):
            found[at] = there
        else:
            replays = _plain(there, types, shared)
            if not replays.result.fits_surely:
                lacking[at] = replays
                continue
            found[at] = _offer(replays.result, profiles[at])
        done(found[at])
    for left, (at, replays) in zip(range(len(lacking), 0, -1), lacking.items(), strict=True):
        part = ReplayBudget(share := budget.operations // left, elsewhere=elsewhere[id(replays.scenario.captured)])
        tried = list(_until_one_fits(replace(replays, budget=part)))
        budget.operations -= share - part.operations
        if tried[-1].fits:
            found[at] = _offer(replays.result, profiles[at], tried[-1])
            used.append(tried[-1].policy)
        else:
            found[at] = _unfit(profiles[at], tried)
        done(found[at])
    return ranking_of([found[at] for at in range(len(profiles))], asked, prices, dict.fromkeys(used))


def _on(
    scenario: Scenario,
    profile: Profile,
    captured_for: CapturedFor | None,
    budget: ReplayBudget,
    elsewhere: dict[int, dict[Way, Way]],
) -> Scenario | Unfit:
    """Return the scenario on a machine, captured for it, or why it is not replayed there.

    `elsewhere` has what was found on other cards, by the identity of the model that was captured for them.
    """
    name, model = profile.server.name, scenario.captured
    assert model is not None, "the scenario is of a captured model"
    try:
        server = suited(scenario, profile.server)
    except ProfileError as failure:
        return Unfit(name, str(failure).removeprefix(f"{name}: "))
    if too_large := held_alone(model.base, server):
        return Unfit(name, f"{too_large}; {_OTHER_LOOPS}")
    step = len(model.base.operations)
    if budget.operations < step:
        return Unfit(name, f"not tried in time: {scenario.policies[0].label}", undecided=True)
    if captured_for is not None:
        model = captured_for(profile.server)
    budget.operations -= step // (SHARED if id(model) in elsewhere else 1)
    elsewhere.setdefault(id(model), {})
    workload = model.workload(model.base.batch_size)
    return replace(scenario, server=server, captured=model, workload=workload)


def _plain(scenario: Scenario, types: PolicyTypes, shared: SharedPlans) -> AnswerReplays:
    """Return replays with the result of PyTorch's own loop, which is its own oracle."""
    simulator = simulator_of(scenario)
    rows = simulator.outcome(shared.planned(scenario.policies[0], simulator), None)
    result = ScenarioResult(
        **{each.name: getattr(scenario, each.name) for each in fields(Setup)},
        oracle=rows[0].metrics,
        algorithm_profiling_s=0.0,
        results=rows,
    )
    return AnswerReplays(scenario, result, types, ReplayBudget(), simulator.cost_model, shared=shared)


def _until_one_fits(replays: AnswerReplays) -> Iterator[Way]:
    for way in ways_here(replays):
        yield way
        if way.fits:
            return


def _offer(result: ScenarioResult, profile: Profile, way: Way | None = None) -> Offer:
    """Return the offer of the plain loop, or of another way; the kernels of both have times of the same origins."""
    row, gpu = slowest_of(result.results), result.server.gpu
    held_bytes = row.held_bytes(gpu) if way is None else way.held_bytes
    return Offer(
        names=(profile.server.name,),
        gpu=gpu.name,
        policy=row.policy if way is None else way.words,
        iteration_s=row.metrics.iteration_s if way is None else way.iteration_s,
        samples_per_s=result.batches * (row.metrics.samples_per_s if way is None else way.samples_per_s),
        asked_bytes=row.metrics.allocated_bytes if way is None else way.allocated_bytes,
        reserved_bytes=held_bytes - gpu.framework_bytes(row.trace.plan.handles),
        held_bytes=held_bytes,
        memory_bytes=gpu.memory_bytes,
        **trusted(result, profile, [each.trace.plan for each in result.results], ServerCosts(result.server)),
    )


def _unfit(profile: Profile, tried: Sequence[Way]) -> Unfit:
    """Return what would hold least of all that was tried, and what was not."""
    held = [way for way in tried if way.held_bytes]
    least = min(held, key=lambda way: way.held_bytes)
    memory_bytes = profile.server.gpu.memory_bytes
    reason = f"{least.words} would hold {format_bytes(least.held_bytes)} of {format_bytes(memory_bytes)}"
    margin = "; peaks may be too low by more than is left" if least.held_bytes <= memory_bytes else ""
    untried = [way.words for way in tried if way.untried]
    late = f"; not tried in time: {listed(untried)}" if untried else ""
    return Unfit(profile.server.name, f"{reason}, the least of those tried{margin}{late}", undecided=bool(untried))
