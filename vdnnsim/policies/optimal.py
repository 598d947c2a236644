"""`optimal`: the fastest schedule that fits, found by search, with a lower bound that certifies it.

Offloads, prefetches, recomputation and the algorithm of each kernel are decided together (`vdnnsim.planning`). The plan
has a certificate: no schedule of the same order is faster than its lower bound.

Under a memory model with addresses a plan may not fit because of fragmentation. There the plans of other policies
(`ALTERNATIVES`) are replayed as well, as far as the bound holds for them, and the fastest is returned.

The plan of a captured model runs in a loop that applies it (`vdnnsim.plan`, `apply`) and reserves its memory ahead
(`vdnnsim.plans.reserved_memory`). So under PyTorch's allocator plans are made by bytes, for less and less until one can
be placed there; if none can, with expandable segments, and then as the allocator is set. The certificate says which.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import ClassVar, Final

from msgspec import structs

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError, PlanError, PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.planning.effort import EFFORT, LOOKS, PLAYED, Effort, steps_of_placing
from vdnnsim.planning.explanations import of_another
from vdnnsim.planning.fitting import NEAR
from vdnnsim.planning.offload import WHOLE
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.question import Question
from vdnnsim.planning.reserved_search import FAR, ReservedSearch
from vdnnsim.plans.buffers import gradients_of_update, states_of_update
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.alternatives import ALTERNATIVES, AT_ONCE, keeping_all_s, kernels_s
from vdnnsim.policies.interface import DecidedBy, Policy, Setting, make_plan
from vdnnsim.policies.memory_models import in_memory, is_ahead, models_of
from vdnnsim.units import Dimension, parse_quantity

AUTO: Final = "auto"
WHOLE_BUFFERS: Final = "whole"
SHARE: Final = 0.8
"""Of the effort, for the search, where the plans of other policies are replayed as well."""
AHEAD: Final = 0.85
"""Of the effort, for plans by bytes, where memory is reserved ahead."""
KEEPING: Final = 0.5
"""Of the time and the steps that a setting leaves, for a plan that keeps optimizer states on the GPU, before others."""
SECOND: Final = 0.4
"""Of the steps of a search, for one in which optimizer states may be on the host, where a plan without that fits."""
OF_RANK: Final = 0.5
"""Of the steps, for one of several ranks: with the collectives in its plans, each step takes about twice as long."""
GOOD: Final = 0.01
"""Gap above which a plan that fits by its bytes is compared with others."""


class Optimal(Policy, frozen=True, kw_only=True):
    """Search for the fastest schedule.

    Attributes:
        chunk: the most that a copy moves, as `64 MiB`; `auto` cuts where memory is short, if the memory model has
            extents, else it is `whole`, which copies whole buffers.
        offload_optimizer: whether optimizer states may be on the host between iterations, and weight gradients between
            backward and update, in pinned memory; the best amount of both is chosen.
        time_limit: ends the search, which counts its steps, early: in processor time, or in wall time as in
            `20 s wall`; with `offload_optimizer` of each of two, the first of which keeps all on the GPU.
    """

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "the fastest schedule that fits, found by search, with a bound that certifies it"

    recompute: bool = True
    chunk: str = AUTO
    offload_optimizer: bool = False
    time_limit: str = "60 s"

    def __post_init__(self) -> None:
        """Check the chunk and the limit.

        Raises:
            ValueError: one is no quantity, or not above 0; msgspec makes that the refusal of the option.
        """
        if self.chunk not in (AUTO, WHOLE_BUFFERS):
            _check_chunk(self.chunk)
        try:
            TimeLimit.parse(self.time_limit)
        except InputError as failure:
            raise ValueError(f"time_limit: {failure}") from None

    def plan(self, setting: Setting) -> TrainingPlan:
        """Search for the fastest plan that fits.

        Raises:
            PolicyError: `offload_optimizer` without optimizer states.
        """
        if self.offload_optimizer and not states_of_update(setting.workload.step):
            raise PolicyError(
                f"{self.label}: offload_optimizer: found a workload whose update keeps nothing between iterations, "
                "expected an optimizer with states, as momentum or adam, or offload_optimizer: false"
            )
        limit = TimeLimit.parse(self.time_limit)
        if not self.offload_optimizer:
            return self._planned(setting, _orders(setting), _effort(limit, setting), setting.known)
        # A plan that keeps all on the GPU is one of those that are asked for.
        kept = None
        with suppress(PlanError):  # of micro-batches, where no plan fits
            part = replace(setting, deadline=setting.deadline.part(KEEPING), steps=KEEPING * setting.steps)
            kept = self._planned(setting, _orders(setting), _effort(limit, part))
        rest = replace(setting, steps=(1 - KEEPING) * setting.steps)
        first = None if kept is None else setting.trials.run_trial(kept)
        share = SECOND if first is not None and first.fits else 1.0
        orders, effort = _orders(setting, _movable(setting.workload)), _effort(limit, rest, share)
        moved = self._planned(setting, orders, effort, kept if share < 1 else None)
        assert moved.certificate is not None, "it was searched for"
        if kept is None or first is None:
            return moved
        assert kept.certificate is not None, "as it"
        second = setting.trials.run_trial(moved)
        if not first.fits or (second.fits and second.cost_s <= first.cost_s):
            return moved
        bound_s, holds_for = moved.certificate.bound_s, moved.certificate.holds_for
        complete = kept.certificate.complete and moved.certificate.complete
        certificate = replace(kept.certificate, bound_s=bound_s, holds_for=holds_for, complete=complete)
        return replace(kept, certificate=certificate)

    def _planned(
        self, setting: Setting, orders: Orders, effort: Effort, known: TrainingPlan | None = None
    ) -> TrainingPlan:
        """Return the fastest plan that is found, in the first memory model that has room for one.

        Where memory is reserved ahead, a `known` plan that has room is returned unless a faster one is found.
        """
        for model, words in models_of(setting).items():
            within = setting if model is None else in_memory(setting, model)
            is_by_bytes = within.limits.model is MemoryModel.IDEAL
            part = effort if is_by_bytes or is_ahead(within) else effort.part(SHARE)
            has_room = known and is_ahead(within) and known.memory_model == model and _seconds(within, known) < inf
            plan = self._in_turns(within, orders, part, known if has_room else None)
            is_known = known is not None and plan.operations is known.operations
            plan, fits = (plan, True) if is_known else self._or_faster(plan, within, orders, effort)
            assert plan.certificate is not None
            complete = plan.certificate.complete and not effort.is_cut
            certificate = replace(plan.certificate, memory=words, complete=complete)
            plan = replace(plan, memory_model=model, certificate=certificate)
            if fits:
                break
        return plan

    def _in_turns(self, setting: Setting, orders: Orders, effort: Effort, known: TrainingPlan | None) -> TrainingPlan:
        """Search; in memory that is reserved ahead first by bytes, for less until the plan fits at addresses."""
        if not is_ahead(setting):
            return self._search(setting, orders, effort).plan()
        ideal, turns = in_memory(setting, MemoryModel.IDEAL), effort.part(AHEAD)
        planner = self._search(ideal, orders, turns)
        if known is None and (refused := planner.refused(setting.place)):
            return refused
        by_bytes = self._by_bytes(setting, ideal.limits, orders, turns, known)
        by_bytes.search(ideal.limits.device_bytes)
        plan = by_bytes.found or self._search(setting, orders, effort).plan()
        assert plan.certificate is not None
        bound_s, holds_for = by_bytes.bound_s, planner.question.bound_class
        return replace(plan, certificate=replace(plan.certificate, bound_s=bound_s, holds_for=holds_for))

    def _by_bytes(
        self, setting: Setting, limits: MemoryLimits, orders: Orders, effort: Effort, known: TrainingPlan | None
    ) -> ReservedSearch:
        """Return a search by bytes for a plan with room where `setting` places it that is faster than a known one."""
        ideal = in_memory(setting, MemoryModel.IDEAL)

        def by_bytes(
            nbytes: int, part: Effort, known: Sequence[frozenset[int]] = (), *, host_bytes: int | None = None
        ) -> Planner:
            less = replace(limits, device_bytes=nbytes)
            if host_bytes is not None:
                less = replace(less, host_bytes=host_bytes, pinned_bytes=host_bytes, process_bytes=0)
            counted = replace(ideal, known_limits=less, placed=partial(place_plan, limits=less))
            return replace(self._search(counted, orders, part, whole=True), known=known, near=GOOD)

        known_s = _seconds(setting, known) if known else inf
        return ReservedSearch(by_bytes, setting.place, effort, partial(keeping_all_s, setting), known, known_s)

    def _search(self, setting: Setting, orders: Orders, effort: Effort, *, whole: bool = False) -> Planner:
        sizes = {AUTO: WHOLE if whole else None, WHOLE_BUFFERS: WHOLE}
        question = Question(
            orders,
            setting.limits,
            setting.copies,
            recompute=self.recompute and setting.workload.is_training,
        )
        return Planner(
            question,
            place=setting.place,
            replay=lambda plan: setting.trials.run_trial(plan).cost_s,
            chunk_bytes=sizes[self.chunk] if self.chunk in sizes else int(parse_quantity(self.chunk, Dimension.BYTES)),
            effort=effort,
            label=self.label,
            progress=setting.progress,
        )

    def _or_faster(
        self, plan: TrainingPlan, setting: Setting, orders: Orders, effort: Effort
    ) -> tuple[TrainingPlan, bool]:
        """Return a plan, or the fastest of other policies for which the bound holds, and whether it fits.

        While nothing fits, they are tried until the end of the grace.
        """
        certificate = plan.certificate
        assert certificate is not None
        look = PLAYED * len(plan.operations)
        best, best_s = plan, _seconds(setting, plan)
        if best_s < inf and not effort.allows(look):
            return plan, True
        effort.spend(look)
        is_by_bytes = setting.limits.model is MemoryModel.IDEAL
        if not certificate.bound_s or best_s <= certificate.bound_s * (1 + (GOOD if is_by_bytes else NEAR)):
            return best, best_s < inf
        effort.spend(2 * look)
        kept_s = keeping_all_s(setting)
        if kept_s > certificate.bound_s * (1 + GOOD) and best_s <= kept_s * (1 + GOOD):
            return best, True
        others: list[Policy] = [each() for each in ALTERNATIVES]
        if is_by_bytes or is_ahead(setting):
            # Trials take as long as a search.
            others = [each for each in others if isinstance(each, AT_ONCE) or each.decided_by is not DecidedBy.TRIALS]
        is_good = best_s <= certificate.bound_s * (1 + GOOD)
        if self.recompute and not is_good and self._search(setting, orders, effort).kept_s() < best_s:
            # A search takes all that is left.
            others.insert(len(AT_ONCE), structs.replace(self, recompute=False))
        for policy in others:
            # What plans at once is tried in any case while the plan is far from the bound.
            is_late = not effort.allows(look) and (best_s < inf or effort.with_grace.is_over)
            is_near = best_s <= certificate.bound_s * FAR or not isinstance(policy, AT_ONCE)
            if (is_late and is_near) or best_s <= certificate.bound_s * (1 + NEAR):
                break
            # Some have no plan for this workload, or one that lacks buffers which a live loop holds.
            with suppress(PolicyError, PlanError):
                if isinstance(policy, Optimal):
                    other = policy._planned(setting, _orders(setting), effort)  # noqa: SLF001 - in what is left
                else:
                    other = make_plan(policy, replace(setting, deadline=effort.deadline))
                if kernels_s(setting, other) >= best_s:
                    continue
                trial = setting.trials.run_trial(other)
                if isinstance(trial.outcome, DoesNotFit):
                    effort.spend(steps_of_placing(trial.outcome, len(setting.workload.step.operations)))
                if trial.fits and trial.cost_s < best_s and self._is_of_the_class(other, setting.workload):
                    best_s = trial.cost_s
                    best = replace(other, policy=self.label, passes=(), certificate=of_another(other, certificate))
            effort.spend(look)
        return best, best_s < inf

    def _is_of_the_class(self, plan: TrainingPlan, workload: Workload) -> bool:
        moved = {plan.buffers[each.buffer].kind for each in plan.operations if isinstance(each, Offload)}
        again = not self.recompute and any(isinstance(each, Compute) and each.repeat for each in plan.operations)
        return plan.workload == workload and moved.isdisjoint(RESIDENT) and not again


def _orders(setting: Setting, movable: frozenset[int] = frozenset()) -> Orders:
    return Orders(setting.workload, setting.costs, movable)


def _effort(limit: TimeLimit, setting: Setting, share: float = 1.0) -> Effort:
    workload = setting.workload
    share *= OF_RANK if isinstance(workload, CapturedWorkload) and workload.captured.ranks > 1 else 1.0
    steps = share * min(EFFORT, LOOKS * len(workload.step.operations))
    return Effort.until(limit.begin().sooner(setting.deadline), steps, setting.steps)


def _seconds(setting: Setting, plan: TrainingPlan) -> float:
    """Return the seconds of an iteration; infinite where it does not fit."""
    trial = setting.trials.run_trial(plan)
    return trial.cost_s if trial.fits else inf


def _movable(workload: Workload) -> frozenset[int]:
    """Return the states and gradients that may be on the host; gradients of several micro-batches may not."""
    gradients = gradients_of_update(workload.step) if workload.rounds == 1 else frozenset()
    return states_of_update(workload.step) | gradients


def _check_chunk(text: str) -> None:
    others = f", {AUTO} or {WHOLE_BUFFERS}"
    try:
        if parse_quantity(text, Dimension.BYTES) > 0:
            return
        raise ValueError(f"chunk: found {text!r}, expected more than 0{others}")
    except InputError as failure:
        raise ValueError(f"chunk: {failure}{others}") from None
