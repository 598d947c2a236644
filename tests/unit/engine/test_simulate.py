from dataclasses import replace

import pytest

from tests.toy import TOY_SERVER, placement_of, replay, replayed, toy_costs, toy_graph, toy_workload
from tests.unit.plans.hand_written import WORKLOAD, F, script
from vdnnsim.engine.simulate import simulate
from vdnnsim.engine.streams import CopyEngines
from vdnnsim.errors import SimulationDeadlock
from vdnnsim.hardware.server import Host, Link, Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import StallCause
from vdnnsim.policies.base import Base
from vdnnsim.policies.iterations.layerwise import PrefetchSearch
from vdnnsim.policies.vdnn import VdnnAll

COSTS = toy_costs(WORKLOAD, {})


def issuing_in(seconds: float) -> Server:
    """The toy machine with a host that takes so long for each call."""
    return replace(TOY_SERVER, host=Host(1000, issue_s=seconds, pin_latency_s=0.0, pin_bytes_per_s=1.0))


def test_kernels_wait_for_the_host_where_issuing_takes_longer() -> None:
    """Issuing takes 3 s, each kernel 1 s: kernel i is issued at 3 i and runs to 3 i + 1, so 7 kernels end at 22.

    The compute stream stands still for 2 s before each kernel but the first, and for 3 s before that one.
    """
    trace = replayed(Base(), WORKLOAD, COSTS, server=issuing_in(3.0))
    assert trace.iteration_s == 22
    assert [(stall.start_s, stall.end_s) for stall in trace.stalls] == [(0, 3)] + [
        (3 * i + 1, 3 * i + 3) for i in range(1, 7)
    ]
    assert {stall.cause for stall in trace.stalls} == {StallCause.HOST}
    assert trace.host_issue_s == 21
    # Issuing takes 1 s, each kernel 5 s: only the first issue is seen, and 7 kernels end at 1 + 35.
    costs = toy_costs(WORKLOAD, {}, default_s=5.0)
    trace = replayed(Base(), WORKLOAD, costs, server=issuing_in(1.0))
    assert trace.iteration_s == 36
    # conv1: forward and weight gradient; fc: forward, data and weight gradient; loss: forward and data gradient. That
    # makes 7 kernels of 1 s and nothing else.
    trace = replayed(Base(), WORKLOAD, COSTS)
    assert trace.iteration_s == 7
    assert trace.stalls == ()
    assert trace.host_issue_s == 0


def test_a_copy_takes_the_latency_of_its_link_and_the_rate_of_its_direction() -> None:
    """10 B at 5 B/s to the host and at 2 B/s back, 3 s latency: OFF takes 3 + 2 = 5 s, PRE 3 + 5 = 8 s."""
    link = replace(TOY_SERVER, link=Link("link", h2d_bytes_per_s=2.0, d2h_bytes_per_s=5.0, latency_s=3.0))
    trace = replayed(VdnnAll(), WORKLOAD, COSTS, server=link)
    assert [span.end_s - span.start_s for span in trace.spans_on(Stream.MEMORY)] == [5, 8]
    # Issuing takes 1 s; conv1's kernel, issued second, runs from 2 to 32 and hides its offload, which ends at 14.
    # Only after 32 does the host go on, and fc's kernel is issued at 33: one second of waiting for the host.
    costs = toy_costs(WORKLOAD, {("conv1", F): 30.0})
    trace = replayed(VdnnAll(), WORKLOAD, costs, server=issuing_in(1.0))
    assert (trace.stalls[1].start_s, trace.stalls[1].end_s, trace.stalls[1].cause) == (32, 33, StallCause.HOST)


def test_pinning_at_each_offload_holds_the_host() -> None:
    """The host pins conv1's X of 10 B at 2 B/s after 1 s: 6 s, from 0 to 6, while conv1 runs from 0 to 1.

    The offload then runs from 6 to 16 and fc waits: until 6 for the pinning, from there for the offload.
    """
    host = replace(TOY_SERVER, host=Host(1000, issue_s=0.0, pin_latency_s=1.0, pin_bytes_per_s=2.0))

    trace = replayed(VdnnAll(), WORKLOAD, COSTS, server=host, pinned=PinnedMemory.PER_OFFLOAD)

    assert [(stall.start_s, stall.end_s, stall.cause) for stall in trace.stalls][:2] == [
        (1, 6, StallCause.PINNING),
        (6, 16, StallCause.OFFLOAD),
    ]


