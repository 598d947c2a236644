"""Which machine for a workload: one scenario replayed on many profiles, ordered by time or by the user's prices.

A file of prices, for none is shipped:

    schema_version: 1
    currency: EUR
    per_hour:             # of one GPU, with its share of the host
      rtx_4090: 0.39
      a100_80gb: 1.79
    samples_per_epoch: 1281167

Without `samples_per_epoch` costs are of a thousand steps. An hour of a machine of your own costs its price and its
power over the hours of its use.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from vdnnsim.analysis.machines import Offer, Ranking, Unfit, cost_of
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.engine.host import Execution
from vdnnsim.errors import ProfileError, ScenarioError
from vdnnsim.files.yaml_file import read_yaml
from vdnnsim.hardware.profile import Profile, card_words
from vdnnsim.hardware.server import Server
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.policies.interface import Policy, is_search
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.policies_on_machine import CapturedFor, PoliciesOnMachine

SCHEMA_VERSION: Final = 1
_LARGEST_PRICE: Final = 1e6
_LARGEST_EPOCH: Final = 10**15


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of machines; without `samples_per_epoch` costs are of a thousand steps."""

    currency: str
    per_hour: Mapping[str, float]
    samples_per_epoch: int | None
    source: tuple[str, str]


def read_prices(path: Path) -> Prices:
    """Read a file of prices, or raise ScenarioError where it cannot be read, or something in it is wrong."""
    file = read_yaml(path, ScenarioError)
    file.root.check_schema_version(SCHEMA_VERSION)
    keys = file.root.members(("schema_version", "currency", "per_hour"), ("samples_per_epoch",))
    prices = keys["per_hour"].named_members("machines and what an hour of each costs")
    if not prices:
        raise keys["per_hour"].expected("the price of at least one machine")
    epoch = keys["samples_per_epoch"].integer(1, _LARGEST_EPOCH) if "samples_per_epoch" in keys else None
    what = f"a number from 0 to {_LARGEST_PRICE:g}, the price of an hour"
    per_hour = {name: each.number(0, _LARGEST_PRICE, what) for name, each in prices.items()}
    return Prices(keys["currency"].text(), per_hour, epoch, (file.name, file.sha256))


def one_of_each_card(profiles: Sequence[Profile], gpus: int) -> list[Profile]:
    """Return one machine for each card, by its name; for one GPU no server of several.

    It is that with the fewest GPUs which suffice, else with the most; of those the one with peaks of most types.
    """
    chosen: dict[frozenset[str], str] = {}
    suited = (each.server for each in profiles if gpus > 1 or each.server.gpu_count == 1)
    for server in sorted(suited, key=lambda each: _unsuited(each, gpus)):
        chosen.setdefault(card_words(server.gpu.name), server.name)
    return [each for each in profiles if each.server.name in chosen.values()]


def _unsuited(server: Server, gpus: int) -> tuple[bool, int, int]:
    there = server.gpu_count
    return there < gpus, there if there >= gpus else -there, -len(server.gpu.flop_per_s)


def rank_machines(
    scenario: Scenario,
    profiles: Sequence[Profile],
    prices: Prices | None = None,
    *,
    captured_for: CapturedFor | None = None,
    first_where_it_fits: bool = False,
    done: Callable[[Offer | Unfit], object] = id,
    deadline: Deadline = NEVER,
) -> Ranking:
    """Replay the workload and the policies of a scenario on every machine, and rank the machines.

    The machine of the scenario itself does not count. A model is captured for each card where `captured_for` does that.
    With prices the order is by cost. The first policy is taken `first_where_it_fits`; else, and where it does not fit,
    the fastest. `done` gets what was found on each machine, the likely answers first. A policy is tried on all machines
    before the next; searches come last, in equal shares of the time that is left until the deadline.
    """
    # What does not fit a large card need not be tried on a small one.
    order = sorted(range(len(profiles)), key=lambda at: -profiles[at].server.gpu.memory_bytes)
    cards = {at: PoliciesOnMachine.of(scenario, profiles[at], captured_for) for at in order}
    found: dict[int, Offer | Unfit] = {}
    known: dict[str, int] = {}
    policies = sorted(scenario.policies, key=is_search)
    for policy in policies:
        left = [at for at in order if at not in found]
        for number, at in enumerate(left):
            card = cards[at]
            card.try_policy(policy, deadline.part(1 / (len(left) - number)) if is_search(policy) else NEVER, known)
            is_first = first_where_it_fits and policy is policies[0] and card.offers
            if is_first or card.scenario is None or policy is policies[-1]:
                found[at] = card.result
                done(found[at])
            if first_where_it_fits and policy is policies[0] and not number:
                left[1:] = sorted(left[1:], key=partial(_unlikely, profiles, card.result))
    return ranking_of(
        [each for _, each in sorted(found.items())], scenario, prices, [each.label for each in scenario.policies]
    )


def ranking_of(
    found: Iterable[Offer | Unfit], scenario: Scenario, prices: Prices | None, policies: Iterable[str]
) -> Ranking:
    """Return what was found on machines in order of cost where prices are given, else of time; equal ones joined."""
    offers: dict[tuple[object, ...], list[Offer]] = defaultdict(list)
    unfit: list[Unfit] = []
    for each in found:
        if isinstance(each, Offer):
            offer = each if prices is None else _priced(each, scenario, prices)
            key = (offer.gpu, offer.policy, offer.iteration_s, offer.held_bytes, offer.cost, offer.trust)
            offers[key].append(offer)
        else:
            unfit.append(each)
    joined = (replace(same[0], names=tuple(each.name for each in same)) for same in offers.values())
    ordered = sorted(joined, key=lambda each: (each.cost is None, each.cost or 0.0, each.iteration_s))
    return Ranking(
        tuple(ordered),
        tuple(unfit),
        tuple(policies),
        "" if prices is None else prices.currency,
        None if prices is None else prices.samples_per_epoch,
    )


def _unlikely(profiles: Sequence[Profile], first: Offer | Unfit, at: int) -> tuple[bool, int]:
    """Return a key by which the smallest card comes first that holds what the first took, and smaller ones behind."""
    memory_bytes = profiles[at].server.gpu.memory_bytes
    holds = isinstance(first, Offer) and memory_bytes >= first.held_bytes
    return not holds, memory_bytes if holds else -memory_bytes


def scenario_on_any(
    model: CapturedModel,
    name: str,
    profiles: Sequence[Profile],
    policies: tuple[Policy, ...],
    execution: Execution = Execution.EAGER,
) -> Scenario:
    """Return the scenario of a captured model on the first machine that can compute it.

    Raises:
        ProfileError: none can.
    """
    refusals: list[ProfileError] = []
    for profile in profiles:
        try:
            return scenario_of(model, name, profile, policies, execution)
        except ProfileError as refusal:
            refusals.append(refusal)
    raise refusals[0]


def _priced(offer: Offer, scenario: Scenario, prices: Prices) -> Offer:
    per_hour = prices.per_hour.get(offer.name)
    if per_hour is None:
        return offer
    samples = scenario.batches * scenario.workload.batch_size
    cost = cost_of(per_hour, scenario.gpus, offer.iteration_s, samples, prices.samples_per_epoch)
    return replace(offer, cost=cost)
