from dataclasses import replace

from tests.toy import TOY_SERVER, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.metrics import feature_seconds, stall_seconds
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.hardware.server import Host
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Compute, Offload, Stream
from vdnnsim.plans.trace import IterationTrace, Span, Stall, StallCause
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

F = Phase.FORWARD
# Operations 0 and 1 are a kernel of feature extraction and one of the classifier, 2 is a copy.
PLAN = TrainingPlan(
    workload=toy_workload(toy_chain(1)),
    policy="hand",
    algorithms="m",
    buffers=(Buffer("x", BufferKind.FEATURE_MAP, 10, Stage.FEATURES),),
    operations=(Compute(0, F, "only", ()), Compute(1, F, "only", ()), Offload(0, 0)),
)
CONV, FC, COPY = range(3)


def traced(spans: tuple[Span, ...], stalls: tuple[Stall, ...]) -> IterationTrace:
    return IterationTrace(PLAN, 100.0, spans, stalls, memory=(), pool_bytes=0, host_bytes=0, host_issue_s=0.0)


def kernel(operation: int, start_s: float, end_s: float) -> Span:
    return Span(operation, Stream.COMPUTE, 0.0, start_s, end_s)


def test_stalls_are_added_up_by_cause_longest_first() -> None:
    """The host: 1 + 2 = 3 s; offloads: 5 s; a prefetch: 4 s."""
    stalls = (
        Stall(0.0, 1.0, StallCause.HOST, CONV, None),
        Stall(10.0, 15.0, StallCause.OFFLOAD, CONV, COPY),
        Stall(20.0, 22.0, StallCause.HOST, FC, None),
        Stall(30.0, 34.0, StallCause.PREFETCH, FC, COPY),
    )

    assert stall_seconds(traced((), stalls)) == (
        (StallCause.OFFLOAD, 5),
        (StallCause.PREFETCH, 4),
        (StallCause.HOST, 3),
    )


def test_without_stalls_there_is_no_cause() -> None:
    assert stall_seconds(traced((kernel(CONV, 0.0, 1.0),), ())) == ()


def test_the_kernels_of_feature_extraction_count_and_copies_do_not() -> None:
    """conv1 from 0 to 3, fc from 3 to 10, a copy from 0 to 50."""
    spans = (kernel(CONV, 0.0, 3.0), Span(COPY, Stream.MEMORY, 0.0, 0.0, 50.0), kernel(FC, 3.0, 10.0))

    assert feature_seconds(traced(spans, ())) == 3


def test_stalls_count_before_a_feature_layer_or_because_of_a_copy() -> None:
    """1 s before conv1 for the host and 2 s for a copy; 4 s before fc for a copy: 7. 8 s before fc for the host do not.

    What fc waits for is then a copy of feature extraction: its own maps are never copied.
    """
    stalls = (
        Stall(0.0, 1.0, StallCause.HOST, CONV, None),
        Stall(1.0, 3.0, StallCause.PREFETCH, CONV, COPY),
        Stall(10.0, 14.0, StallCause.OFFLOAD, FC, COPY),
        Stall(20.0, 28.0, StallCause.HOST, FC, None),
    )

    assert feature_seconds(traced((), stalls)) == 7


def test_feature_extraction_of_base_is_its_kernels() -> None:
    """Two CONV layers, 2 s a kernel, the first without a data gradient: 5 kernels. fc and the loss have 5 more."""
    workload = toy_workload(toy_chain(2))
    costs = toy_costs(workload, {}, default_s=2.0)

    trace = replay(Base().plan(toy_setting(workload, costs)), costs)

    assert feature_seconds(trace) == 10
    assert trace.iteration_s == 20
    assert stall_seconds(trace) == ()


def test_feature_extraction_of_vdnn_all_includes_its_waits_for_copies() -> None:
    """One CONV layer, kernels of 1 s, copies of 10 s: conv1 runs from 0 to 1, its offload until 10, and fc waits 9 s.

    fc and the loss take 3 s until 13; backward of fc launches the prefetch, which ends at 23, and takes 2 s, so conv1
    waits from 15 on, for 8 s, and ends at 24. Two kernels and both waits: 19 s.
    """
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})

    trace = replay(VdnnAll().plan(toy_setting(workload, costs)), costs)

    assert stall_seconds(trace) == ((StallCause.OFFLOAD, 9), (StallCause.PREFETCH, 8))
    assert feature_seconds(trace) == 19
    assert trace.iteration_s == 24


def test_a_stall_while_the_host_pins_memory_counts_as_feature_extraction() -> None:
    """Conv1 runs from 0 to 1; fc waits from 1 to 6 while the host pins its X for the offload, and to 16 for the copy.

    Both belong to the offload of a feature-extraction layer: 1 s of its kernel, 15 s of stalls before fc, and the
    weight gradient of conv1, which its prefetch (launched with fc's data gradient at 19) delays from 21 to 29: 8 + 1.
    """
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})
    host = replace(TOY_SERVER, host=Host(1000, issue_s=0.0, pin_latency_s=1.0, pin_bytes_per_s=2.0))

    trace = replay(VdnnAll().plan(toy_setting(workload, costs)), costs, server=host, pinned=PinnedMemory.PER_OFFLOAD)

    assert feature_seconds(trace) == 1 + 15 + 8 + 1
