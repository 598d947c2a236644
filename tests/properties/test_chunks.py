"""Plans whose copies are made in chunks, compared with the same plan whole."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.random_plans import ROOMY, Case, cases, swap_policies, vdnn_policies
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.placement import place_unlimited
from vdnnsim.plans.trace import IterationTrace

CHUNKS = st.integers(1, 40)
COPYING = vdnn_policies() | swap_policies()


@given(cases(COPYING), CHUNKS, st.sampled_from((1, 4, 16, 64)))
def test_a_plan_in_chunks_never_needs_more_memory_than_whole(case: Case, chunk_bytes: int, granule_bytes: int) -> None:
    """On the GPU and on the host, whatever the granule."""
    limits = replace(ROOMY, granule_bytes=granule_bytes)
    chunked = in_chunks(case.plan, chunk_bytes)
    check_plan(chunked)

    whole, parts = place_unlimited(case.plan, limits), place_unlimited(chunked, limits)

    assert parts.pool_bytes <= whole.pool_bytes
    assert parts.host_bytes <= whole.host_bytes


@given(cases(COPYING), CHUNKS)
def test_a_plan_in_chunks_moves_every_byte_once(case: Case, chunk_bytes: int) -> None:
    chunked = in_chunks(case.plan, chunk_bytes)

    copies = [each for each in chunked.operations if isinstance(each, Offload | Prefetch)]
    assert all(chunked.copied_bytes(each) <= chunk_bytes for each in copies)
    joined: list[Offload | Prefetch] = []
    reached = 0
    for copy in copies:
        extent = copy.extent or range(chunked.buffers[copy.buffer].nbytes)
        assert extent.start == reached
        reached = extent.stop % chunked.buffers[copy.buffer].nbytes
        if not reached:
            joined.append(replace(copy, extent=None))
    assert joined == [each for each in case.plan.operations if isinstance(each, Offload | Prefetch)]


def kernel_times(trace: IterationTrace) -> list[tuple[float, float]]:
    spans = [span for span in trace.spans if isinstance(trace.plan.operations[span.operation], Compute)]
    return [(span.start_s, span.end_s) for span in spans]


@given(cases(COPYING), CHUNKS)
def test_chunks_cost_a_replay_nothing_where_issue_and_latency_do_not(case: Case, chunk_bytes: int) -> None:
    """Every kernel runs when it did, and memory is held no longer.

    The host issues in no time and pins nothing, and copies have no latency; rates are powers of two, so that sums of
    times are exact.
    """
    server = replace(
        case.server, link=replace(case.server.link, latency_s=0.0), host=replace(case.server.host, issue_s=0.0)
    )
    whole = replace(case, server=server, pinned=PinnedMemory.ARENA)
    chunked = replace(whole, plan=in_chunks(case.plan, chunk_bytes))

    before, after = whole.play(), chunked.play()

    assert kernel_times(after) == kernel_times(before)
    assert after.iteration_s == before.iteration_s
    assert memory_time(after) <= memory_time(before)
    assert chunked.play(replace(ROOMY, model=MemoryModel.CUDA_VMM)).iteration_s == after.iteration_s


def memory_time(trace: IterationTrace) -> float:
    return sum(change.delta_bytes * (trace.iteration_s - change.time_s) for change in trace.memory)
