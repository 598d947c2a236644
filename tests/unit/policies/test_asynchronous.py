"""Iterations of Kim et al. (2018) on a chain, every time worked out by hand.

conv1 conv2 conv3 fc loss: maps of 10 B, but those of fc and the loss of 2 B; kernels take 1 s, copies 5 s, at 2 B/s.
W and dW take 2 x 192 = 384 B. Steps of backward: loss, fc, conv3, conv2, conv1. Without any stall forward lasts until
5, backward of the loss until 6, of fc until 8, conv3 10, conv2 12, and conv1, which has no data gradient, 13.

The map of conv1 is offloaded with its last reader, forward of conv2, from 1 to 6; backward of conv2 reads it first.
"""

from dataclasses import replace
from functools import partial

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, replay, toy_chain, toy_costs, toy_graph, toy_workload
from tests.unit.policies.copies import timed
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Allocate, Compute, Release, Stream
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.schemes import Pool
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.iterations.asynchronous import asynchronous_schedule, backward_steps, steps_before_backward_use

SERVER = replace(TOY_SERVER, link=replace(TOY_SERVER.link, h2d_bytes_per_s=2.0, d2h_bytes_per_s=2.0))
CHAIN = toy_workload(toy_chain(3))
COSTS = toy_costs(CHAIN, {})
CONV1, CONV2 = 1, 2


def plan_of(
    triggers: dict[int, int | None], *, workload: Workload = CHAIN, costs: CostModel = COSTS, capacity_bytes: int = 1000
) -> TrainingPlan:
    kernels = choose_kernels(workload, costs.table(workload), Algorithms.PERFORMANCE_OPTIMAL)
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes)
    schedule, scheme = asynchronous_schedule(workload, triggers), partial(Pool, limits=limits)
    plan = lower(schedule, workload, kernels, scheme, label="hand", algorithms="p")
    check_plan(plan)
    return plan


def moved(trace: IterationTrace) -> list[tuple[str, float, float]]:
    """(buffer, start, end) of all copies."""
    return [(name, start_s, end_s) for _, name, _, start_s, end_s in timed(trace)]


def started(trace: IterationTrace, layer: str, phase: Phase) -> float:
    (found,) = [
        span.start_s
        for span in trace.spans_on(Stream.COMPUTE)
        if isinstance(op := trace.plan.operations[span.operation], Compute)
        and (trace.plan.layers[op.layer], op.phase) == (layer, phase)
    ]
    return found


@pytest.mark.parametrize(
    ("lead", "fetched_s", "iteration_s"),
    [
        # With conv3, at 8: it arrives at 13, 3 s too late.
        (1, 8.0, 16.0),
        # With fc, at 6: it arrives at 11, 1 s too late.
        (2, 6.0, 14.0),
        # With the loss, at 5, while the map is still being offloaded: the compute stream waits until 6, and all is 1 s
        # later; the map is there at 11, when it is read.
        (3, 6.0, 14.0),
        # There is nothing earlier in backward.
        (4, 6.0, 14.0),
        (99, 6.0, 14.0),
    ],
)
def test_a_map_is_prefetched_at_its_trigger(lead: int, fetched_s: float, iteration_s: float) -> None:
    trace = replay(plan_of({CONV1: lead}), COSTS, server=SERVER)

    assert moved(trace) == [("map conv1", 1, 6), ("map conv1", fetched_s, fetched_s + 5)]
    assert trace.iteration_s == iteration_s


def test_a_map_without_a_trigger_follows_its_offload_and_frees_nothing() -> None:
    """Fig. 5: back from 6 to 11, which backward of conv2 awaits from 10 on. As much is in memory as without swap.

    That is most in backward of fc: input, conv1 to conv3, the gradient of conv3, 50 B, and that of fc, 2 B: 436 B.
    """
    plan, without_swap = plan_of({CONV1: None}), plan_of({})
    trace = replay(plan, COSTS, server=SERVER)

    assert moved(trace) == [("map conv1", 1, 6), ("map conv1", 6, 11)]
    assert trace.iteration_s == 14
    assert trace.pool_bytes == replay(without_swap, COSTS).pool_bytes == 436
    assert replay(without_swap, COSTS, server=SERVER).iteration_s == 13, "no stream waits for the other"
    assert sum(isinstance(op, Allocate) and op.buffer == CONV1 for op in plan.operations) == 1


