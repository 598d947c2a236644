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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from vdnnsim.analysis.kernel_origins import kernel_origins
from vdnnsim.analysis.machines import Offer, Ranking, Unfit, cost_of
from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.metrics import measure
from vdnnsim.cost.machine import lacking_peak
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.cost.trust import trust_in
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.engine.host import Execution
from vdnnsim.errors import InputError, ProfileError, ScenarioError
from vdnnsim.files.messages import listed
from vdnnsim.files.yaml_file import read_yaml
from vdnnsim.hardware.profile import Profile, card_words
from vdnnsim.hardware.server import Server
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer import OF_CONVOLUTIONS, PLAIN, POLICIES
from vdnnsim.units import Precision, format_bytes

SCHEMA_VERSION: Final = 1
TRIED: Final = (PLAIN, *POLICIES, *OF_CONVOLUTIONS, "optimal(time_limit=10 s)")
"""For a captured model by default, PyTorch's own policy first."""
_SURE: Final = 0.9
"""Part of the memory of a plan that it takes on any card: workspaces and gaps differ."""
_LARGEST_PRICE: Final = 1e6
_LARGEST_EPOCH: Final = 10**15


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of machines.

    Attributes:
        per_hour: of one GPU, by the name of the profile.
        samples_per_epoch: None where costs are of a thousand steps.
        source: name and SHA-256 of the file.
    """

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
    """Return one machine for each card, by its name.

    It is that with the fewest GPUs which suffice, else with the most; of those the one with peaks of most types.
    """
    chosen: dict[frozenset[str], str] = {}
    for server in sorted((each.server for each in profiles), key=lambda each: _unsuited(each, gpus)):
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
    first_where_it_fits: bool = False,
    done: Callable[[Offer | Unfit], object] = id,
    deadline: Deadline = NEVER,
) -> Ranking:
    """Replay the workload and the policies of a scenario on every machine, and rank the machines.

    The machine of the scenario itself does not count. With prices the order is by cost. The first policy is taken
    `first_where_it_fits`; else, and where it does not fit, the fastest. `done` gets what was found on each machine, the
    likely answers first; the deadline is of all that is tried, and searches have equal shares of it for each machine.
    """
    # What does not fit a large card need not be tried on a small one.
    order = sorted(range(len(profiles)), key=lambda at: -profiles[at].server.gpu.memory_bytes)
    known: dict[str, int] = {}
    found: dict[int, Offer | Unfit] = {}
    while order:
        at = order.pop(0)
        limits = deadline, deadline.part(1 / (len(order) + 1))
        found[at] = _try(scenario, profiles[at], limits, known, first_where_it_fits=first_where_it_fits)
        done(found[at])
        if first_where_it_fits and len(found) == 1:
            order.sort(key=partial(_unlikely, profiles, found[at]))
    offers: dict[tuple[object, ...], list[Offer]] = defaultdict(list)
    unfit: list[Unfit] = []
    for _, each in sorted(found.items()):
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
        tuple(policy.label for policy in scenario.policies),
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


def _try(
    scenario: Scenario,
    profile: Profile,
    limits: tuple[Deadline, Deadline],
    known: dict[str, int],
    *,
    first_where_it_fits: bool,
) -> Offer | Unfit:
    """Return the offer of a machine; `known` has by policy what a plan took that memory does not decide.

    The second deadline is of policies that search.
    """
    try:
        server = _suited(scenario, profile.server)
    except ProfileError as failure:
        return Unfit(profile.server.name, str(failure).removeprefix(f"{profile.server.name}: "))
    on_it = replace(scenario, server=server)
    found: list[Offer] = []
    reasons: list[tuple[int, str]] = []
    untried: list[Policy] = []
    for policy in scenario.policies:
        least = known.get(policy.label, 0) + server.gpu.context_bytes
        if least > server.gpu.memory_bytes:
            reasons.append((least, policy.label))
            continue
        deadline = limits[hasattr(policy, "time_limit")]
        if deadline.is_over:
            untried.append(policy)
            continue
        try:
            offer = _replayed(on_it, profile, policy, deadline)
        except InputError as refusal:
            reasons.append((-1, str(refusal)))
            continue
        if isinstance(offer, Offer):
            found.append(offer)
            if first_where_it_fits and policy is scenario.policies[0]:
                break
        else:
            reasons.append(offer)
            if policy.decided_by is DecidedBy.COSTS:
                known[policy.label] = int(_SURE * (offer[0] - server.gpu.context_bytes))
    if found:
        return min(found, key=lambda each: (each.iteration_s, each.held_bytes))
    missed = f"not tried in time: {listed([each.label for each in untried])}" if untried else ""
    reason = "; ".join(filter(None, (_why(server, reasons) if reasons else "", missed)))
    return Unfit(server.name, reason, undecided=bool(untried))


def _suited(scenario: Scenario, server: Server) -> Server:
    """Return a machine for a scenario, with what NCCL takes there.

    Raises:
        ProfileError: it has too few GPUs, or no peak of the precision.
    """
    there = server.gpu_count
    if there < scenario.gpus:
        has = "one GPU" if there == 1 else f"{there} GPUs"
        raise ProfileError(f"has {has}, and {scenario.gpus} are asked for")
    if lacking := lacking_peak(server.name, server, scenario.workload.element_type):
        raise ProfileError(lacking)
    return server if scenario.captured is None else machine_of_rank(server.name, server, scenario.captured.base)


def _why(server: Server, reasons: Sequence[tuple[int, str]]) -> str:
    """Return the policy with the least memory; where none has a plan, the first refusal."""
    taken = [each for each in reasons if each[0] >= 0]
    if not taken:
        return reasons[0][1]
    least, policy = min(taken)
    held = f"{format_bytes(least)} of {format_bytes(server.gpu.memory_bytes)}"
    return f"{policy} would hold {held}, the least of those tried"


def _replayed(scenario: Scenario, profile: Profile, policy: Policy, deadline: Deadline) -> Offer | tuple[int, str]:
    """Return the offer of a policy; of one that does not fit its memory and its name."""
    simulator, gpu = replace(simulator_of(scenario), deadline=deadline), scenario.server.gpu
    planned = simulator.planned(policy)
    plans = planned.plans
    if planned.refusals:
        taken = max(
            placement.pool_bytes + gpu.framework_bytes(plan.handles)
            for plan, placement in zip(plans, planned.replayed, strict=True)
        )
        return taken, policy.label
    replayed = simulator.replay(plans, planned.replayed)
    slowest = max(replayed.gpus, key=lambda trace: trace.iteration_s)
    metrics = measure(slowest, scenario.workload.batch_size)
    origins = kernel_origins(plans, simulator.cost_model)
    workload, kernels = scenario.workload, scenario.server.kernels
    in_tf32 = kernels is not None and kernels.tf32 and workload.precision is Precision.FLOAT32
    # Equal notes of several machines are joined.
    gap = origins.gap.replace(f"{profile.server.name}.kernels.csv", "its table").replace(profile.server.name, "it")
    return Offer(
        names=(profile.server.name,),
        gpu=gpu.name,
        policy=plans[0].policy,
        iteration_s=metrics.iteration_s,
        samples_per_s=scenario.gpus * metrics.images_per_s,
        asked_bytes=metrics.max_memory_bytes,
        reserved_bytes=slowest.pool_bytes,
        held_bytes=runtime_bytes(slowest, gpu),
        memory_bytes=gpu.memory_bytes,
        trust=trust_in(profile, workload.mode, workload.precision, origins.seconds),
        notes=tuple(filter(None, ("products of float32 in TF32" if in_tf32 else "", gap))),
    )


def _priced(offer: Offer, scenario: Scenario, prices: Prices) -> Offer:
    per_hour = prices.per_hour.get(offer.name)
    if per_hour is None:
        return offer
    samples = scenario.gpus * scenario.workload.batch_size
    cost = cost_of(per_hour, scenario.gpus, offer.iteration_s, samples, prices.samples_per_epoch)
    return replace(offer, cost=cost)
