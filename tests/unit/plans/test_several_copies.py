"""Several copies of one buffer of 10 B on the host, each by its number; the host has room for a hundred."""

import pytest

from tests.toy import TOY_LIMITS
from tests.unit.plans.hand_written import script
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan


def plan_of(out: list[int], back: list[int]) -> TrainingPlan:
    """Copies x out under these numbers and back by these, each time into fresh memory."""
    offloads = "; ".join(f"offload x #{each}" for each in out)
    prefetches = "; ".join(f"take x; compute>memory; prefetch x #{each}; sync; free x" for each in back)
    return script(f"given x; compute>memory; {offloads}; sync; free x; {prefetches}")


@pytest.mark.parametrize(("out", "back"), [([0, 1], [1, 0]), ([0, 1], [0]), ([3], [3]), ([1, 0], [])])
def test_copies_are_prefetched_in_any_order_or_not_at_all(out: list[int], back: list[int]) -> None:
    check_plan(plan_of(out, back))


@pytest.mark.parametrize(
    ("out", "back", "message"),
    [
        ([0, 0], [], "x is offloaded twice"),
        ([0, 1, 1], [], "x is offloaded twice"),
        ([0], [1], "x is prefetched but not on the host"),
        ([0, 1], [1, 1], "x is prefetched but not on the host"),
    ],
)
def test_a_copy_is_offloaded_once_and_prefetched_once(out: list[int], back: list[int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_plan(plan_of(out, back))


def test_each_copy_takes_host_memory() -> None:
    placed, refused = (place_plan(plan_of(out, []), TOY_LIMITS) for out in ([0, 1], list(range(101))))

    assert isinstance(placed, Placement)
    assert placed.host_bytes == 20
    assert isinstance(refused, DoesNotFit)
    assert (refused.pool, refused.held_bytes) == (Pool.PINNED, ((BufferKind.FEATURE_MAP, 1000),))