# 384 B, and in backward of conv3: input, conv1, conv2 and the gradients of conv2 and conv3, 50 B. With an earlier
# trigger in backward of fc: input, conv1 to conv3, the gradient of conv3, 50 B, and that of fc, 2 B.
@pytest.mark.parametrize(("lead", "needed_bytes"), [(1, 434), (2, 436), (3, 436)])
def test_an_earlier_prefetch_needs_more_memory(lead: int, needed_bytes: int) -> None:
    fits, overflows = (
        place_plan(plan_of({CONV1: lead}, capacity_bytes=capacity), replace(TOY_LIMITS, device_bytes=capacity))
        for capacity in (needed_bytes, needed_bytes - 1)
    )

    assert not isinstance(fits, DoesNotFit)
    assert isinstance(overflows, DoesNotFit)


@pytest.mark.parametrize(
    ("capacity_bytes", "conv4_s", "released"),
    [
        # Weights of four CONV layers and fc, 504 B, input and conv1 to conv4, 50 B, and the workspace of conv4, 10 B.
        (564, 3.0, []),
        # One map is released: conv1's, which was offloaded first, until 6.
        (563, 6.0, ["map conv1"]),
        (554, 6.0, ["map conv1"]),
        # conv1's for the map of conv4, then conv2's, offloaded until 11, for its workspace.
        (553, 11.0, ["map conv1", "map conv2"]),
    ],
)
def test_without_room_the_oldest_offload_is_released(capacity_bytes: int, conv4_s: float, released: list[str]) -> None:
    """Two maps are offloaded, from 1 to 6 and from 6 to 11; forward of conv4 would start at 3."""
    workload = toy_workload(toy_chain(4))
    costs = toy_costs(workload, {}, workspace_bytes={("conv4", Phase.FORWARD): 10})
    plan = plan_of({CONV1: 1, CONV2: 1}, workload=workload, costs=costs, capacity_bytes=capacity_bytes)
    conv4 = next(
        position
        for position, op in enumerate(plan.operations)
        if isinstance(op, Compute) and plan.layers[op.layer] == "conv4"
    )

    # Replayed with room enough, for backward may need more than this forward.
    trace = replay(plan, costs, server=SERVER)

    assert started(trace, "conv4", Phase.FORWARD) == conv4_s
    assert [plan.buffer_names[op.buffer] for op in plan.operations[:conv4] if isinstance(op, Release)] == released


def test_maps_with_one_trigger_are_prefetched_in_the_order_of_use() -> None:
    """Both at the beginning of backward: that of conv2, which backward of conv3 reads, before that of conv1."""
    trace = replay(plan_of({CONV1: 9, CONV2: 9}), COSTS, server=SERVER)
    assert [name for name, _, _ in moved(trace)] == ["map conv1", "map conv2", "map conv2", "map conv1"]
    # Joining reads nothing in backward, so a branch's map is first read by its own rectifier, which is no step.
    # Steps: loss, fc, join, right, left. Before the rectifier of `left` come four, before that of `right` three. One
    # step ahead `left` comes back with the step of `right`, and its rectifier awaits it.
    workload = toy_workload(toy_graph("left conv relu; right conv input relu; join concat left right"))
    left, right = 1, 2
    costs = toy_costs(workload, {})
    names = [layer.name for layer in workload.graph.layers]
    trace = replay(plan_of({left: 1}, workload=workload, costs=costs), costs, server=SERVER)
    assert [names[index] for index in backward_steps(workload)] == ["loss", "fc", "join", "right", "left"]
    assert [steps_before_backward_use(workload, workload.graph.maps[each]) for each in (left, right)] == [4, 3]
    back_s = moved(trace)[1]
    assert back_s[1] == started(trace, "right", Phase.BACKWARD_WEIGHTS)
    assert started(trace, "left/relu", Phase.BACKWARD_DATA) == back_s[2]
