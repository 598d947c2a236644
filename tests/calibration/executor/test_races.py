"""Races between streams: found in touches made up by hand, and not in plans that were executed as they stand."""

from collections.abc import Sequence

import pytest

from tests.calibration.executor.bench import UNLIMITED, Bench, every_policy, every_second_explicit
from tests.calibration.executor.races import Race, Touches, WatchedExecutor, find_races
from tests.pretend.stream_races import Touch
from tests.unit.plans.hand_written import COMPUTE, MEMORY, script, with_operations
from tests.unit.plans.hand_written import ROUND_TRIP as PLAN
from vdnnsim.dnn.networks.tiny import tiny_forked
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, HostSynchronize, Operation, WaitEvent
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

NOTHING = HostSynchronize(())


def without(plan: TrainingPlan, position: int) -> list[Operation]:
    """Return the operations of a plan, one of them replaced by what does nothing."""
    return [NOTHING if at == position else each for at, each in enumerate(plan.operations)]


# x lies at 0 to 10 on the GPU, and at 100 to 110 on the host.
ROUND_TRIP: Touches = {
    1: [Touch(0, 10, writes=True)],
    4: [Touch(0, 10, writes=False), Touch(100, 110, writes=True)],
    11: [Touch(100, 110, writes=False), Touch(0, 10, writes=True)],
    14: [Touch(0, 10, writes=False)],
}


@pytest.mark.parametrize(("wait", "expected"), [(3, Race(1, 4)), (13, Race(11, 14))])
def test_a_wait_left_out_is_a_race(wait: int, expected: Race) -> None:
    """Without 3 the copy may read x before the kernel at 1 has written it; without 13 that at 14 reads too early.

    With both there is none, nor where the kernel at 14 reads 10 to 20, which the prefetch leaves alone.
    """
    assert find_races(script(PLAN).operations, ROUND_TRIP) == []
    apart = {**ROUND_TRIP, 14: [Touch(10, 20, writes=False)]}
    assert find_races(without(script(PLAN), 13), apart) == []
    assert isinstance(script(PLAN).operations[wait], WaitEvent)
    assert find_races(without(script(PLAN), wait), ROUND_TRIP) == [expected]


def test_memory_that_is_handed_on_too_early_is_a_race() -> None:
    """X is released while its copy runs, and Y, which a kernel writes, gets its memory: bytes 0 to 10.

    With the wait at 6 there is none; Y elsewhere disturbs nobody even without.
    """
    plan = script("take x; write x; compute>memory; offload x; memory>compute; free x; take y; write y; free y")
    kernel = max(at for at, each in enumerate(plan.operations) if isinstance(each, Compute))
    (wait,) = (at for at, each in enumerate(plan.operations) if isinstance(each, WaitEvent) and each.stream is COMPUTE)
    touches = {
        1: [Touch(0, 10, writes=True)],
        4: [Touch(0, 10, writes=False), Touch(100, 110, writes=True)],
        kernel: [Touch(0, 10, writes=True)],
    }

    assert find_races(plan.operations, touches) == []
    assert find_races(without(plan, wait), touches) == [Race(4, kernel)]
    assert find_races(without(plan, wait), {**touches, kernel: [Touch(10, 20, writes=True)]}) == []


def test_a_host_that_waits_orders_all_that_follows() -> None:
    """In the place of the wait at 13 the host waits for the copies."""
    operations = without(script(PLAN), 13)
    operations[13] = HostSynchronize((MEMORY,))
    assert find_races(operations, ROUND_TRIP) == []


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
