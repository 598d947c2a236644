from dataclasses import replace

from reports.vdnn2016.traffic import KernelTraffic, convolution_traffic
from tests.toy import TOY_SERVER, ToyCosts, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
CHAIN = toy_workload(toy_chain(2))
CONV2_FORWARD = 1, F


def moving_80_bytes(costs: ToyCosts) -> ToyCosts:
    """The kernels of a table, each of which moves 80 B through DRAM."""
    return ToyCosts({at: tuple(replace(one, dram_bytes=80) for one in row) for at, row in costs.kernels.items()})


def test_a_kernel_moves_what_its_cost_says() -> None:
    """96 B of conv2 forward are 24 B/s in its 4 s, on a DRAM of 1 B/s; the 8 B of its workspace play no part."""
    table = toy_costs(CHAIN, {("conv2", F): 4.0}, workspace_bytes={("conv2", F): 8})
    kernels = dict(moving_80_bytes(table).kernels)
    kernels[CONV2_FORWARD] = tuple(replace(one, dram_bytes=96) for one in kernels[CONV2_FORWARD])
    costs = ToyCosts(kernels)
    trace = replay(Base().plan(toy_setting(CHAIN, costs)), costs)
    rows = convolution_traffic(trace, costs, TOY_SERVER)
    assert [(row.layer, row.phase, row.kernel_bytes) for row in rows] == [
        *((0, F, 80), (1, F, 96), (1, D, 80), (1, W, 80), (0, W, 80))
    ]
    assert rows[1] == KernelTraffic(1, F, "only", 4.0, 96, 0.0, 1.0)
    assert (rows[1].kernel_bytes_per_s, rows[1].kernel_utilization) == (24.0, 24.0)
    assert (rows[1].bytes_per_s, rows[1].utilization, rows[1].copy_slowdown) == (24.0, 24.0, 0.0)


def test_copies_count_by_their_share_of_the_kernel() -> None:
    """Every X of 10 B is offloaded at 1 B/s from the start of its layer; DRAM moves 2 B/s.

    conv1 takes 4 s of the 10 s that its X needs: 4 B, 1 B/s, half of the peak. conv2 takes 20 s: all 10 B,
    half a byte per second, a quarter of the peak. conv1 itself moves 80 B: with its copy 84 B, 21 B/s.

    Backward: fc (1 s a kernel) fetches conv2's X, 10 s, so that conv2 begins after it and meanwhile fetches conv1's X
    in its data gradient of 5 s and the first 5 s of its weight gradient of 10 s. conv1 has nothing left to fetch.
    """
    seconds = {("conv1", F): 4.0, ("conv2", F): 20.0, ("conv2", D): 5.0, ("conv2", W): 10.0}
    costs = moving_80_bytes(toy_costs(CHAIN, seconds))
    trace = replay(VdnnAll().plan(toy_setting(CHAIN, costs)), costs)
    server = replace(TOY_SERVER, gpu=replace(TOY_SERVER.gpu, dram_bytes_per_s=2.0))
    rows = convolution_traffic(trace, costs, server)
    assert [(row.layer, row.phase, row.copy_bytes) for row in rows] == [
        *((0, F, 4.0), (1, F, 10.0), (1, D, 5.0), (1, W, 5.0), (0, W, 0.0))
    ]
    assert [row.copy_slowdown for row in rows] == [0.5, 0.25, 0.5, 0.25, 0.0]
    assert (rows[0].bytes_per_s, rows[0].utilization) == (21.0, 10.5)
