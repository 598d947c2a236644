"""Policies that search, under a deadline on a clock that advances by 1 s whenever it is read.

Each runs with every limit from 0 s to one at which it completes, so that every check of its deadline ends it once.
"""

from dataclasses import replace
from itertools import count

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.hardware.server import Link, Origin
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning.deadline import Deadline
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.boundary_search import BoundarySearch
from vdnnsim.policies.interface import Policy, Setting, make_plan
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.swap import StaggeredSwap
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.policies.vdnn import VdnnDyn

CHAIN = toy_workload(toy_chain(4))
SLOW = Link("slow", 1e-3, 1e-3, 0.0)
FAST_WITH_WORKSPACE = (
    KernelCost("fast", 1.0, 100, Origin.ASSUMED),
    KernelCost("medium", 2.0, 40, Origin.ASSUMED),
    KernelCost("slow", 3.0, 0, Origin.ASSUMED),
)


def costs(*, with_choice: bool) -> ToyCosts:
    """Kernels of 1 s; where there is a choice, of CONV layers slower ones with less workspace."""
    kernels = dict(toy_costs(CHAIN, {}).kernels)
    convolutions = {each.index for each in CHAIN.graph.layers if each.kind is LayerKind.CONV}
    if with_choice:
        kernels |= {
            where: FAST_WITH_WORKSPACE for where in kernels if where[0] in convolutions and where[1] is not Phase.UPDATE
        }
    return ToyCosts(kernels)


def ended(policy: Policy, setting: Setting, limit_s: int) -> tuple[TrainingPlan, bool]:
    """The plan under a limit, and whether the search completed before it."""
    reads = count()
    plan = make_plan(policy, replace(setting, deadline=Deadline(((reads.__next__, limit_s),))))
    check_plan(plan)
    return plan, next(reads) <= limit_s


def plans_by_limit(policy: Policy, setting: Setting, step_s: int = 1) -> list[TrainingPlan]:
    """The plans under growing limits; the last is that of the policy without one."""
    plans = []
    for limit_s in count(step=step_s):
        plan, is_at_its_end = ended(policy, setting, limit_s)
        plans.append(plan)
        if is_at_its_end:
            return plans
    raise AssertionError("count() is infinite")


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT])
@pytest.mark.parametrize("policy", [Optimal(), Optimal(recompute=False)])
def test_optimal_fits_whenever_its_time_is_up(policy: Optimal, model: MemoryModel) -> None:
    """At 560 B beside a slow link 6 B lack (test_planner.py); a search without time is reported as incomplete."""
    limits = replace(TOY_LIMITS, device_bytes=560, model=model)
    setting = toy_setting(CHAIN, toy_costs(CHAIN, {}), limits, replace(TOY_SERVER, link=SLOW))

    plans = plans_by_limit(policy, setting, 1 if model is MemoryModel.IDEAL else 16)

    seconds = [setting.trials.run_trial(plan).cost_s for plan in plans]
    assert all(isinstance(setting.place(plan), Placement) for plan in plans)
    assert seconds[-1] == min(seconds)
    certificates = [plan.certificate for plan in plans]
    assert all(each is not None for each in certificates)
    assert not any(each.complete for each in certificates[:1] if each)


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT])
@pytest.mark.parametrize("policy", [Optimal(), Optimal(recompute=False), Optimal(chunk="whole")])
def test_a_plan_depends_on_no_clock_unless_its_limit_ends_the_search(policy: Optimal, model: MemoryModel) -> None:
    """On clocks that advance by 1 s, 10 s and 100 s whenever they are read, and under limits that may end it."""
    limits = replace(TOY_LIMITS, device_bytes=560, model=model)
    setting = toy_setting(CHAIN, toy_costs(CHAIN, {}), limits, replace(TOY_SERVER, link=SLOW))
    asked = make_plan(policy, setting)
    complete = 0
    for step_s in (1, 10, 100):
        for limit_s in (10, 10**3, 10**4, 10**5, 10**6):
            plan = make_plan(policy, replace(setting, deadline=Deadline(((count(step=step_s).__next__, limit_s),))))
            assert plan.certificate is not None
            if plan.certificate.complete:
                assert plan == asked
                complete += 1
    assert complete >= 3


@pytest.mark.parametrize(
    ("policy", "device_bytes"),
    [
        (VdnnDyn(), 640),
        (BoundarySearch(), 640),
        (TensorFlow(), 640),
        (StaggeredSwap(interval=1), 900),
        (Accumulate(), 640),
    ],
)
def test_a_policy_has_a_valid_plan_whenever_its_time_is_up(policy: Policy, device_bytes: int) -> None:
    """The last plan is what it finds without a deadline."""
    workload = replace(CHAIN, batch_size=4) if isinstance(policy, Accumulate) else CHAIN
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    setting = toy_setting(workload, costs(with_choice=not isinstance(policy, Accumulate)), limits)

    plans = plans_by_limit(policy, setting)

    assert plans[-1] == make_plan(policy, setting)
    assert len(plans) > 1
