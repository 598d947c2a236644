from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, overflow_of, placement_of, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.plans.hand_written import F, W, script
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.placement import DoesNotFit, PlacedChange, Placement, needed_bytes, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.vdnn import VdnnAll

MAP, WEIGHTS = BufferKind.FEATURE_MAP, BufferKind.WEIGHTS
WORKLOAD = toy_workload(toy_chain(2))


def of_chain(text: str) -> TrainingPlan:
    """Return a plan whose layers are conv1, conv2, fc and loss."""
    return script(text, WORKLOAD)


def must_overflow(plan: TrainingPlan, device_bytes: int = 1000, host_bytes: int = 1000) -> DoesNotFit:
    return overflow_of(plan, replace(TOY_LIMITS, device_bytes=device_bytes, host_bytes=host_bytes))


def test_changes_are_listed_by_operation_and_an_alias_changes_nothing() -> None:
    """10 and 20 B, of which 7 lie in the 20: 30 B. Only the Release of the storage frees; the most was 30."""
    plan = of_chain("take x; take y=20; lay inside=7 y; free inside; free y; free x")
    assert place_plan(plan, replace(TOY_LIMITS, model=MemoryModel.BEST_FIT)) == Placement(
        changes={
            0: PlacedChange(0, 0, 10, 0),
            1: PlacedChange(1, 1, 20, 10),
            4: PlacedChange(4, 1, -20, 10),
            5: PlacedChange(5, 0, -10, 0),
        },
        pool_bytes=30,
        host_bytes=0,
    )


def test_an_alias_may_be_repeated() -> None:
    """Released and laid twice; the buffer itself may then be allocated and its Release frees again."""
    twice = "lay again=5 x; free again; lay again x; free again"
    answer = placement_of(of_chain(f"take x; {twice}; take again; free again; free x"))
    assert {position: change.delta_bytes for position, change in answer.changes.items()} == {0: 10, 5: 5, 6: -5, 7: -10}


def test_the_granule_of_the_limits_counts() -> None:
    """Two buffers of 1 B take a granule of 512 B each; an empty pool holds nothing, and refuses 2 KiB."""
    limits = replace(TOY_LIMITS, device_bytes=1024, granule_bytes=512)
    assert placement_of(of_chain("take x=1; take y=1"), limits).pool_bytes == 1024
    refused = must_overflow(of_chain("take x=2048"), device_bytes=1024)
    assert "held: nothing" in refused.explain()
    assert "; 6 B more than its 1.00 KiB were held already" in replace(refused, free_bytes=-6).explain()


def test_an_overflow_names_layer_phase_request_and_held_bytes() -> None:
    """Of 100 B, maps hold 20 + 10 and W holds 50; conv2's weight gradient wants 21 of the 20 that are free."""
    plan = of_chain("take x=20; take W=50; take y; take workspace=21 @1W")

    overflow = must_overflow(plan, device_bytes=100)

    assert overflow == DoesNotFit(
        plan=plan,
        pool=Pool.DEVICE,
        operation=3,
        buffer=3,
        layer=1,
        phase=W,
        requested_bytes=21,
        free_bytes=20,
        largest_free_bytes=20,
        capacity_bytes=100,
        held_bytes=((WEIGHTS, 50), (MAP, 30)),
    )
    assert overflow.explain() == (
        "backward weights of conv2 asked for 21 B (workspace) of GPU memory; 20 B of 100 B were free; "
        "held: weights 50 B, activations 30 B"
    )


def test_the_model_decides_whether_a_plan_fits() -> None:
    """90 B, the middle 30 held: 60 are free in pieces of 30, which is less than the 40 that were asked for.

    `ideal` adds up to 90 at most; `planned` lays the middle one, which stays, at the bottom. There it leaves 60 B,
    where the two of 30 lie first and the 40 B after them: 90 B are enough.
    """
    plan = of_chain("take a=30; take b=30; take c=30; free a; free c; take d=40")
    refused = overflow_of(plan, replace(TOY_LIMITS, model=MemoryModel.BEST_FIT, device_bytes=90))
    assert (refused.free_bytes, refused.largest_free_bytes) == (60, 30)
    assert "60 B of 90 B were free in pieces of at most 30 B" in refused.explain()
    for model in (MemoryModel.IDEAL, MemoryModel.PLANNED):
        assert placement_of(plan, replace(TOY_LIMITS, model=model, device_bytes=90)).pool_bytes == 90


def test_host_memory_is_taken_by_an_offload_and_freed_by_a_prefetch() -> None:
    """10 and 20 B are offloaded: 30. 10 are prefetched, 15 offloaded: 35, the peak. What is never prefetched stays."""
    taken = "take x; take y=20; take z=15"
    answer = placement_of(of_chain(f"{taken}; offload x; offload y; prefetch x; offload z; prefetch z"))
    assert answer.host_bytes == 35
    assert answer.pool_bytes == 45


def test_an_overflow_of_the_host_is_an_overflow() -> None:
    """Of 15 B on the host the first map holds 10; the second, offloaded during forward of conv2, finds 5."""
    found = must_overflow(of_chain("take x; take y; offload x; offload y @1"), host_bytes=15)
    assert (found.pool, found.operation, found.buffer, found.layer, found.phase) == (Pool.PINNED, 3, 1, 1, F)
    assert (found.requested_bytes, found.free_bytes, found.largest_free_bytes, found.capacity_bytes) == (10, 5, 5, 15)
    assert found.held_bytes == ((MAP, 10),)
    assert "asked for 10 B (y) of pinned host memory" in found.explain()


