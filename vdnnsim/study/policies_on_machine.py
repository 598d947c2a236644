"""Policies tried one after the other on one machine of a ranking, until the time is over, and the fastest that fits."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from vdnnsim.analysis.kernel_origins import kernel_origins
from vdnnsim.analysis.machines import Offer, Unfit
from vdnnsim.analysis.memory import maximum_bytes, process_bytes
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.results import Setup
from vdnnsim.cost.machine import lacking_peak
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.cost.table import CostModel
from vdnnsim.cost.trust import certain_bytes, trust_in, waits
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import InputError, ProfileError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import Profile
from vdnnsim.hardware.server import Server
from vdnnsim.planning.deadline import Deadline
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer_replays import held_bytes
from vdnnsim.study.answer_searches import SEARCH
from vdnnsim.study.less_work import OF_CONVOLUTIONS, PLAIN, POLICIES
from vdnnsim.units import ElementType, Precision, format_bytes

_KEEPING_STATES: Final = frozenset(each.partition("(")[0] for each in (PLAIN, *POLICIES, *OF_CONVOLUTIONS, SEARCH))
_SURE: Final = 0.9
"""Part of the memory of a plan that it takes on any card: workspaces and gaps differ."""


CapturedFor: TypeAlias = Callable[[Server], CapturedModel]
"""Captures a model for the card of a machine."""


def captured_on(scenario: Scenario, model: CapturedModel) -> Scenario:
    """Return a scenario of a model as captured for another card, of the same batch."""
    return replace(scenario, captured=model, workload=model.workload(model.base.part_size))


def _keeps_states(policy: Policy) -> bool:
    """Return whether a policy keeps on the GPU what an optimizer updates."""
    return policy.name in _KEEPING_STATES and not getattr(policy, "offload_optimizer", False)


@dataclass
class PoliciesOnMachine:
    """The policies that were tried on one machine.

    Attributes:
        scenario: on it; None where it is not suited.
        reasons: bytes that a policy takes which does not fit, and its name; -1 and why, of one without a plan.
    """

    profile: Profile
    scenario: Scenario | None
    why: str = ""
    offers: list[Offer] = field(default_factory=list)
    reasons: list[tuple[int, str]] = field(default_factory=list)
    untried: list[Policy] = field(default_factory=list)

    @classmethod
    def of(cls, scenario: Scenario, profile: Profile, captured_for: CapturedFor | None = None) -> "PoliciesOnMachine":
        """Return a machine on which nothing was tried, with the model as captured for its card."""
        try:
            server = suited(scenario, profile.server)
        except ProfileError as failure:
            return cls(profile, None, str(failure).removeprefix(f"{profile.server.name}: "))
        if scenario.captured is not None:
            too_large = held_alone(scenario.captured.base, server)
            if too_large and all(map(_keeps_states, scenario.policies)):
                return cls(profile, None, too_large)
            if captured_for is not None:
                scenario = captured_on(scenario, captured_for(profile.server))
        return cls(profile, replace(scenario, server=server))

    def try_policy(self, policy: Policy, deadline: Deadline, known: dict[str, int]) -> None:
        """Replay a policy; `known` has by policy what a plan took that memory does not decide."""
        if self.scenario is None:
            return
        gpu = self.scenario.server.gpu
        taken = known.get(policy.label, 0)
        if _SURE * taken + gpu.context_bytes > self.scenario.room_bytes:
            self.reasons.append((taken + gpu.context_bytes, policy.label))
            return
        if deadline.is_over:
            self.untried.append(policy)
            return
        try:
            offer = _replayed(self.scenario, self.profile, policy, deadline)
        except InputError as refusal:
            self.reasons.append((-1, str(refusal)))
            return
        if isinstance(offer, Offer):
            self.offers.append(offer)
        else:
            self.reasons.append(offer)
            if policy.decided_by is DecidedBy.COSTS:
                known[policy.label] = offer[0] - gpu.context_bytes

    @property
    def result(self) -> Offer | Unfit:
        name, gpu = self.profile.server.name, self.profile.server.gpu
        if self.offers:
            return min(self.offers, key=lambda each: (each.iteration_s, each.held_bytes))
        if self.scenario is None:
            return Unfit(name, self.why)
        missed = f"not tried in time: {listed([each.label for each in self.untried])}" if self.untried else ""
        reason = "; ".join(filter(None, (_why(gpu.memory_bytes, self.reasons) if self.reasons else "", missed)))
        return Unfit(name, reason, undecided=bool(self.untried))


def held_alone(step: CapturedStep, server: Server) -> str:
    """Return how much is held throughout the update, where that alone does not surely fit; else an empty text."""
    held = held_bytes(step)
    if held + server.gpu.context_bytes <= certain_bytes(server.gpu.memory_bytes):
        return ""
    return f"parameters, gradients and optimizer states alone take {format_bytes(held)}"


def suited(scenario: Scenario, server: Server) -> Server:
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


def _why(memory_bytes: int, reasons: Sequence[tuple[int, str]]) -> str:
    """Return the policy with the least memory; where none has a plan, the first refusal."""
    taken = [each for each in reasons if each[0] >= 0]
    if not taken:
        return reasons[0][1]
    least, policy = min(taken)
    held = f"{format_bytes(least)} of {format_bytes(memory_bytes)}"
    margin = "; peaks may be too low by more than is left" if least <= memory_bytes else ""
    return f"{policy} would hold {held}, the least of those tried{margin}"


def _replayed(scenario: Scenario, profile: Profile, policy: Policy, deadline: Deadline) -> Offer | tuple[int, str]:
    """Return the offer of a policy; of one that does not fit its memory and its name."""
    gpu, room_bytes = scenario.server.gpu, scenario.room_bytes
    if policy.decided_by is not DecidedBy.COSTS:
        # It fills what there is.
        scenario = replace(scenario, server=replace(scenario.server, gpu=replace(gpu, memory_bytes=room_bytes)))
    simulator = replace(simulator_of(scenario), deadline=deadline)
    planned = simulator.planned(policy)
    plans = planned.plans
    taken = max(
        placement.pool_bytes + gpu.framework_bytes(plan.handles)
        for plan, placement in zip(plans, planned.replayed, strict=True)
    )
    if planned.refusals or taken > room_bytes:
        return taken, policy.label
    replayed = simulator.replay(plans, planned.replayed)
    slowest = max(replayed.gpus, key=lambda trace: trace.iteration_s)
    metrics = measure(slowest, scenario.workload.batch_size, simulator.pipeline_s(replayed))
    return Offer(
        names=(profile.server.name,),
        gpu=gpu.name,
        policy=plans[0].policy,
        iteration_s=metrics.iteration_s,
        samples_per_s=scenario.batches * metrics.samples_per_s,
        asked_bytes=max(map(maximum_bytes, replayed.gpus)),
        reserved_bytes=max(each.pool_bytes for each in replayed.gpus),
        held_bytes=max(process_bytes(each, gpu) for each in replayed.gpus),
        memory_bytes=profile.server.gpu.memory_bytes,
        **trusted(scenario, profile, plans, simulator.cost_model, metrics.iteration_s),
    )


def trusted(
    scenario: Setup, profile: Profile, plans: Iterable[TrainingPlan], cost_model: CostModel, step_s: float
) -> dict[str, Any]:
    """Return `trust` and `notes` of an offer by what the kernel times of its plans rest on, and its step."""
    origins = kernel_origins(plans, cost_model)
    workload, computed = scenario.workload, scenario.server.convolution_type(ElementType.FLOAT32)
    in_tf32 = workload.precision is Precision.FLOAT32 and workload.has_convolutions and computed is ElementType.TF32
    # Equal notes of several machines are joined.
    gap = origins.gap.replace(f"{profile.server.name}.kernels.csv", "the profile's table")
    gap = gap.replace(profile.server.name, "the profile")
    return {
        "trust": trust_in(
            *(profile, workload, origins.seconds, scenario.execution.value),
            waits=waits(sum(origins.seconds.values()) / origins.plans, step_s),
        ),
        "notes": tuple(filter(None, ("convolutions of float32 in TF32" if in_tf32 else "", gap))),
    }
