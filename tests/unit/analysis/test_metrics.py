from dataclasses import replace

import pytest

from tests.toy import TOY_SERVER, replay, touching, toy_chain, toy_costs, toy_setting, toy_trace, toy_workload
from vdnnsim.analysis.metrics import RunMetrics, bubble_seconds, feature_seconds, measure, stall_seconds
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.hardware.server import Host
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Allocate, Compute, Offload, Prefetch, Release, Stream
from vdnnsim.plans.trace import IterationTrace, MemoryChange, Span, Stall, StallCause
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

F, D = Phase.FORWARD, Phase.BACKWARD_DATA
MAP = BufferKind.FEATURE_MAP


def test_every_metric_of_a_trace_written_by_hand() -> None:
    """8 images in 4 s. x of 16 B and z of 8 B: conv1 runs with x from 0 to 1, fc with both from 2 to 3, then z goes.

    Memory: 16 B for 2 s, 24 B for 1 s, 16 B for 1 s: 72 / 4. Feature extraction: x, in its one step of conv1. Copies:
    x to the host once and back twice, which no plan does, so that the two sums differ. The stall of 1 s before fc is an
    offload's and counts as feature extraction, the one of 0.5 s is the host's before fc and does not.
    """
    plan = TrainingPlan(
        workload=toy_workload(toy_chain(1)),
        policy="hand",
        algorithms="m",
        buffers=(Buffer("x", MAP, 16, Stage.FEATURES), Buffer("z", BufferKind.WORKSPACE, 8, Stage.CLASSIFIER)),
        operations=(
            Allocate(0, 0, F),
            Compute(0, F, "only", touching(writes=[0])),
            Offload(0, 0),
            Allocate(1, 1, F),
            Compute(1, F, "only", touching(reads=[0], writes=[1])),
            Prefetch(0, 1, on_demand=False),
            Prefetch(0, 1, on_demand=True),
            Release(1),
        ),
    )
    trace = IterationTrace(
        plan=plan,
        iteration_s=4.0,
        spans=(
            Span(1, Stream.COMPUTE, 0.0, 0.0, 1.0),
            Span(2, Stream.MEMORY, 0.0, 1.0, 2.0),
            Span(4, Stream.COMPUTE, 0.0, 2.5, 3.0),
        ),
        stalls=(Stall(1.0, 2.0, StallCause.OFFLOAD, 4, 2), Stall(2.0, 2.5, StallCause.HOST, 4, None)),
        memory=(MemoryChange(0.0, 0, 0, 16, 0), MemoryChange(2.0, 3, 1, 8, 16), MemoryChange(3.0, 7, 1, -8, 16)),
        pool_bytes=32,
        host_bytes=20,
        host_issue_s=0.25,
    )
    lines = repr(measure(trace, batch_size=8)).splitlines()
    assert [line.split()[-2:] for line in lines[:3]] == [["4.00", "s"], ["second", "2"], ["24", "B"]]
    assert lines[-2].split() == "waits for an offload 1.00 s".split()
    assert measure(trace, batch_size=8) == RunMetrics(
        iteration_s=4.0,
        samples_per_s=2.0,
        allocated_bytes=24,
        mean_allocated_bytes=18.0,
        reserved_bytes=32,
        peak_by_kind=((MAP, 16), (BufferKind.WORKSPACE, 8)),
        feature_allocated_bytes=16,
        feature_step_mean_allocated_bytes=16.0,
        feature_iteration_s=2.0,
        offloaded_bytes=16,
        prefetched_bytes=32,
        host_memory_bytes=20,
        stall_s=1.5,
        stall_by_cause=((StallCause.OFFLOAD, 1.0), (StallCause.HOST, 0.5)),
    )


