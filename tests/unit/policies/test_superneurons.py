"""`superneurons` on small chains, every second and byte worked out by hand.

conv1, pool1, conv2, pool2, fc, loss: the input and all maps hold 10 B, but those of fc and the loss, 2 B. Kernels take
1 s, copies a second a byte. W are 2 x 30 + 6 elements, 132 B, and so are dW: 264 B. Six forwards; in backward fc and
conv2 have two kernels, the loss, the pools and conv1 one: 8. The maps of the pools are recomputed.
"""

from dataclasses import replace
from itertools import chain, count

import pytest

from tests.toy import TOY_LIMITS, ToyCosts, replay, toy_costs, toy_graph, toy_setting, toy_workload, with_fc
from tests.unit.policies.copies import recomputed, timed
from tests.unit.policies.test_residual import residual
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.elementwise import ElementwiseProduct
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.superneurons import SuperNeurons, backward_with_recomputation, largest_backward_bytes


def pools(*before: int) -> LayerGraph:
    """CONV layers, each with so many pools behind it."""
    numbers = count(1)
    layers = [[f"conv{at} conv", *(f"pool{next(numbers)} pool" for _ in range(n))] for at, n in enumerate(before, 1)]
    return toy_graph("; ".join(chain.from_iterable(layers)))


CHAIN = toy_workload(pools(1, 1))


def plan_of(workload: Workload = CHAIN, device_bytes: int = 1000, costs: ToyCosts | None = None) -> TrainingPlan:
    """A checked plan with kernels of 1 s."""
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    plan = SuperNeurons().plan(toy_setting(workload, costs or toy_costs(workload, {}), limits))
    check_plan(plan)
    return plan


def trace_of(device_bytes: int) -> IterationTrace:
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    return replay(plan_of(device_bytes=device_bytes), toy_costs(CHAIN, {}), limits=limits)


def test_with_ample_memory_pools_are_recomputed_and_nothing_is_copied() -> None:
    """Most is held in backward of pool2: input, conv1, conv2, pool2, and the gradients of pool2 and conv2, 60 B."""
    trace = trace_of(1000)

    assert recomputed(trace.plan) == [("pool2", 1), ("pool1", 1)]
    assert timed(trace) == []
    assert trace.iteration_s == 6 + 8 + 2
    assert maximum_bytes(trace) == 264 + 60


def test_the_least_recently_used_map_is_offloaded_and_prefetched_by_the_convolution_above() -> None:
    """In a byte less the input is offloaded before backward of pool2, at 10: 6 forwards, the loss, pool2, twice fc.

    Backward of pool2 runs from 20, pool1 is recomputed from 21, conv2 runs from 22, and with it the input is prefetched
    until 32. conv1, which reads it, would be ready at 25; it ends at 33. Most is now held in the weight gradient of fc:
    all four maps of 10 B, and the gradients of pool2 and fc.
    """
    trace = trace_of(264 + 59)
    assert timed(trace) == [("Offload", "map input", "pool2", 10, 20), ("Prefetch", "map input", "conv2", 22, 32)]
    assert trace.iteration_s == 33
    assert maximum_bytes(trace) == 264 + 52
    # In 40 B the input is offloaded for the output of fc, at 4, and conv1 for the gradient of pool2, at 18. pool1 is
    # recomputed from conv1 before backward of conv2 could have prefetched it. That runs with conv1, pool1, and the
    # gradients of conv2 and pool1, 40 B, so there is no room for the input either.
    trace = trace_of(264 + 40)
    assert timed(trace) == [
        ("Offload", "map input", "fc", 4, 14),
        ("Offload", "map conv1", "fc", 18, 28),
        ("Prefetch", "map conv1", "pool1", 31, 41),
        ("Prefetch", "map input", "conv1", 45, 55),
    ]
    assert trace.iteration_s == 56
    assert maximum_bytes(trace) == 264 + 40


@pytest.mark.parametrize(
    ("count", "again"),
    [
        # All four maps, 40 B, are not more than backward of a pool needs: X, Y, dX and dY.
        (4, [("pool1", 1), ("pool2", 1), ("pool3", 1), ("pool4", 1)]),
        # 50 B are: once for fc, and for each pool, which reads its X and Y.
        (
            5,
            [(f"pool{i}", 1) for i in range(1, 6)]
            + [(f"pool{i}", 2) for i in range(1, 6)]
            + [(f"pool{i}", 3) for i in range(1, 5)]
            + [(f"pool{i}", 4) for i in range(1, 4)]
            + [("pool1", 5), ("pool2", 5)]
            + [("pool1", 6)],
        ),
    ],
)
def test_a_segment_is_computed_once_unless_it_exceeds_a_working_set(count: int, again: list[tuple[str, int]]) -> None:
    workload = toy_workload(pools(count))

    assert largest_backward_bytes(workload) == 40
    assert recomputed(plan_of(workload)) == again


