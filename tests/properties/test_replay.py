"""Invariants of every replay: random networks, kernels, links and policies on a machine with round numbers."""

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
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, Offload, Prefetch, Stream
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
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