def test_a_prefetched_buffer_holds_nothing_on_the_host() -> None:
    """W of 8 B is offloaded and prefetched, a map of 10 B offloaded; a third, for dW of conv2, finds 5 of 15 B."""
    plan = of_chain("take W=8; take x; take y; offload W; prefetch W; offload x; offload y @1W")
    overflow = must_overflow(plan, host_bytes=15)
    assert (overflow.operation, overflow.layer, overflow.phase) == (6, 1, W)
    assert overflow.held_bytes == ((MAP, 10),)


def test_the_first_overflow_of_either_memory_decides() -> None:
    """Operation 1 offloads 10 B; operation 2 allocates 20 B, which with the 10 before make 30.

    5 B of host memory overflow at 1, 25 B of GPU memory at 2, and 5 B of GPU memory at 0, before the host does.
    """
    plan = of_chain("take x; offload x; take y=20")

    def overflow(device_bytes: int, host_bytes: int) -> tuple[Pool, int]:
        answer = must_overflow(plan, device_bytes, host_bytes)
        return answer.pool, answer.operation

    assert overflow(device_bytes=25, host_bytes=10) == (Pool.DEVICE, 2)
    assert overflow(device_bytes=25, host_bytes=5) == (Pool.PINNED, 1)
    assert overflow(device_bytes=5, host_bytes=5) == (Pool.DEVICE, 0)
    assert overflow(device_bytes=30, host_bytes=5) == (Pool.PINNED, 1)


def test_vdnn_all_needs_its_live_bytes() -> None:
    """A chain of one CONV and one FC layer in float16: maps of 10, 10, 2 and 2 B, W 30 and 6 elements, 60 and 12 B.

    W and dW: 144. The most is in use in backward of fc: the input map prefetched (10), conv1's map and its gradient
    (20), the gradient of fc (2): 176. The host holds the input map meanwhile.
    """
    workload = toy_workload(toy_chain(1))
    plan = VdnnAll().plan(toy_setting(workload, toy_costs(workload, {})))

    answer = placement_of(plan)
    assert (answer.pool_bytes, answer.host_bytes) == (176, 10)
    overflow = must_overflow(plan, device_bytes=175)
    assert "backward data of fc asked for 10 B (gradient of conv1)" in overflow.explain()
    assert "held: weights 72 B, weight gradients 72 B, activations 20 B, activation gradients 2 B" in overflow.explain()


@pytest.mark.parametrize(
    ("granule_bytes", "expected"),
    [
        (1, [30, -10, -5, -5, 10, -20]),
        (10, [30, -10, 0, -10, 20, -30]),
        (16, [32, 0, 0, -16, 16, -32]),
        (64, [64, 0, 0, 0, 0, -64]),
    ],
)
def test_a_granule_is_freed_with_its_last_byte(granule_bytes: int, expected: list[int]) -> None:
    """Of 30 B 0 to 9, 15 to 19 and 10 to 14 are freed; 5 to 14 are allocated again.

    In granules of 10 the second is freed with its last half, and allocated, as the first is, for one half.
    """
    plan = of_chain("take x=30; free x[0:10]; free x[15:20]; free x[10:15]; take x[5:15]; free x")
    answer = placement_of(plan, replace(TOY_LIMITS, granule_bytes=granule_bytes))
    assert [change.delta_bytes for change in answer.changes.values()] == expected


def test_a_part_may_overflow() -> None:
    """Of 40 B x holds 20 of its 30 and W 20, when x asks for the other 10 again."""
    plan = of_chain("take x=30; free x[0:10]; take W=20; take x[0:10] @1")
    refusal = must_overflow(plan, device_bytes=40)
    assert (refusal.requested_bytes, refusal.free_bytes) == (10, 0)
    assert refusal.held_bytes == ((MAP, 20), (WEIGHTS, 20))
    assert needed_bytes(plan) == 50


def test_host_memory_is_counted_by_parts() -> None:
    """6 of 10 B are offloaded, then 4: 10. 8 are prefetched, one and a half parts, and 4 of y offloaded: 6."""
    plan = of_chain("take x; take y=4; offload x[0:6]; offload x[6:10]; prefetch x[0:8]; offload y")
    assert placement_of(plan).host_bytes == 10
    refusal = must_overflow(plan, host_bytes=9)
    assert (refusal.operation, refusal.requested_bytes, refusal.free_bytes) == (3, 4, 3)
    assert refusal.held_bytes == ((MAP, 6),)


@pytest.mark.parametrize(
    "model", [each for each in MemoryModel if each not in (MemoryModel.IDEAL, MemoryModel.CUDA_VMM)]
)
def test_a_memory_model_without_extents_refuses_them_by_name(model: MemoryModel) -> None:
    with pytest.raises(PolicyError, match=rf"^hand: memory_model: found '{model.value}'.*bytes 0 to 3 of x.*cuda_vmm"):
        place_plan(of_chain("take x; free x[0:4]"), replace(TOY_LIMITS, model=model))
