"""The memory model in which `optimal` plans a captured model, and what its certificate says of it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from msgspec.structs import replace as replace_struct

from tests.captured_steps import chain, simulator
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import UNLIMITED
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.reserved_search import ReservedSearch
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies import optimal
from vdnnsim.policies.alternatives import AT_ONCE, kernels_s
from vdnnsim.policies.interface import Policy, Setting, Trial, make_plan
from vdnnsim.policies.memory_models import in_memory
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB, MIB

AHEAD = AllocatorSettings(preallocated=True)
GROWING = AllocatorSettings(expandable_segments=True)


def machine_with(
    mib: float, model: MemoryChoice = MemoryModel.PYTORCH, step: Callable[[], CapturedStep] = chain
) -> Simulator:
    machine = simulator(step(), model)
    limits = replace(machine.limits, device_bytes=round(mib * MIB), granule_bytes=512, total_bytes=None)
    return replace(machine, limits=replace(limits, host_bytes=GIB, pinned_bytes=GIB))


def wide_chain() -> CapturedStep:
    """The chain, whose convolution and normalization make 40 MiB each, both live at once."""
    step = chain()
    storages = [
        replace_struct(each, nbytes=40 * MIB) if at in (5, 6) else each for at, each in enumerate(step.storages)
    ]
    return replace_struct(step, storages=tuple(storages))


def words(plan: TrainingPlan) -> str:
    assert plan.certificate is not None
    return plan.certificate.memory


@pytest.mark.parametrize("recompute", [True, False])
def test_memory_is_reserved_ahead_where_that_has_room(*, recompute: bool) -> None:
    """All of the chain lies in a segment of 2 MiB for small blocks."""
    machine = machine_with(60)
    plan = Optimal(recompute=recompute, time_limit="1 s").plan(machine.setting())
    assert plan.memory_model == AHEAD
    assert words(plan) == "reserved ahead by the loop"
    placed = machine.place(plan)
    assert isinstance(placed, Placement)
    assert placed.reserved is not None


def test_a_plan_for_less_memory_is_one_for_more_where_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near its bound it ends the search; in 1 MiB it has no room."""
    machine = machine_with(60, AHEAD)
    known = Optimal().plan(machine.setting())
    small = machine_with(1, AHEAD).setting()
    assert Optimal().plan(replace(small, known=known)).operations == Optimal().plan(small).operations

    def searched(_: Planner) -> TrainingPlan:
        raise AssertionError

    monkeypatch.setattr(Planner, "plan", searched)
    found = Optimal().plan(replace(machine_with(62, AHEAD).setting(), known=known))
    assert found.operations is known.operations


@pytest.mark.parametrize("recompute", [True, False])
def test_a_plan_that_fits_nowhere_is_of_the_machine(*, recompute: bool) -> None:
    """1 MiB is no room for a segment, whatever the allocator; without recomputation for no part of it either."""
    plan = Optimal(recompute=recompute, time_limit="1 s" if not recompute else "1 ms").plan(machine_with(1).setting())
    assert plan.memory_model is None
    assert words(plan) == "PyTorch's allocator as it is set (its defaults)"


def test_nothing_is_searched_where_segments_leave_no_room_for_any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 MiB and what is small fit by their bytes in 81 MiB, which a segment of 2 MiB for the small splits in vain.

    In 82 MiB they have room, without recomputation as well, and in 70 MiB not even their bytes do.
    """
    policy = Optimal(time_limit="5 s")
    by_bytes, ahead = machine_with(81, MemoryModel.IDEAL, wide_chain), machine_with(82, AHEAD, wide_chain)
    for machine in (by_bytes, ahead):
        assert isinstance(machine.place(policy.plan(machine.setting())), Placement)

    def searched(_: Planner) -> TrainingPlan:
        raise AssertionError

    monkeypatch.setattr(Planner, "plan", searched)
    for mib in (70, 81):
        small = machine_with(mib, AHEAD, wide_chain)
        plan = policy.plan(small.setting())
        assert plan.certificate is not None
        assert plan.certificate.stays
        assert not isinstance(small.place(plan), Placement)


def test_what_offloads_nothing_is_tried_where_what_is_copied_leaves_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for plans that copy nothing are of a host without memory."""
    machine = machine_with(60, AHEAD)
    certificate = Optimal(time_limit="1 s").plan(machine.setting()).certificate
    kept = replace(PyTorch().plan(machine.setting()), certificate=certificate, passes=())

    def searched(search: ReservedSearch, nbytes: int) -> None:
        questions = [search.by_bytes(nbytes, UNLIMITED, host_bytes=each).question for each in (None, 0)]
        assert [each.host_bytes(()) > 0 for each in questions] == [True, False]
        search.found, search.bound_s = kept, 1.0

    monkeypatch.setattr(ReservedSearch, "search", searched)
    assert Optimal().plan(machine.setting()).operations == kept.operations


