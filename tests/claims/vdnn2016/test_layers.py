from dataclasses import astuple, replace

from reports.vdnn2016.layer_figures import LayerTimes, layer_times
from tests.toy import replay, toy_chain, toy_costs, toy_setting, toy_trace, toy_workload, with_fc
from vdnnsim.claims.vdnn2016.layers import LayerBytes, backward_bytes, forward_bytes, largest_layer, training_bytes
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
CHAIN = toy_workload(toy_chain(2))
CHAIN_COSTS = toy_costs(CHAIN, {}, workspace_bytes={("conv2", F): 7, ("conv2", D): 8, ("conv2", W): 9})
CHAIN_KERNELS = choose_kernels(CHAIN, CHAIN_COSTS.table(CHAIN), Algorithms.PERFORMANCE_OPTIMAL)


def test_latency_and_reuse_distance_of_each_layer() -> None:
    """All kernels take 1 s but four; the update of the weights at the end belongs to neither direction.

        0-2 conv1 forward, 2-5 conv2, 5-6 fc, 6-7 loss; backward 7-8 loss, 8-9 and 9-10 fc, 10-14 data gradient of
        conv2, 14-19 its weight gradient, 19-20 conv1.

    From the end of its forward to the start of its backward, conv1 lies 19 - 2 = 17 s, conv2 10 - 5, fc 8 - 6.
    """
    workload = replace(CHAIN, optimizer=Optimizer.SGD)
    costs = toy_costs(workload, {("conv1", F): 2.0, ("conv2", F): 3.0, ("conv2", D): 4.0, ("conv2", W): 5.0})
    times = layer_times(replay(Base().plan(toy_setting(workload, costs)), costs))
    assert [astuple(each) for each in times] == [
        *((0, 2.0, 1.0, 17.0), (1, 3.0, 9.0, 5.0), (2, 1.0, 2.0, 2.0), (3, 1.0, 1.0, 0.0))
    ]


def test_a_stall_is_in_the_reuse_distance_and_not_in_the_latency() -> None:
    """conv1 takes 1 s and its offload of 10 B 10 s; fc 10-11, loss 11-12 and 12-13, fc backward 13-15.

    Backward of fc fetches the X of conv1, 10 s from 13 s on, and ends at 23 s: conv1 lies idle from 1 s to 23 s.
    """
    assert layer_times(toy_trace(VdnnAll(), 1))[0] == LayerTimes(0, 1.0, 1.0, 22.0)
    # Nothing is reused in inference.
    workload = replace(CHAIN, mode=Mode.INFERENCE)
    costs = toy_costs(workload, {})
    times = layer_times(replay(Base().plan(toy_setting(workload, costs)), costs))
    assert times[0] == LayerTimes(0, 1.0, 0.0, None)


def test_bytes_of_layers() -> None:
    """Maps hold 10 B, W (5 x 5 + 5) x 2 B = 60 B. Backward reads X, not Y, and uses the larger workspace."""
    conv2 = CHAIN.graph.layers[1]
    assert forward_bytes(CHAIN, CHAIN_KERNELS, conv2) == LayerBytes(x=10, y=10, weights=60, workspace=7)
    assert backward_bytes(CHAIN, CHAIN_KERNELS, conv2) == LayerBytes(
        x=10, dx=10, dy=10, weights=60, weight_gradient=60, workspace=9
    )
    need = training_bytes(CHAIN, CHAIN_KERNELS, conv2)
    assert need == LayerBytes(x=10, y=10, dx=10, dy=10, weights=60, weight_gradient=60, workspace=9)
    assert need.total == 169
    # The loss has the 2 B of fc as X and of its own as Y, of which backward reads Y alone.
    first, loss = CHAIN.graph.layers[0], CHAIN.graph.layers[-1]
    assert backward_bytes(CHAIN, CHAIN_KERNELS, first) == LayerBytes(x=10, dy=10, weights=60, weight_gradient=60)
    assert backward_bytes(CHAIN, CHAIN_KERNELS, loss) == LayerBytes(y=2, dx=2)
    # conv2 needs 169 B, conv1 without dX and workspace 150 B.
    layer, need = largest_layer(CHAIN, CHAIN_KERNELS)
    assert (layer.name, need.total) == ("conv2", 169)


def test_a_normalization_needs_its_statistics_in_both_directions() -> None:
    """5 channels in float16: maps of 10 B, gamma and beta of 20 B, mean and inverse deviation in float32 of 40 B."""
    net = GraphBuilder("norm", MapShape(5))
    y = net.batch_norm("norm", net.conv("conv", 0, 5, 1, relu=False))
    workload = toy_workload(with_fc(net, y))
    kernels = choose_kernels(workload, toy_costs(workload, {}).table(workload), Algorithms.PERFORMANCE_OPTIMAL)
    norm = workload.graph.layers[1]
    assert forward_bytes(workload, kernels, norm) == LayerBytes(x=10, y=10, weights=20, statistics=40)
    assert backward_bytes(workload, kernels, norm) == LayerBytes(
        x=10, dx=10, dy=10, weights=20, weight_gradient=20, statistics=40
    )


def test_a_layer_in_place_has_one_map_and_pooling_reads_both() -> None:
    """Images of 2 x 2 in float16 hold 8 B; after pooling each map holds 2 B.

    Nothing below the first pooling wants a gradient and it has no weights, so that its backward has no kernel.
    """
    net = GraphBuilder("pools", MapShape(1, 2, 2))
    y = net.conv("conv", net.pool("first", 0, 2, stride=2), 1, 1)
    y = net.pool("second", y, 1, stride=1)
    workload = toy_workload(with_fc(net, y))
    kernels = choose_kernels(workload, toy_costs(workload, {}).table(workload), Algorithms.PERFORMANCE_OPTIMAL)
    first, _, relu, second = workload.graph.layers[:4]
    assert forward_bytes(workload, kernels, first) == LayerBytes(x=8, y=2)
    assert backward_bytes(workload, kernels, first) == LayerBytes()
    assert forward_bytes(workload, kernels, relu) == LayerBytes(y=2)
    assert backward_bytes(workload, kernels, relu) == LayerBytes(y=2, dy=2)
    assert backward_bytes(workload, kernels, second) == LayerBytes(x=2, y=2, dx=2, dy=2)