def test_metrics_of_base_and_vdnn_all() -> None:
    """Seven kernels of 1 s and one image: 1/7 images a second, 188 B throughout (see the tests of memory)."""
    metrics = measure(toy_trace(Base(), 1), batch_size=1)
    assert metrics.samples_per_s == 1 / 7
    assert (metrics.allocated_bytes, metrics.reserved_bytes, metrics.mean_allocated_bytes) == (188, 188, 188)
    assert (metrics.offloaded_bytes, metrics.prefetched_bytes, metrics.host_memory_bytes) == (0, 0, 0)
    assert (metrics.stall_s, metrics.stall_by_cause) == (0, ())
    assert isinstance(metrics.stall_s, float), "seconds are floats, none of them as well"
    # Three CONV layers with X of 10 B each: 30 B are offloaded and prefetched, and on the host at once.
    metrics = measure(toy_trace(VdnnAll(), 3), batch_size=1)
    assert (metrics.offloaded_bytes, metrics.prefetched_bytes, metrics.host_memory_bytes) == (30, 30, 30)
    assert metrics.stall_s == pytest.approx(sum(seconds for _, seconds in metrics.stall_by_cause), rel=1e-12)
    assert metrics.iteration_s - metrics.stall_s == 13, "13 kernels of 1 s: 4 layers with W of 3 or 2, the loss of 2"


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


def timed(operation: int, start_s: float, end_s: float) -> Span:
    return Span(operation, Stream.COMPUTE, 0.0, start_s, end_s)


def test_stalls_are_added_up_by_cause_longest_first() -> None:
    """The host: 1 + 2 = 3 s; offloads: 5 s; a prefetch: 4 s."""
    host, offload, prefetch = StallCause.HOST, StallCause.OFFLOAD, StallCause.PREFETCH
    stalls = (
        *(Stall(0.0, 1.0, host, CONV, None), Stall(10.0, 15.0, offload, CONV, COPY)),
        *(Stall(20.0, 22.0, host, FC, None), Stall(30.0, 34.0, prefetch, FC, COPY)),
    )
    assert stall_seconds(traced((), stalls)) == ((offload, 5), (prefetch, 4), (host, 3))


def test_feature_time_counts_kernels_and_no_copies() -> None:
    """conv1 from 0 to 3, fc from 3 to 10, a copy from 0 to 50."""
    spans = (timed(CONV, 0.0, 3.0), Span(COPY, Stream.MEMORY, 0.0, 0.0, 50.0), timed(FC, 3.0, 10.0))
    assert feature_seconds(traced(spans, ())) == 3
    # 1 s before conv1 for the host and 2 s for a copy; 4 s before fc for a copy: 7. 8 s before fc for the host do
    # not. What fc waits for is then a copy of feature extraction: its own maps are never copied.
    stalls = (
        Stall(0.0, 1.0, StallCause.HOST, CONV, None),
        Stall(1.0, 3.0, StallCause.PREFETCH, CONV, COPY),
        Stall(10.0, 14.0, StallCause.OFFLOAD, FC, COPY),
        Stall(20.0, 28.0, StallCause.HOST, FC, None),
    )
    assert feature_seconds(traced((), stalls)) == 7


def test_feature_extraction_of_vdnn_all_includes_its_waits_for_copies() -> None:
    """One CONV layer, kernels of 1 s, copies of 10 s: conv1 runs from 0 to 1, its offload until 10, and fc waits 9 s.

    fc and the loss take 3 s until 13; backward of fc launches the prefetch, which ends at 23, and takes 2 s, so conv1
    waits from 15 on, for 8 s, and ends at 24. Two kernels and both waits: 19 s.
    """
    trace = toy_trace(VdnnAll(), 1)
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


def test_stages_of_a_pipeline_wait_for_each_other_and_for_the_last_to_end() -> None:
    """One is done 2 s before the other, which waited for 1 s: 1.5 s each, and both train at the pace of the last."""
    trace = toy_trace(Base(), 1)
    end_s = trace.iteration_s
    first = measure(replace(trace, iteration_s=end_s - 2), 1, end_s)
    assert (first.iteration_s, first.samples_per_s, first.stall_s) == (end_s, 1 / end_s, 2.0)
    assert first.feature_iteration_s == measure(trace, 1).feature_iteration_s + 2
    assert bubble_seconds((first, replace(first, stall_by_cause=((StallCause.PIPELINE, 1.0),)))) == 1.5