def test_a_map_that_is_not_prefetched_is_fetched_on_demand() -> None:
    """conv, pool, conv, fc under the search without POOL: the first conv's X, which the pool would prefetch, is not.

    So backward of conv1 stands still for the 10 s of its fetch.
    """
    workload = toy_workload(toy_graph("conv1 conv; pool1 pool; conv2 conv"))
    costs = toy_costs(workload, {})
    policy = VdnnAll(prefetch_search=PrefetchSearch.FIG10_WITHOUT_POOL)

    trace = replayed(policy, workload, costs)

    assert [stall.end_s - stall.start_s for stall in trace.stalls if stall.cause is StallCause.ON_DEMAND] == [10]


def test_a_stream_that_waits_holds_only_itself() -> None:
    """An event holds the memory stream until a 4 s kernel is done; the host goes on and issues the next kernel.

    The copy runs from 4 to 14, the kernels from 0 to 4 and from 4 to 5, and a wait of the compute stream for the
    copy's event holds a third kernel from 5 to 14.
    """
    held = "compute>memory; offload x; mark memory; turn y z @1; wait 1 compute; turn y x @1"
    plan = script(f"given x; given y; given z; write x; {held}; free x; free y; free z")
    costs = toy_costs(WORKLOAD, {("conv1", F): 4.0})

    trace = replay(plan, costs)

    assert [(span.start_s, span.end_s) for span in trace.spans_on(Stream.COMPUTE)] == [(0, 4), (4, 5), (14, 15)]
    assert [(span.start_s, span.end_s) for span in trace.spans_on(Stream.MEMORY)] == [(4, 14)]
    assert [(stall.start_s, stall.end_s, stall.cause) for stall in trace.stalls] == [(5, 14, StallCause.OFFLOAD)]


def test_an_event_is_recorded_no_earlier_than_it_was_issued() -> None:
    """Issuing takes 2 s: the record is issued at 2, the wait at 4, the copy at 6, and so the copy starts at 6.

    The compute stream, which had nothing to do, must not record the event before 2.
    """
    plan = script("given x; compute>memory; offload x; memory>compute; free x")
    trace = replay(plan, COSTS, server=issuing_in(2.0))
    assert [(span.start_s, span.end_s) for span in trace.spans] == [(6, 16)]
    assert trace.memory[-1].time_s == 16
    # An event is issued at 2 s and recorded at once, a wait for it is issued at 4 s: the iteration takes 4 s.
    assert replay(script("memory>compute"), COSTS, server=issuing_in(2.0)).iteration_s == 4


@pytest.mark.parametrize(("end", "host"), [("sync", "operation 2"), ("", "the end")])
def test_a_deadlock_says_what_streams_and_host_wait_for(end: str, host: str) -> None:
    """The compute stream waits for event 1, the memory stream for event 0; neither is ever recorded."""
    plan = script(f"wait 1 compute; wait 0 memory; {end}")
    placement = placement_of(plan)

    with pytest.raises(SimulationDeadlock, match=f"host waits for its streams at {host}$") as failure:
        simulate(plan, COSTS, TOY_SERVER, placement, PinnedMemory.ARENA)

    assert "the compute stream at operation 0 (wait for event 1 on the compute stream)" in str(failure.value)
    assert "the memory stream at operation 1 (wait for event 0 on the memory stream)" in str(failure.value)


def test_a_runtime_error_is_not_called_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """NotImplementedError is a RuntimeError, which SimPy raises when no event is left."""

    def missing(*_: object) -> None:
        raise NotImplementedError("this copy engine")

    monkeypatch.setattr(CopyEngines, "move", missing)
    costs = toy_costs(WORKLOAD, {})

    with pytest.raises(NotImplementedError, match="this copy engine"):
        replayed(VdnnAll(), WORKLOAD, costs)