def test_what_is_recomputed_with_what() -> None:
    """Five pools behind conv1, 72 B of W and as much of dW: input, conv1, and at most X, Y, dX and dY of a pool."""
    workload = toy_workload(pools(5))
    trace = replay(plan_of(workload), toy_costs(workload, {}))
    assert maximum_bytes(trace) == 2 * 72 + 20 + 40
    # conv2 reads bn1 with its activation; a join ends a segment, and so bn2 is one of its own, which nothing reads.
    assert recomputed(plan_of(toy_workload(residual()))) == [("bn1", 1), ("bn1/relu", 1)]
    # A pool over conv1, one over conv2, and their product: one segment of 30 B, computed once, without conv2.
    net = GraphBuilder("meeting", MapShape(5))
    x = net.conv("conv1", 0, 5, 1, relu=False)
    a = net.pool("a", x, 1, stride=1)
    b = net.pool("b", net.conv("conv2", x, 5, 1, relu=False), 1, stride=1)
    y = net.layer("product", ElementwiseProduct(), a, b)
    workload = toy_workload(with_fc(net, y))
    assert recomputed(plan_of(workload)) == [("a", 1), ("b", 1), ("product", 1)]


def test_a_pool_under_an_activation_in_place_is_recomputed_for_its_own_backward() -> None:
    """Its Y was rewritten, and backward of the pool reads it; so its rewriter is recomputed as well.

    The first of five, that is six times, as above.
    """
    dropped = "; ".join(f"dropout{number} dropout; pool{number} pool" for number in range(2, 6))
    workload = toy_workload(toy_graph(f"conv1 conv; pool pool; {dropped}"))
    assert recomputed(plan_of(workload))[-2:] == [("pool", 6), ("dropout2", 6)]


@pytest.mark.parametrize(
    ("device_bytes", "chosen"),
    [
        # Forward of conv2 holds the input, conv1, pool1 and conv2: 40 B, and leaves 496 B; backward more.
        (264 + 40 + 30, "fast"),
        (264 + 40 + 29, "medium"),
        (264 + 40 + 9, "slow"),
    ],
)
def test_a_kernel_takes_the_fastest_algorithm_whose_workspace_is_left(device_bytes: int, chosen: str) -> None:
    """No map is offloaded for a workspace."""
    costs = dict(toy_costs(CHAIN, {}).kernels)
    costs[2, Phase.FORWARD] = tuple(
        KernelCost(name, seconds, workspace_bytes, Origin.ASSUMED)
        for name, seconds, workspace_bytes in (("fast", 1.0, 30), ("medium", 2.0, 10), ("slow", 3.0, 0))
    )
    plan = plan_of(device_bytes=device_bytes, costs=ToyCosts(costs))
    (kernel,) = [op for op in plan.operations if isinstance(op, Compute) and (op.layer, op.phase) == (2, Phase.FORWARD)]

    assert kernel.algorithm == chosen
    assert not [op for op in plan.operations if isinstance(op, Offload) and op.phase is Phase.FORWARD]


def test_a_network_that_cannot_fit_is_planned() -> None:
    """Where the working set exceeds the GPU, all but the operands of the kernel is offloaded."""
    plan = plan_of(device_bytes=264 + 10)
    first = next(op for op in plan.operations if isinstance(op, Offload))

    assert (plan.buffer_names[first.buffer], plan.layers[first.layer]) == ("map input", "pool1")
    assert isinstance(place_plan(plan, replace(TOY_LIMITS, device_bytes=264 + 10)), DoesNotFit)


def test_resnet_50_recomputes_normalizations_and_no_convolution() -> None:
    workload = Workload(build_network("resnet50"), 2)
    again = recomputed(plan_of(workload, device_bytes=2**40))
    kinds = {layer.name: layer.kind.value for layer in workload.graph.layers}

    assert {kinds[name] for name, _ in again} == {"BN", "ACTV", "POOL"}
    assert len(backward_with_recomputation(workload)) > len(workload.graph.layers)
