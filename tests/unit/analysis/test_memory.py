import pytest

from tests.toy import toy_chain, toy_trace, toy_workload
from vdnnsim.analysis.memory import (
    features_only,
    maximum_bytes,
    mean_bytes,
    memory_curve,
    peak_by_kind,
    step_mean_bytes,
)
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.plans.operations import Allocate, Compute, Operation, Release
from vdnnsim.plans.trace import IterationTrace, MemoryChange
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.vdnn import VdnnAll

F, D, W, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.UPDATE
MAP, WEIGHTS = BufferKind.FEATURE_MAP, BufferKind.WEIGHTS
# Buffers 0 to 3; the last belongs to the classifier.
BUFFERS = (
    Buffer("x", MAP, 10, Stage.FEATURES),
    Buffer("weights", WEIGHTS, 30, Stage.FEATURES),
    Buffer("y", MAP, 5, Stage.FEATURES),
    Buffer("z", MAP, 40, Stage.CLASSIFIER),
)


def traced(
    changes: list[tuple[float, int, int, int]], iteration_s: float = 10.0, operations: tuple[Operation, ...] = ()
) -> IterationTrace:
    """Trace changes of memory given as time, operation, buffer and delta; layers are conv1, conv2, fc and the loss."""
    plan = TrainingPlan(toy_workload(toy_chain(2)), "hand", "m", BUFFERS, operations)
    memory = tuple(MemoryChange(time_s, operation, buffer, delta, None) for time_s, operation, buffer, delta in changes)
    return IterationTrace(plan, iteration_s, (), (), memory, pool_bytes=0, host_bytes=0, host_issue_s=0.0)


# x from 0 to 6, W from 0 to 10, y from 2 to 4, z from 4 to 8: 40 B, 45 from 2, 80 from 4, 70 from 6, 30 from 8.
TRACE = traced(
    [
        *((0.0, 0, 0, 10), (0.0, 1, 1, 30), (2.0, 2, 2, 5), (4.0, 3, 2, -5)),
        *((4.0, 4, 3, 40), (6.0, 5, 0, -10), (8.0, 6, 3, -40), (10.0, 7, 1, -30)),
    ]
)


def test_changes_at_one_time_are_merged() -> None:
    """Eight changes at six times; maps are x, y and z together."""
    curve = memory_curve(TRACE)
    assert list(curve.times_s) == [0, 2, 4, 6, 8, 10]
    assert {kind: values for kind, values in curve.kinds.items() if any(values)} == {
        MAP: (10, 15, 50, 40, 0, 0),
        WEIGHTS: (30, 30, 30, 30, 30, 0),
    }
    assert set(curve.kinds) == set(BufferKind)
    assert curve.totals == (40, 45, 80, 70, 30, 0)
    # From 4 on x and z, 50 B, and W, 30 B. Of equal peaks, 40 B of W and x at first count, and not 40 B of z later.
    twice = traced([(0.0, 0, 0, 10), (0.0, 1, 1, 30), (1.0, 2, 0, -10), (1.0, 3, 1, -30), (2.0, 4, 3, 40)])
    assert peak_by_kind(TRACE) == ((MAP, 50), (WEIGHTS, 30))
    assert peak_by_kind(twice) == ((WEIGHTS, 30), (MAP, 10))


def test_the_maximum_counts_what_is_selected_in_the_order_of_allocations() -> None:
    """All: 80 from 4 on. Feature extraction leaves z out: 45 between 2 and 4. Maps alone: 50."""
    assert maximum_bytes(TRACE) == 80
    assert maximum_bytes(TRACE, features_only) == 45
    assert maximum_bytes(TRACE, lambda buffer: buffer.kind is MAP) == 50
    # At 4, beside W, z is allocated before y is released or after: 30 + 5 + 40 = 75 or 70, although no time passes.
    swapped = traced([(0.0, 0, 1, 30), (0.0, 1, 2, 5), (4.0, 2, 3, 40), (4.0, 3, 2, -5)])
    in_order = traced([(0.0, 0, 1, 30), (0.0, 1, 2, 5), (4.0, 2, 2, -5), (4.0, 3, 3, 40)])
    assert maximum_bytes(swapped) == 75
    assert maximum_bytes(in_order) == 70
    # Maximum of an empty trace.
    assert maximum_bytes(traced([])) == 0
    assert peak_by_kind(traced([])) == ()


def test_the_mean_is_weighted_by_time_until_the_iteration_ends() -> None:
    """2 s each of 40, 45, 80, 70 and 30 B: 530 / 10 = 53 B; 10 B from 1 on, in an iteration of 4 s: 30 / 4."""
    assert mean_bytes(TRACE) == 53
    assert mean_bytes(traced([(1.0, 0, 0, 10)], iteration_s=4.0)) == 7.5
    assert mean_bytes(traced([])) == 0


def kernel(layer: int, phase: Phase) -> Compute:
    return Compute(layer, phase, "only", ())


STEPS = traced(
    [(0.0, 0, 1, 30), (0.0, 1, 0, 10), (1.0, 3, 2, 5), (1.0, 5, 3, 40), (2.0, 8, 2, -5), (3.0, 11, 0, -10)],
    operations=(
        Allocate(1, 0, F),  # 30 B of features in use
        Allocate(0, 0, F),  # 40
        kernel(0, F),
        Allocate(2, 1, F),  # 45
        kernel(1, F),
        Allocate(3, 2, F),  # z is of the classifier: still 45
        kernel(2, F),
        kernel(1, W),
        Release(2),  # 40
        kernel(1, D),
        kernel(2, D),
        Release(0),  # 30
        kernel(0, W),
        kernel(0, U),
    ),
)


def test_mean_over_layer_steps() -> None:
    """Forward of conv1 40 B, of conv2 45; backward of conv2 45, the more of its two kernels, of conv1 30: 160 / 4.

    The kernels of fc are no step, nor is an update. Of all buffers 40 B of z count from forward of fc on: 240 / 4.
    """
    assert step_mean_bytes(STEPS, features_only) == 40
    assert step_mean_bytes(STEPS) == 60


def test_vdnn_all_follows_the_layers() -> None:
    """Maps of 10, 10, 2 and 2 B; W and dW are 144 B throughout, kernels take 1 s, copies 10 s.

    conv1 runs with its two maps, 164 B, until the offload ends at 10; then without the input map 154. fc adds its map
    of 2 B, 156 until 11, the loss another, 158 until 13: at 12 the map of fc is freed and its gradient of 2 B added. At
    13 the loss's map is freed, the input map prefetched, the gradient of conv1 added: 176 until the copy ends at 23.
    Backward of conv1 is left with the input map and the gradient: 164 until 24.
    """
    trace = toy_trace(VdnnAll(), 1)
    curve = memory_curve(trace)
    assert list(zip(curve.times_s, curve.totals, strict=True)) == [
        *((0, 164), (10, 156), (11, 158), (12, 158), (13, 176), (23, 164), (24, 0))
    ]
    assert mean_bytes(trace) == pytest.approx((10 * 164 + 156 + 2 * 158 + 10 * 176 + 164) / 24, rel=1e-12)
    assert step_mean_bytes(trace, features_only) == 140, "120 B of W and dW, and two maps of 10 B, forward and backward"
    assert maximum_bytes(trace, features_only) == 150, "in backward of fc both maps and the gradient of conv1 are there"
