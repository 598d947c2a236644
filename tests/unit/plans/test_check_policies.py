"""The operations of a plan of vdnn_all without which the check still accepts it."""

from tests.toy import toy_chain, toy_costs, toy_setting, toy_workload, with_fc
from tests.unit.plans.hand_written import with_operations
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import describe
from vdnnsim.policies.vdnn import VdnnAll


def forked() -> LayerGraph:
    """A CONV layer with its rectifier, a pool forked to two CONV layers and joined again, an FC layer; maps of 10 B."""
    net = GraphBuilder("fork", MapShape(5))
    pool = net.pool("pool1", net.conv("conv1", 0, 5, 1), 1, stride=1)
    join = net.concat("join", (net.conv("left", pool, 5, 1), net.conv("right", pool, 5, 1)))
    return with_fc(net, join)


def harmless_deletions(graph: LayerGraph) -> list[str]:
    """Describe the operations that can be deleted from the plan of vdnn_all without a refusal."""
    workload = toy_workload(graph)
    plan = VdnnAll().plan(toy_setting(workload, toy_costs(workload, {})))
    check_plan(plan)
    harmless = []
    for deleted, operation in enumerate(plan.operations):
        try:
            check_plan(with_operations(plan, [op for i, op in enumerate(plan.operations) if i != deleted]))
        except PlanError:
            continue
        harmless.append(describe(operation, plan.buffer_names, plan.layers))
    return harmless


def test_all_operations_of_a_chain_under_vdnn_all_are_needed_but_seven() -> None:
    """Every RecordEvent, HostSynchronize, Prefetch, Offload, Allocate and Release is needed, and most waits are.

    Three waits are not, all in forward. Event 0 holds the offload of the input batch, which no kernel writes. Events 1
    and 2 hold the offloads of conv1's and conv2's maps until their kernels are done; but the layer of each kernel also
    offloaded its own X and so ended with a synchronization, after which the host issued the copy.

    Four kernels are not: they write dW, which nobody reads without an update.
    """
    assert harmless_deletions(toy_chain(3)) == [
        "wait for event 0 on the memory stream",
        "wait for event 1 on the memory stream",
        "wait for event 2 on the memory stream",
        "backward weights of fc (only)",
        "backward weights of conv3 (only)",
        "backward weights of conv2 (only)",
        "backward weights of conv1 (only)",
    ]


def test_a_fork_under_vdnn_all_needs_the_waits_that_no_synchronization_covers() -> None:
    """Needed is event 1: it holds the offload of conv1's map, which the rectifier rewrote after the synchronization.

    So is event 3, for the maps of left and right, which a rectifier rewrote likewise. Harmless are event 0, for the
    input batch is given, and event 2: pool1, which wrote the map that right offloads, ended with a synchronization.

    Of the kernels, a rectifier in place leaves map and gradient written without it; left adds to a gradient that right
    has begun, so that something is written without left; and nobody reads dW.
    """
    assert harmless_deletions(forked()) == [
        "wait for event 0 on the memory stream",
        "forward of conv1/relu (only)",
        "forward of left/relu (only)",
        "wait for event 2 on the memory stream",
        "forward of right/relu (only)",
        "backward weights of fc (only)",
        "backward data of right/relu (only)",
        "backward weights of right (only)",
        "backward data of left/relu (only)",
        "backward data of left (only)",
        "backward weights of left (only)",
        "backward data of conv1/relu (only)",
        "backward weights of conv1 (only)",
    ]
