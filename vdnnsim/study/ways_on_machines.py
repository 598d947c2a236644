"""Ranking of machines for a captured model by what `run` finds on each: PyTorch's own loop, or what makes it fit.

On every machine the plain loop is replayed. Where it does not surely fit, what `run` tries there is tried in its order
(`vdnnsim.study.answer`) until something does: micro-batches, checkpointed blocks, policies, a search. Only what
computes the same step counts, no optimizer of 8 bits and no smaller batch. The step is captured for each card.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from math import inf
from typing import Final

from vdnnsim.analysis.answer import Way
from vdnnsim.analysis.machines import Offer, Ranking, Unfit
from vdnnsim.analysis.results import ScenarioResult, Setup, slowest_of
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import Profile
from vdnnsim.policies.interface import is_search
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import ways_here
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.less_work import OF_CONVOLUTIONS, PLAIN, POLICIES
from vdnnsim.study.machines import Prices, ranking_of
from vdnnsim.study.policies_on_machine import CapturedFor, captured_on, held_alone, suited, trusted
from vdnnsim.study.replay_budget import RANKED_PER_S, SHARED, ReplayBudget, Tried, is_too_large
from vdnnsim.study.shared_plans import SharedPlans
from vdnnsim.units import format_bytes

OPERATIONS: Final = 25 * RANKED_PER_S
"""Of a ranking, by default."""
SLOW: Final = 50
"""How many times as long as the first the kernels of a machine take that waits for more time than by default.

