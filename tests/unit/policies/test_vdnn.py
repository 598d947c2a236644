from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, replay, replayed, toy_chain, toy_costs, toy_graph, toy_setting, toy_workload
from tests.unit.policies.copies import issued
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.operations import Compute, HostSynchronize, Offload, Prefetch, ReleaseExtent
from vdnnsim.plans.placement import place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.iterations.layerwise import PrefetchSearch
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, maps_of_all, maps_of_conv

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS


POOLED_CHAIN = toy_graph("conv1 conv relu; pool1 pool; conv2 conv relu; pool2 pool")
"""The pattern of AlexNet and VGG."""


def plan_of(policy: Policy, graph: LayerGraph) -> TrainingPlan:
    """Plan with free workspaces and kernels of 1 s; replayed, so that the plan is checked as well."""
    return replayed(policy, toy_workload(graph)).plan


@pytest.mark.parametrize(
    ("policy", "offloads", "prefetches"),
    [
        # Offloaded is every X of feature extraction but the classifier's. In backward the closest offloaded layer below
        # fc is pool2, whose X is conv2's Y. pool2: below lies the in-place activation, which offloads nothing, then
        # conv2, whose X is pool1's Y. conv2: pool1, whose X is conv1's Y. pool1: conv1, whose X is the input.
        (
            VdnnAll(),
            [("map input", "conv1"), ("map conv1", "pool1"), ("map pool1", "conv2"), ("map conv2", "pool2")],
            [("map conv2", "fc"), ("map pool1", "pool2"), ("map conv1", "conv2"), ("map input", "pool1")],
        ),
        # The X of CONV layers alone. fc: pool2 has nothing away; conv2 has: pool1's Y. pool2: conv2's is back already,
        # and the search ends at a CONV layer although conv1's X is away. conv2: pool1 has nothing away, conv1 has.
        (VdnnConv(), [("map input", "conv1"), ("map pool1", "conv2")], [("map pool1", "fc"), ("map input", "conv2")]),
    ],
    ids=["all", "conv"],
)
def test_maps_are_offloaded_and_the_search_of_fig_10_prefetches_them(
    policy: Policy, offloads: list[tuple[str, str]], prefetches: list[tuple[str, str]]
) -> None:
    plan = plan_of(policy, POOLED_CHAIN)
    assert issued(plan, Offload) == offloads
    assert issued(plan, Prefetch) == prefetches


def test_a_map_with_a_conv_reader_is_offloaded_by_its_last_reader() -> None:
    """conv1's Y is read by a POOL and then by a CONV: vdnn_conv offloads it with the CONV."""
    graph = toy_graph("conv1 conv relu; pool pool; conv2 conv relu conv1; join concat pool conv2")
    assert issued(plan_of(VdnnConv(), graph), Offload) == [("map input", "conv1"), ("map conv1", "conv2")]


def test_without_pool_some_maps_are_fetched_on_demand() -> None:
    """pool2 and pool1 launch nothing: pool1's Y is needed by pool1 and conv2, the input by conv1, and are fetched then.

    fc launches conv2's Y for pool2. conv2 needs its X, pool1's Y, and fetches it; then it launches conv1's Y, the X
    of pool1. conv1 fetches the input.
    """
    plan = plan_of(VdnnAll(prefetch_search=PrefetchSearch.FIG10_WITHOUT_POOL), POOLED_CHAIN)
    demanded = [each for each in plan.operations if isinstance(each, Prefetch)]

    assert [(*copy, each.on_demand) for copy, each in zip(issued(plan, Prefetch), demanded, strict=True)] == [
        ("map conv2", "fc", False),
        ("map pool1", "conv2", True),
        ("map conv1", "conv2", False),
        ("map input", "conv1", True),
    ]


def test_synchronizations_releases_and_workspaces() -> None:
    """One conv and an fc: conv's forward offloads the input, fc's backward prefetches it: two synchronizations."""
    plan = plan_of(VdnnAll(), toy_chain(1))
    assert sum(isinstance(op, HostSynchronize) for op in plan.operations) == 2
    # conv1 conv2 fc loss in float16, all maps 10 B but fc's and the loss's 2 B; W and dW take 132 B each. The most is
    # in use in backward of conv2: its X (conv1's Y, back from the host), the input, which conv2's backward prefetches
    # for conv1, dY and dX: 40 B. conv2's Y has gone with fc's backward, which read it last.
    workload = toy_workload(toy_chain(2))
    trace = replayed(VdnnAll(), workload)
    assert trace.pool_bytes == 264 + 40
    # conv2's weight gradient wants 7 B: allocated on its behalf and gone before the next kernel.
    workload = toy_workload(toy_chain(2))
    costs = toy_costs(workload, {}, workspace_bytes={("conv2", W): 7})
    plan = VdnnAll().plan(toy_setting(workload, costs))
    workspaces = [i for i, buffer in enumerate(plan.buffers) if buffer.kind is BufferKind.WORKSPACE]
    assert [plan.buffers[i].nbytes for i in workspaces] == [7]
    kernels = [op for op in plan.operations if isinstance(op, Compute) and workspaces[0] in op.writes]
    assert [(plan.layers[op.layer], op.phase) for op in kernels] == [("conv2", W)]


def test_maps_are_offloaded_in_chunks() -> None:
    """10 B are offloaded as 4, 4 and 2, at 1 B/s beside kernels of 1 s; the memory of the first two is freed early.

    The input is offloaded with conv1 from 0 to 10, conv1's Y with conv2 from 10 to 20: as fast and as small as whole.
    """
    workload = toy_workload(toy_chain(2))
    costs = toy_costs(workload, {})
    setting = toy_setting(workload, costs)
    whole = replay(VdnnAll().plan(setting), costs)
    chunked = replay(VdnnAll(chunk="4 B").plan(setting), costs)
    assert chunked.plan.policy == "vdnn_all(p, chunk=4 B)"
    moved = [chunked.plan.copied_bytes(each) for each in chunked.plan.operations if isinstance(each, Offload)]
    assert moved == [4, 4, 2, 4, 4, 2]
    released = [(op.buffer, op.extent) for op in chunked.plan.operations if isinstance(op, ReleaseExtent)]
    assert released == [(0, range(4)), (0, range(4, 8)), (1, range(4)), (1, range(4, 8))]
    operations = chunked.plan.operations
    times_s = [each.time_s for each in chunked.memory if isinstance(operations[each.operation], ReleaseExtent)]
    assert times_s == [4, 8, 14, 18]
    assert (chunked.iteration_s, chunked.pool_bytes) == (whole.iteration_s, whole.pool_bytes)
    assert chunked.host_bytes == whole.host_bytes == 20
    # A memory model without extents refuses chunks.
    plan = VdnnAll(chunk="4 B").plan(toy_setting(workload, toy_costs(workload, {})))
    with pytest.raises(PolicyError, match=r"^vdnn_all\(p, chunk=4 B\): memory_model: found 'best_fit', which gives "):
        place_plan(plan, replace(TOY_LIMITS, model=MemoryModel.BEST_FIT))


@pytest.mark.parametrize(("network", "convolutions", "pools"), [("vgg16", 16, 5), ("alexnet", 5, 3)])
def test_maps_of_the_papers_networks(network: str, convolutions: int, pools: int) -> None:
    workload = Workload(build_network(network), 1)

    assert len(maps_of_all(workload)) == convolutions + pools
    assert len(maps_of_conv(workload)) == convolutions
