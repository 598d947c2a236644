"""Races between streams: none in plans that were executed as they stand, one for each wait that is left out."""

from collections.abc import Sequence

import pytest

from tests.calibration.executor.bench import UNLIMITED, Bench, every_policy, every_second_explicit
from tests.calibration.executor.races import WatchedExecutor, find_races
from tests.unit.plans.hand_written import with_operations
from vdnnsim.dnn.networks.tiny import tiny_forked
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import HostSynchronize, Operation, WaitEvent
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

NOTHING = HostSynchronize(())


def without(plan: TrainingPlan, position: int) -> list[Operation]:
    """Return the operations of a plan, one of them replaced by what does nothing."""
    return [NOTHING if at == position else each for at, each in enumerate(plan.operations)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.label)
def test_executed_plans_have_no_race(bench: Bench, policy: Policy) -> None:
    """By the addresses that malloc gave; what a kernel takes for itself on the CPU is not known."""
    workload = bench.workload(tiny_forked)
    plan = bench.plan(workload, policy, every_second_explicit)
    watched = WatchedExecutor(bench.device, workload, bench.library).watch(plan, UNLIMITED)
    assert not isinstance(watched, DoesNotFit)
    assert find_races(plan.operations, watched.touches) == []


def test_every_wait_without_which_something_is_read_too_early_is_missed(bench: Bench) -> None:
    """Of the plan of vdnn_all, each wait is left out in turn; the check of plans says what is wrong then."""
    workload = bench.workload(tiny_forked)
    plan = bench.plan(workload, VdnnAll(), every_second_explicit)
    watched = WatchedExecutor(bench.device, workload, bench.library).watch(plan, UNLIMITED)
    assert not isinstance(watched, DoesNotFit)
    needed = [at for at in waits(plan.operations) if is_read_too_early(with_operations(plan, without(plan, at)))]
    assert len(needed) >= 4, "two copies of two maps at least"
    assert all(find_races(without(plan, at), watched.touches) for at in needed)


def waits(operations: Sequence[Operation]) -> list[int]:
    return [at for at, each in enumerate(operations) if isinstance(each, WaitEvent)]


def is_read_too_early(plan: TrainingPlan) -> bool:
    try:
        check_plan(plan)
    except PlanError as refusal:
        return "is read before" in str(refusal) or "is offloaded before" in str(refusal)
    return False
