"""Host memory of copies, pinned as the papers' systems do and as PyTorch does, and its two limits.

Where several copies of one buffer of 10 B lie on the host, each has its number, and there is room for a hundred.
"""

from dataclasses import replace
from typing import Any

import pytest

from tests.toy import TOY_LIMITS, overflow_of, placement_of
from tests.unit.plans.hand_written import script
from vdnnsim.errors import PlanError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.units import GIB

PYTORCH = replace(TOY_LIMITS, model=MemoryModel.PYTORCH, device_bytes=2**40, host_bytes=128 * GIB, granule_bytes=512)


def offloading(*sizes: int, back: str = "") -> TrainingPlan:
    copies = (f"given x{number}={size}; offload x{number}; {back.format(number)}" for number, size in enumerate(sizes))
    return script("; ".join(copies))


def pinned(plan: TrainingPlan, limits: MemoryLimits) -> int:
    return placement_of(plan, limits).host_bytes


def test_pytorch_pins_powers_of_two_and_reuses_blocks_of_the_same_size_alone() -> None:
    plan = offloading(33 * GIB)
    assert pinned(plan, PYTORCH) == 64 * GIB
    assert pinned(plan, replace(PYTORCH, model=MemoryModel.BEST_FIT)) == 33 * GIB
    # 3 and 4 B share a block of 4, which 5 B cannot use and take one of 8: 12 B; others have 5 B at most.
    plan = offloading(3, 4, 5, back="prefetch x{}")
    assert pinned(plan, PYTORCH) == 12
    assert pinned(plan, replace(PYTORCH, model=MemoryModel.BEST_FIT)) == 5


@pytest.mark.parametrize(
    ("changes", "pool", "free_gib"),
    [
        ({"pinned_bytes": 40 * GIB}, Pool.PINNED, 40),
        ({"host_bytes": 65 * GIB, "process_bytes": 2 * GIB}, Pool.HOST, 63),
    ],
)
def test_an_overflow_says_which_host_limit_it_hit(changes: dict[str, Any], pool: Pool, free_gib: int) -> None:
    """A block of 64 GiB: of 40 that may be pinned; and of 65 of which the process has 2."""
    refused = overflow_of(offloading(33 * GIB), replace(PYTORCH, **changes))
    assert (refused.pool, refused.requested_bytes, refused.free_bytes) == (pool, 64 * GIB, free_gib * GIB)
    assert f"asked for 64.0 GiB (x0) of {pool.value}" in refused.explain()


AWAY = "take x; sync; write x; sync; offload x; sync; free x; sync; take x; sync"


@pytest.mark.parametrize(
    "text",
    [
        f"{AWAY}; prefetch x; sync; write x; sync; offload x; sync; free x",
        f"{AWAY}; keep x; sync; write x; sync; offload x; sync; free x; take x; sync; prefetch x; sync; free x",
        f"{AWAY}; keep x; sync; free x",
    ],
)
def test_a_new_copy_replaces_the_old_one(text: str) -> None:
    """However often a buffer of 10 B is offloaded, the host holds 10 B."""
    plan = script(text)
    check_plan(plan)
    assert pinned(plan, TOY_LIMITS) == 10


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
