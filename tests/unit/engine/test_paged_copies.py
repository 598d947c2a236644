import pytest

from tests.plan_writer import PlanWriter
from tests.toy import replay, touching, toy_chain, toy_costs, toy_workload
from vdnnsim.cost.transfer import paged_copy_s
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Paged, Stream
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

WORKLOAD = toy_workload(toy_chain(1))
F = Phase.FORWARD


def paging_plan() -> TrainingPlan:
    """10 B leave and come back in pages of 4 B, 5 s each."""
    writer = PlanWriter(WORKLOAD)
    x = writer.buffer("X", BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=True)
    paged = Paged(page_bytes=4, page_latency_s=5.0)
    writer.allocate(x, 0, F)
    writer.offload(x, 0, mechanism=paged)
    writer.wait(writer.record(Stream.MEMORY), Stream.COMPUTE)
    writer.release(x)
    writer.allocate(x, 0, F)
    writer.wait(writer.record(Stream.COMPUTE), Stream.MEMORY)
    writer.prefetch(x, 0, on_demand=True, mechanism=paged)
    writer.wait(writer.record(Stream.MEMORY), Stream.COMPUTE)
    writer.compute(0, F, "only", touching(reads=(x,)))
    writer.release(x)
    return writer.finish("paging", "p")


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
