"""Which copies are cut into chunks, and when their memory is freed; x has 10 B, a chunk 4."""

from dataclasses import replace

import pytest

from tests.unit.plans.hand_written import COMPUTE, MEMORY, script
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import HostSynchronize, Offload, Paged, Prefetch, RecordEvent, ReleaseExtent, WaitEvent
from vdnnsim.plans.training_plan import TrainingPlan

CHUNKS = [range(4), range(4, 8), range(8, 10)]
OFFLOADED = "take x; write x; compute>memory; offload x; memory>compute"


def freed(plan: TrainingPlan) -> list[range]:
    return [each.extent for each in plan.operations if isinstance(each, ReleaseExtent)]


def test_each_chunk_is_freed_when_its_copy_is_done() -> None:
    """The wait for the whole copy (event 1) stands behind those for the first two chunks; the last goes with x."""
    assert in_chunks(script(f"{OFFLOADED}; free x"), 4).operations[4:-1] == (
        Offload(0, 0, extent=CHUNKS[0]),
        RecordEvent(2, MEMORY),
        Offload(0, 0, extent=CHUNKS[1]),
        RecordEvent(3, MEMORY),
        Offload(0, 0, extent=CHUNKS[2]),
        RecordEvent(1, MEMORY),
        WaitEvent(2, COMPUTE),
        ReleaseExtent(0, CHUNKS[0]),
        WaitEvent(3, COMPUTE),
        ReleaseExtent(0, CHUNKS[1]),
        WaitEvent(1, COMPUTE),
    )


def test_synchronizations_prefetches_pages_and_parts() -> None:
    plan = in_chunks(script("take x; write x; compute>memory; offload x; sync; free x"), 4)
    check_plan(plan)
    assert freed(plan) == CHUNKS[:2]
    assert isinstance(plan.operations[-2], HostSynchronize)
    # Prefetches are cut as well.
    text = f"{OFFLOADED}; free x; take x; compute>memory; keep x; memory>compute; read x; free x"
    plan = in_chunks(script(text), 4)
    check_plan(plan)
    whole = Prefetch(0, 0, on_demand=False, keeps_copy=True)
    assert [each for each in plan.operations if isinstance(each, Prefetch)] == [
        replace(whole, extent=extent) for extent in CHUNKS
    ]
    # Pages are small already; parts were chosen by a policy.
    plan = script("take x; take y; write x y; compute>memory; offload x; offload y[1:8]; sync; free x; free y")
    paged = Paged(page_bytes=4, page_latency_s=1.0)
    operations = [replace(each, mechanism=paged) if each == Offload(0, 0) else each for each in plan.operations]
    plan = replace(plan, operations=tuple(operations))
    assert in_chunks(plan, 4) == plan


@pytest.mark.parametrize(
    "text",
    [
        f"{OFFLOADED}; read x; free x",
        f"{OFFLOADED}; lay y x; free y; free x",
        f"{OFFLOADED}; exchange x; free x",
        f"take below; {OFFLOADED.replace('take x', 'lay x below')}; free x; free below",
    ],
)
def test_a_buffer_in_use_or_inside_another_is_freed_as_a_whole(text: str) -> None:
    plan = in_chunks(script(text), 4)

    assert [each.extent for each in plan.operations if isinstance(each, Offload)] == CHUNKS
    assert not freed(plan)


@pytest.mark.parametrize("chunk_bytes", [10, 11])
def test_one_chunk_is_the_whole(chunk_bytes: int) -> None:
    plan = script(f"{OFFLOADED}; free x")

    assert in_chunks(plan, chunk_bytes) == plan