def test_a_plan_for_memory_reserved_ahead_depends_on_no_clock() -> None:
    """The same under a clock that runs ten times as fast, which its limit does not end."""
    setting = machine_with(120, AHEAD, wide_chain).setting()
    asked = [replace(setting, deadline=Deadline(((count(step=each).__next__, 10**9),))) for each in (1, 10)]
    first, second = map(Optimal().plan, asked)
    assert first == second == Optimal().plan(setting)


def test_a_search_with_fewer_steps_than_it_would_take_is_cut() -> None:
    """Of 120 MiB, 80 of them for maps, with 100 steps; no clock decides what is found within them."""
    setting = machine_with(120, AHEAD, wide_chain).setting()
    plans = [Optimal().plan(replace(setting, steps=each)) for each in (100, 100, 10**6)]
    certificates = [each.certificate for each in plans]
    assert [each is not None and each.complete for each in certificates] == [False, False, True]
    assert plans[0] == plans[1]


def test_of_memory_models_within_each_other_the_innermost_counts() -> None:
    """The chain takes two workspaces of 8.125 MiB and some kB, which of 17 leave none for a segment of small blocks."""
    ahead = in_memory(machine_with(17).setting(), AHEAD)
    by_bytes = in_memory(ahead, MemoryModel.IDEAL)
    plan = make_plan(PyTorch(), by_bytes)
    assert by_bytes.trials.run_trial(plan).fits
    assert isinstance(by_bytes.place(plan), Placement)
    assert not ahead.trials.run_trial(plan).fits
    assert not isinstance(ahead.place(plan), Placement)


def test_segments_that_grow_as_set_are_reserved_ahead() -> None:
    plan = Optimal(time_limit="1 s").plan(machine_with(200, GROWING).setting())
    assert plan.memory_model == replace(GROWING, preallocated=True)


def test_large_blocks_that_are_never_split_are_not_reserved_ahead() -> None:
    """The second choice is expandable segments, in which nothing is uncut."""
    settings = AllocatorSettings(max_split_size_mb=100)
    plan = Optimal(time_limit="1 s").plan(machine_with(200, settings).setting())
    assert plan.memory_model == replace(settings, expandable_segments=True)
    assert "expandable" in words(plan)


@pytest.mark.parametrize("model", [AHEAD, MemoryModel.BEST_FIT, MemoryModel.IDEAL])
def test_what_the_user_chose_is_kept(model: MemoryChoice) -> None:
    plan = Optimal(time_limit="1 s").plan(machine_with(60, model).setting())
    assert plan.memory_model is None
    assert not words(plan)


def test_policies_whose_kernels_alone_take_longer_are_not_placed() -> None:
    """Beside a plan that keeps everything, whose replay is made to take as long as its kernels, all take as long."""
    machine = machine_with(200, AHEAD)
    certificate = Optimal(time_limit="1 s").plan(machine.setting()).certificate
    assert certificate is not None
    kept = replace(PyTorch().plan(machine.setting()), certificate=replace(certificate, bound_s=1e-12))
    setting, tried = machine.setting(), list[str]()
    seconds = kernels_s(setting, kept)

    def run_trial(_: object, plan: TrainingPlan) -> Trial:
        tried.append(plan.policy)
        return replace(setting.trials.run_trial(plan), cost_s=seconds)

    ported = replace(setting, known_kept_s=None, known_trials=type("Trials", (), {"run_trial": run_trial})())
    orders = Orders(setting.workload, setting.costs, frozenset())
    assert Optimal(recompute=False)._or_faster(kept, ported, orders, UNLIMITED) == (kept, True)  # noqa: SLF001
    assert tried == [kept.policy]


def test_policies_that_plan_at_once_are_tried_before_another_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes all the time that is left: of ViT-base in 70 % of its memory, that in which checkpoints are tried.

    The plan that was found moves everything, and the bound, which is almost zero, makes every other one worth a try.
    """
    machine = machine_with(60, AHEAD)
    certificate = Optimal(time_limit="1 s").plan(machine.setting()).certificate
    assert certificate is not None
    slow = replace(SaveOnCpu().plan(machine.setting()), certificate=replace(certificate, bound_s=1e-12))
    tried: list[str] = []

    def refused(policy: Policy, _: Setting) -> TrainingPlan:
        tried.append(policy.name)
        raise PolicyError("not this time")

    def searched(policy: Policy, setting: Setting, *_: object) -> TrainingPlan:
        return refused(policy, setting)

    monkeypatch.setattr(optimal, "make_plan", refused)
    monkeypatch.setattr(Optimal, "_planned", searched)
    orders = Orders(machine.workload, machine.costs, frozenset())
    assert Optimal()._or_faster(slow, machine.setting(), orders, UNLIMITED) == (slow, True)  # noqa: SLF001
    assert tried[: len(AT_ONCE) + 1] == [*(each.name for each in AT_ONCE), Optimal.name]
    assert tried[0] == "checkpoint"
