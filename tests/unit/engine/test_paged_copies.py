"""Copies in pages, each of which waits for its own latency."""

from dataclasses import replace

import pytest

from tests.toy import replay, toy_costs
from tests.unit.plans.hand_written import WORKLOAD, script
from vdnnsim.cost.transfer import paged_copy_s
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Offload, Paged, Prefetch
from vdnnsim.plans.training_plan import TrainingPlan


def paging_plan() -> TrainingPlan:
    """10 B are offloaded and fetched in pages of 4 B, 5 s each."""
    plan = script(
        "given x; offload x; memory>compute; free x; take x; compute>memory; prefetch x; memory>compute; read x; free x"
    )
    paged = Paged(page_bytes=4, page_latency_s=5.0)
    operations = (
        replace(each, mechanism=paged) if isinstance(each, Offload | Prefetch) else each for each in plan.operations
    )
    return replace(plan, operations=tuple(operations))


@pytest.mark.parametrize("pinned", PinnedMemory)
def test_every_page_takes_its_latency(pinned: PinnedMemory) -> None:
    """10 B are 3 pages, 15 s each way, where the link at 1 B/s would take 10 s; the kernel of 1 s ends at 31 s.

    No memory is pinned, whatever the scenario says of offloads, so that the host spends no time.
    """
    trace = replay(paging_plan(), toy_costs(WORKLOAD, {}), pinned=pinned)

    assert [(span.start_s, span.end_s) for span in trace.spans] == [(0, 15), (15, 30), (30, 31)]
    assert trace.host_issue_s == 0


@pytest.mark.parametrize(("nbytes", "pages"), [(1, 1), (4096, 1), (4097, 2), (3 * 4096, 3)])
def test_a_page_that_is_begun_is_copied_whole(nbytes: int, pages: int) -> None:
    assert paged_copy_s(nbytes, page_bytes=4096, page_latency_s=0.5) == pages * 0.5
