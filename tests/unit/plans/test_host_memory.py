"""Host memory of copies: as the papers' systems pin it, and as PyTorch does; each budget with its own sentence."""

from dataclasses import replace

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import TOY_LIMITS
from tests.unit.plans.hand_written import script
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.units import GIB

PYTORCH = replace(TOY_LIMITS, model=MemoryModel.PYTORCH, device_bytes=2**40, host_bytes=128 * GIB, granule_bytes=512)


def offloading(writer: PlanWriter, *sizes: int, back: bool = False) -> TrainingPlan:
    for number, nbytes in enumerate(sizes):
        buffer = writer.buffer(f"x{number}", BufferKind.FEATURE_MAP, nbytes, Stage.FEATURES, given=True)
        writer.allocate(buffer, 0, Phase.FORWARD)
        writer.offload(buffer, 0)
        if back:
            writer.prefetch(buffer, 0, on_demand=False)
    return writer.finish("hand", "m")


def pinned(plan: TrainingPlan, limits: MemoryLimits) -> int:
    placed = place_plan(plan, limits)
    assert isinstance(placed, Placement)
    return placed.host_bytes


def test_33_gib_become_64_in_pytorch_alone(writer: PlanWriter) -> None:
    plan = offloading(writer, 33 * GIB)
    assert pinned(plan, PYTORCH) == 64 * GIB
    assert pinned(plan, replace(PYTORCH, model=MemoryModel.BEST_FIT)) == 33 * GIB


def test_what_came_back_is_kept_for_its_own_size(writer: PlanWriter) -> None:
    """3 and 4 B share a block of 4, which 5 B cannot use and take one of 8: 12 B; others have 5 B at most."""
    plan = offloading(writer, 3, 4, 5, back=True)
    assert pinned(plan, PYTORCH) == 12
    assert pinned(plan, replace(PYTORCH, model=MemoryModel.BEST_FIT)) == 5


@pytest.mark.parametrize(
    ("limits", "pool", "told"),
    [
        (
            replace(PYTORCH, pinned_bytes=40 * GIB),
            Pool.PINNED,
            "asked for 64.0 GiB (x0) of pinned host memory; 40.0 GiB of 40.0 GiB were free; held: nothing",
        ),
        (
            replace(PYTORCH, host_bytes=65 * GIB, process_bytes=2 * GIB),
            Pool.HOST,
            "asked for 64.0 GiB (x0) of host memory; 63.0 GiB of 65.0 GiB were free; held: nothing",
        ),
    ],
)
def test_pinned_memory_and_that_of_the_host_are_told_apart(
    writer: PlanWriter, limits: MemoryLimits, pool: Pool, told: str
) -> None:
    """A block of 64 GiB: of 40 that may be pinned; and of 65 of which the process has 2."""
    refused = place_plan(offloading(writer, 33 * GIB), limits)
    assert isinstance(refused, DoesNotFit)
    assert (refused.pool, refused.explain()) == (pool, f"forward of conv1 {told}")


AWAY = "take x; sync; write x; sync; offload x; sync; free x; sync; take x; sync"


@pytest.mark.parametrize(
    "text",
    [
        f"{AWAY}; prefetch x; sync; write x; sync; offload x; sync; free x",
        f"{AWAY}; keep x; sync; write x; sync; offload x; sync; free x; take x; sync; prefetch x; sync; free x",
        f"{AWAY}; keep x; sync; free x",
    ],
)
def test_a_new_copy_takes_the_place_of_the_old_one(text: str) -> None:
    """However often a buffer of 10 B is offloaded, the host holds 10 B."""
    plan = script(text)
    check_plan(plan)
    assert pinned(plan, TOY_LIMITS) == 10
