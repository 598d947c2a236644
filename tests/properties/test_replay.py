"""Invariants of every replay: random networks, kernels, links and policies on a machine with round numbers; chunks."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.random_plans import (
    ROOMY,
    Case,
    cases,
    cost_tables,
    paging_policies,
    servers,
    swap_policies,
    vdnn_policies,
    workloads,
)
from tests.toy import toy_setting
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan, place_unlimited
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base


@given(cases(vdnn_policies() | swap_policies()))
def test_an_offloaded_map_is_prefetched_once_before_it_is_read(case: Case) -> None:
    """A prefetch follows its offload in time, and every later kernel that reads the map starts after it has ended."""
    plan, trace = case.plan, case.play()
    away: dict[int, float] = {}
    back: dict[int, float] = {}
    for span in trace.spans_on(Stream.MEMORY):
        match plan.operations[span.operation]:
            case Offload(buffer=buffer):
                assert buffer not in away
                away[buffer] = span.end_s
            case Prefetch(buffer=buffer):
                assert buffer not in back
                assert away[buffer] <= span.start_s
                back[buffer] = span.end_s
            case _:
                raise AssertionError(span)
    assert away.keys() == back.keys()
    prefetched_at = {op.buffer: i for i, op in enumerate(plan.operations) if isinstance(op, Prefetch)}
    for span in trace.spans_on(Stream.COMPUTE):
        kernel = plan.operations[span.operation]
        assert isinstance(kernel, Compute)
        for buffer in kernel.reads:
            if prefetched_at.get(buffer, span.operation) < span.operation:
                assert span.start_s >= back[buffer]


@given(cases(paging_policies()))
def test_a_page_in_follows_the_last_page_out(case: Case) -> None:
    """With no kernel between that wrote the buffer; a kernel that reads it starts after the copy."""
    plan, trace = case.plan, case.play()
    spans = {span.operation: span for span in trace.spans}
    out: dict[int, int] = {}
    back: dict[int, int] = {}
    for position, operation in enumerate(plan.operations):
        match operation:
            case Offload(buffer=buffer):
                out[buffer] = position
            case Prefetch(buffer=buffer):
                assert spans[out[buffer]].end_s <= spans[position].start_s
                back[buffer] = position
            case Compute(reads=reads, writes=writes):
                assert all(spans[back[each]].end_s <= spans[position].start_s for each in reads if each in back)
                for each in writes:
                    out.pop(each, None)
            case _:
                pass


@given(st.data(), st.sampled_from((120, 200, 400)))
def test_paging_fits_wherever_its_largest_kernel_does(data: st.DataObject, capacity_bytes: int) -> None:
    """With all else paged out, the operands and the workspace of a kernel have the whole memory."""
    workload = data.draw(workloads())
    costs = data.draw(cost_tables(workload))
    limits = replace(ROOMY, device_bytes=capacity_bytes)

    plan = data.draw(paging_policies()).plan(toy_setting(workload, costs, limits))

    kernels = [set(op.reads + op.writes) for op in plan.operations if isinstance(op, Compute)]
    largest = max(sum(plan.buffers[buffer].nbytes for buffer in kernel) for kernel in kernels)
    check_plan(plan)
    assert isinstance(place_plan(plan, limits), Placement) == (largest <= capacity_bytes)


@given(cases())
def test_the_pool_ends_empty_and_its_peak_is_the_least_capacity(case: Case) -> None:
    plan, trace = case.plan, case.play()
    in_use, peak = 0, 0
    for change in trace.memory:
        in_use += change.delta_bytes
        peak = max(peak, in_use)
    assert in_use == 0
    assert peak == trace.pool_bytes
    assert isinstance(place_plan(plan, replace(ROOMY, device_bytes=peak)), Placement)
    assert isinstance(place_plan(plan, replace(ROOMY, device_bytes=peak - 1)), DoesNotFit)


@given(cases())
def test_addresses_of_live_buffers_never_overlap(case: Case) -> None:
    for model in (MemoryModel.BEST_FIT, MemoryModel.PLANNED):
        trace = case.play(replace(ROOMY, model=model))
        live: dict[int, tuple[int, int]] = {}
        for change in trace.memory:
            assert change.offset is not None
            if change.delta_bytes < 0:
                assert live.pop(change.buffer) == (change.offset, change.offset - change.delta_bytes)
                continue
            low, high = change.offset, change.offset + change.delta_bytes
            assert all(high <= start or end <= low for start, end in live.values())
            live[change.buffer] = low, high


def busy_seconds(trace: IterationTrace, operations: Iterable[type]) -> float:
    kinds = tuple(operations)
    return sum(s.end_s - s.start_s for s in trace.spans if isinstance(trace.plan.operations[s.operation], kinds))


@given(cases())
def test_an_iteration_takes_at_least_the_work_of_its_busiest_resource(case: Case) -> None:
    """Compute stream, both directions of the link, and the host; and nothing on a stream overlaps."""
    trace = case.play()
    assert trace.iteration_s >= busy_seconds(trace, [Compute]) - 1e-9
    assert trace.iteration_s >= busy_seconds(trace, [Offload]) - 1e-9
    assert trace.iteration_s >= busy_seconds(trace, [Prefetch]) - 1e-9
    assert trace.iteration_s >= trace.host_issue_s - 1e-9
    for stream in Stream:
        spans = trace.spans_on(stream)
        assert all(a.end_s <= b.start_s for a, b in pairwise(spans))


@given(cases())
def test_kernels_and_stalls_fill_the_compute_stream(case: Case) -> None:
    """From 0 to the end of the last kernel, every moment is a kernel or a stall with its cause."""
    trace = case.play()
    intervals = [(span.start_s, span.end_s) for span in trace.spans_on(Stream.COMPUTE)]
    intervals += [(stall.start_s, stall.end_s) for stall in trace.stalls]
    cursor = 0.0
    for start_s, end_s in sorted(intervals):
        assert start_s == cursor
        cursor = end_s


@given(st.data(), servers(), st.sampled_from(Algorithms))
def test_base_takes_its_kernels_and_the_issues_that_they_do_not_hide(
    data: st.DataObject, server: Server, algorithms: Algorithms
) -> None:
    """Kernel i is issued at (i + 1) h and starts then or when kernel i - 1 ends; nothing else happens under base.

    With h = 0 that is the sum of its kernel times. What takes no time is no kernel and costs no issue.
    """
    workload = data.draw(workloads())
    costs = data.draw(cost_tables(workload))
    plan = Base(algorithms=algorithms).plan(toy_setting(workload, costs, ROOMY))

    trace = Case(plan, costs, server).play()

    end_s, issued = 0.0, 0
    for op in (each for each in plan.operations if isinstance(each, Compute)):
        seconds = costs.table(workload).find(op.layer, op.phase, op.algorithm).seconds
        issued += seconds > 0
        end_s = max(end_s, issued * server.host.issue_s) + seconds
    assert trace.iteration_s == end_s


@given(cases())
def test_equal_input_gives_an_equal_trace(case: Case) -> None:
    assert case.play() == case.play()


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