It cannot win: no card is rented for so much less.
"""
_OTHER_LOOPS: Final = "`run` tries updates in backward, states on the host and frozen weights in bfloat16"


def rank_by_ways(  # noqa: PLR0913 - all that a ranking is asked for
    scenario: Scenario,
    profiles: Sequence[Profile],
    types: PolicyTypes,
    captured_for: CapturedFor | None = None,
    prices: Prices | None = None,
    *,
    operations: int = OPERATIONS,
    are_named: bool = False,
    done: Callable[[Offer | Unfit], object] = id,
    tried_before: Callable[[Scenario], AbstractContextManager[Tried]] = lambda _: nullcontext({}),
) -> Ranking:
    """Rank machines for a captured model.

    Args:
        scenario: of the model; its machine and policies do not count.
        profiles: the machines.
        types: all known policies.
        captured_for: captures the model for a card; None where the step is taken as it is.
        prices: as of `rank_machines`.
        operations: that may be captured and replayed, as of `ReplayBudget`; policies that neither search nor need
            another capture are tried whatever is left.
        are_named: whether somebody asks for these machines, so that none waits for more time as it cannot win.
        done: gets what was found on each machine, first on those that need no way; of those that share captures the
            largest memory comes first.
        tried_before: yields what is known of a scenario on its machine, to which what is tried now is added.
    """
    found: dict[int, Offer | Unfit] = {}
    lacking: dict[int, AnswerReplays] = {}
    plain, shared = resolve_policy(PLAIN, types), SharedPlans()
    asked, budget, used = replace(scenario, policies=(plain,)), ReplayBudget(operations), [plain.label]
    at_once = [resolve_policy(each, types) for each in (*POLICIES, *OF_CONVOLUTIONS)]
    always = frozenset(each.label for each in (plain, *at_once) if not is_search(each))
    # By the model that was captured, of which no other has the identity while the replays are there.
    largest: dict[int, AnswerReplays] = {}
    for at in sorted(range(len(profiles)), key=lambda at: -profiles[at].server.gpu.memory_bytes):
        there = _on(asked, profiles[at], captured_for)
        if isinstance(there, Unfit):
            found[at] = there
        else:
            known = largest.get(_captured(there))
            replays = _plain(there, types, shared, budget, known)
            largest.setdefault(_captured(there), replays)
            if not replays.result.fits_surely:
                lacking[at] = replays
                continue
            found[at] = _offer(replays, profiles[at])
        done(found[at])
    if prices is None and not are_named and operations <= OPERATIONS:
        first_s = min((each.iteration_s for each in found.values() if isinstance(each, Offer)), default=inf)
        for at in [at for at, replays in lacking.items() if _kernels_s(replays) > SLOW * first_s]:
            del lacking[at]
            reason = f"kernels alone take over {SLOW} times as long as the first"
            found[at] = Unfit(profiles[at].server.name, reason, undecided=True, is_slow=True)
            done(found[at])
    sharing = Counter(_captured(each.scenario) for each in lacking.values())
    # What few share takes most, and comes last, for all that is left.
    lacking = dict(sorted(lacking.items(), key=lambda item: -sharing[_captured(item[1].scenario)]))
    elsewhere: dict[int, dict[Way, Way]] = defaultdict(dict)
    loops: dict[int, set[Loop]] = defaultdict(set)
    lines: dict[int, set[Loop]] = defaultdict(set)
    for left, (at, replays) in zip(range(len(lacking), 0, -1), lacking.items(), strict=True):
        # Twice an equal share, for what is tried on one card is there for the next.
        model, share = _captured(replays.scenario), 2 * budget.operations // (left + 1)
        part = ReplayBudget(share, cards=sharing[model], always=always)
        part.elsewhere, part.loops, part.lines = elsewhere[model], loops[model], lines[model]
        with tried_before(replays.scenario) as part.kept:
            tried = list(_until_one_fits(replace(replays, budget=part)))
        budget.operations -= share - part.operations
        if tried[-1].fits:
            found[at] = _offer(replays, profiles[at], tried[-1])
            used.append(tried[-1].policy)
        else:
            found[at] = _unfit(profiles[at], tried)
        done(found[at])
    return ranking_of([found[at] for at in range(len(profiles))], asked, prices, dict.fromkeys(used))


def _captured(scenario: Scenario) -> int:
    """Return the identity of the model that was captured, for this card or for those for which the same is captured."""
    assert scenario.captured is not None, "the scenario is of a captured model"
    return id(scenario.captured.original)


def _on(scenario: Scenario, profile: Profile, captured_for: CapturedFor | None) -> Scenario | Unfit:
    """Return the scenario on a machine, captured for it, or why it is not replayed there."""
    name, model = profile.server.name, scenario.captured
    assert model is not None, "the scenario is of a captured model"
    try:
        server = suited(scenario, profile.server)
    except ProfileError as failure:
        return Unfit(name, str(failure).removeprefix(f"{name}: "))
    if too_large := held_alone(model.base, server):
        return Unfit(name, f"{too_large}; {_OTHER_LOOPS}")
    if captured_for is not None:
        model = captured_for(profile.server)
    return replace(captured_on(scenario, model), server=server, sources=(*model.sources, *profile.sources))


def _plain(
    scenario: Scenario, types: PolicyTypes, shared: SharedPlans, budget: ReplayBudget, largest: AnswerReplays | None
) -> AnswerReplays:
    """Return replays with the result of PyTorch's own loop, which is its own oracle.

    What allocates more than the card has on the largest for which the same was captured is not replayed again.
    """
    assert scenario.captured is not None, "the scenario is of a captured model"
    simulator, rows = simulator_of(scenario), () if largest is None else largest.result.results
    if not rows or not is_too_large(rows[0].metrics.allocated_bytes, scenario.server.gpu.memory_bytes):
        budget.operations -= len(scenario.captured.base.operations) // (SHARED if rows else 1)
        rows = simulator.outcome(shared.planned(scenario.policies[0], simulator), None)
    result = ScenarioResult(
        **{each.name: getattr(scenario, each.name) for each in fields(Setup)},
        oracle=rows[0].metrics,
        algorithm_profiling_s=0.0,
        results=rows,
    )
    return AnswerReplays(scenario, result, types, ReplayBudget(), simulator.cost_model, shared=shared)


def _kernels_s(replays: AnswerReplays) -> float:
    """Return how long all kernels take by their fastest algorithms, whatever memory there is."""
    return sum(options[0].seconds for options in replays.costs.table(replays.workload).kernels.values())


def _until_one_fits(replays: AnswerReplays) -> Iterator[Way]:
    for way in ways_here(replays):
        yield way
        if way.fits:
            return


def _offer(replays: AnswerReplays, profile: Profile, way: Way | None = None) -> Offer:
    """Return the offer of the plain loop, or of another way; the kernels of both have times of the same origins."""
    result = replays.result
    row, gpu = slowest_of(result.results), result.server.gpu
    held_bytes = row.held_bytes(gpu) if way is None else way.held_bytes
    plans = replays.shared.made(replays.scenario.policies[0], simulator_of(replays.scenario, replays.costs))
    iteration_s = row.metrics.iteration_s if way is None else way.iteration_s
    return Offer(
        names=(profile.server.name,),
        gpu=gpu.name,
        policy=row.policy if way is None else way.words,
        iteration_s=iteration_s,
        samples_per_s=result.batches * (row.metrics.samples_per_s if way is None else way.samples_per_s),
        asked_bytes=row.metrics.allocated_bytes if way is None else way.allocated_bytes,
        reserved_bytes=held_bytes - gpu.framework_bytes(plans[0].handles),
        held_bytes=held_bytes,
        memory_bytes=gpu.memory_bytes,
        **trusted(result, profile, plans, replays.costs, iteration_s),
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
