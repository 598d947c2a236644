import pytest

from tests.toy import replay, touching, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.metrics import RunMetrics, measure
from vdnnsim.dnn.layers import Phase, Stage
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

    assert measure(trace, batch_size=8) == RunMetrics(
        iteration_s=4.0,
        images_per_s=2.0,
        max_memory_bytes=24,
        mean_memory_bytes=18.0,
        pool_bytes=32,
        peak_by_kind=((MAP, 16), (BufferKind.WORKSPACE, 8)),
        feature_max_memory_bytes=16,
        feature_step_mean_memory_bytes=16.0,
        feature_iteration_s=2.0,
        offloaded_bytes=16,
        prefetched_bytes=32,
        host_memory_bytes=20,
        stall_s=1.5,
        stall_by_cause=((StallCause.OFFLOAD, 1.0), (StallCause.HOST, 0.5)),
    )


def test_base_copies_nothing_and_stands_still_for_nothing() -> None:
    """Seven kernels of 1 s and one image: 1/7 images a second, 188 B throughout (see the tests of memory)."""
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})

    metrics = measure(replay(Base().plan(toy_setting(workload, costs)), costs), batch_size=1)

    assert metrics.images_per_s == 1 / 7
    assert (metrics.max_memory_bytes, metrics.pool_bytes, metrics.mean_memory_bytes) == (188, 188, 188)
    assert (metrics.offloaded_bytes, metrics.prefetched_bytes, metrics.host_memory_bytes) == (0, 0, 0)
    assert (metrics.stall_s, metrics.stall_by_cause) == (0, ())
    assert isinstance(metrics.stall_s, float), "seconds are floats, none of them as well"


def test_vdnn_all_brings_back_what_it_takes_away() -> None:
    """Three CONV layers with X of 10 B each: 30 B go, 30 B come back, and all of them are on the host at once."""
    workload = toy_workload(toy_chain(3))
    costs = toy_costs(workload, {})

    metrics = measure(replay(VdnnAll().plan(toy_setting(workload, costs)), costs), batch_size=1)

    assert (metrics.offloaded_bytes, metrics.prefetched_bytes, metrics.host_memory_bytes) == (30, 30, 30)
    assert metrics.stall_s == pytest.approx(sum(seconds for _, seconds in metrics.stall_by_cause), rel=1e-12)
    assert metrics.iteration_s - metrics.stall_s == 13, "13 kernels of 1 s: 4 layers with W of 3 or 2, the loss of 2"
