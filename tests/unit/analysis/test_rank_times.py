"""Times of a rank: its kernels, and what the compute stream waits for."""

from dataclasses import replace

from tests.toy import toy_trace
from vdnnsim.analysis.rank_times import rank_times
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Communicate, Stream
from vdnnsim.plans.trace import IterationTrace, Stall, StallCause
from vdnnsim.policies.base import Base

COPY = Communicate(0, Phase.UPDATE, "copy", (), 0, None)


def of_kind(kind: CollectiveKind) -> Communicate:
    return replace(COPY, collective=Collective(kind, 8, "float32", ranks=1))


def rank(*sent: tuple[Communicate, float, float], stalls: tuple[Stall, ...] = ()) -> IterationTrace:
    """A kernel from 0 to 2 s, and what is sent from and to some time, of a step of 5 s."""
    trace = toy_trace(Base(), 1)
    begin = len(trace.plan.operations)
    plan = replace(trace.plan, operations=(*trace.plan.operations, *(each for each, _, _ in sent)))
    (first, kernel), *_ = trace.kernels
    assert kernel.phase is Phase.FORWARD
    run = replace(first, start_s=0.0, end_s=2.0)
    spans = (
        replace(run, operation=begin + at, stream=Stream.COMMUNICATION, start_s=start, end_s=end)
        for at, (_, start, end) in enumerate(sent)
    )
    stalls = tuple(replace(each, waited_for=begin + (each.waited_for or 0)) for each in stalls)
    return replace(trace, plan=plan, iteration_s=5.0, spans=(run, *spans), stalls=stalls)


def test_collectives_behind_the_last_kernel_are_waited_for() -> None:
    """A broadcast from 1.5 to 4 s, a kernel that ends at 2 s: for 2 s nothing else runs; then a reduction to 4.5 s."""
    sent = (of_kind(CollectiveKind.BROADCAST), 1.5, 4.0), (of_kind(CollectiveKind.ALL_REDUCE), 3.5, 4.5)
    found = rank_times((rank(*sent),))
    assert found.waits_s == {CollectiveKind.BROADCAST: 2.0, CollectiveKind.ALL_REDUCE: 0.5}
    assert (found.gather_s, found.reduce_s, found.exposed_s) == (2.0, 0.5, 2.5)
    assert (found.kernels_s, found.communication_s, found.update_s, found.other_s) == (2.0, 3.5, 0.0, 0.5)
    assert rank_times((rank(),)).waits_s == {}


def test_a_copy_from_the_buffer_of_a_collective_is_waited_for_as_that() -> None:
    """Of 1 s behind a copy, which follows a gather; one before all collectives is of none, and counts as a reduction.

    A copy on another stream is of none as well.
    """
    gather, aside = of_kind(CollectiveKind.ALL_GATHER), replace(COPY, stream=Stream.SEND)
    sent = tuple((each, 0.0, 1.0) for each in (COPY, gather, COPY, aside))
    wait = Stall(2.0, 3.0, StallCause.COMMUNICATION, 0, 0)
    for waited_for, gather_s in ((0, 0.0), (1, 1.0), (2, 1.0), (3, 0.0)):
        found = rank_times((rank(*sent, stalls=(replace(wait, waited_for=waited_for),)),))
        assert (found.gather_s, found.reduce_s) == (gather_s, 1.0 - gather_s)


def test_an_update_on_the_host_is_an_update_that_is_waited_for_and_no_collective() -> None:
    """From 2 to 4.5 s, for which the GPU waits; for a reduction until 2.5 s, where one is before the update."""
    update, wait = of_kind(CollectiveKind.ON_HOST), Stall(2.0, 4.5, StallCause.ON_HOST, 0, 0)
    found = rank_times((rank((update, 2.0, 4.5), stalls=(wait,)),))
    assert (found.update_s, found.offload_s, found.communication_s, found.other_s) == (2.5, 2.5, 0.0, 0.5)
    reduction = of_kind(CollectiveKind.REDUCE_SCATTER)
    found = rank_times((rank((reduction, 1.5, 2.5), (update, 2.5, 4.5), stalls=(wait,)),))
    assert (found.reduce_s, found.offload_s, found.other_s) == (0.5, 2.0, 0.5)


def test_a_stage_that_is_done_waits_for_the_others() -> None:
    """5 and 4 s: for half a second in the mean."""
    found = rank_times((rank(), replace(rank(), iteration_s=4.0)))
    assert (found.step_s, found.bubble_s, found.other_s) == (5.0, 0.5, 2.5)
