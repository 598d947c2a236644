"""Rings of three toy GPUs whose links are not equal, with gradients that do not divide by three; times in us.

GPU 0 and 1 have a peer link of 20 B/us and 1 us; the other ways turn at the switch, over two links of 8 B/us and 2 us
each. So no ring of peer links joins all three, and the ring follows their numbers: over the peer link, and twice over
the tree. The weight gradient of fc has 4 + 1 values in float16, 10 B, and is there at 6 s; that of conv1 has 5 x 4 + 4,
48 B, and comes at 7 s. DRAM moves 120 B/us.
"""

from dataclasses import replace

import pytest

from tests.toy import toy_costs, toy_graph, toy_setting, toy_workload
from tests.two_gpus import SERVER, TREE, placed
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.topology import Hop, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Stream
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.policies.base import Base

US = 1e-6


def link(name: str, bytes_per_us: float, latency_us: float) -> TopologyLink:
    rate = bytes_per_us / US
    return TopologyLink(name, rate, rate, latency_us * US, Sharing.SPLIT_DUPLEX)


THREE = Topology(
    (*TREE[:3], *(Node(f"gpu{gpu}", NodeKind.GPU, "switch", link(f"x{gpu}", 8.0, 2.0)) for gpu in range(3))),
    (PeerLink("gpu0", "gpu1", link("nvlink", 20.0, 1.0)),),
)


def replay_three(aggregation: Aggregation) -> ServerTrace:
    workload = toy_workload(toy_graph("conv1 conv 4"))
    costs = toy_costs(workload, {})
    plan = aggregate_gradients(Base().plan(toy_setting(workload, costs)), aggregation)
    server = replace(SERVER, gpu=replace(SERVER.gpu, dram_bytes_per_s=120 / US), topology=THREE)
    return simulate_server([placed(plan)] * 3, costs, server, PinnedMemory.ARENA)


def test_each_gpu_sends_its_part_four_times() -> None:
    """10 B are parts of 4 B, the last of 2; 16 B over each link take 2 us on the slowest. 48 B: parts of 16 B, 8 us.

    Three steps wait 4 us each, the slowest way's latency, and the first as well: 16 us. Adding up reads two parts and
    writes one in two steps, 6 parts in all: 0.2 and 0.8 us.
    """
    trace = replay_three(Aggregation.RING)

    for gpu in trace.gpus:
        first, second = gpu.spans_on(Stream.COMMUNICATION)
        assert (first.start_s, second.start_s) == (6.0, 7.0)
        assert (first.end_s - 6.0) / US == pytest.approx(16.0 + 2.0 + 0.2, abs=1e-6)
        assert (second.end_s - 7.0) / US == pytest.approx(16.0 + 8.0 + 0.8, abs=1e-6)


def test_a_bucket_goes_at_the_pace_of_the_slowest_link() -> None:
    """Of 58 B each link carries 4/3, 77.3 B, under LL with as many of flags: 7.73 us on the peer link, 19.33 on others.

    The ring crosses the tree, so a step is one over PCIe: LL takes 6.6 + 4 x 1.0 us and 19.33 us, 29.93 in all, Simple
    8.4 + 4 x 5.7 and 9.67, 40.87. Into the bucket and back 2 x 58 B of DRAM take 0.967 us each.
    """
    trace = replay_three(Aggregation.DDP)

    for gpu in trace.gpus:
        (span,) = gpu.spans_on(Stream.COMMUNICATION)
        assert span.start_s == 7.0
        assert (span.end_s - 7.0) / US == pytest.approx(10.6 + 58 / 3 + 2 * 116 / 120, abs=1e-6)
    for hop, lasted_us in {
        Hop("nvlink", Way.DOWN): 23.2 / 3,
        Hop("x2", Way.DOWN): 58 / 3,
        Hop("x2", Way.UP): 58 / 3,
    }.items():
        begin_s, end_s = (load.time_s for load in trace.loads if load.hop == hop)
        assert (end_s - begin_s) / US == pytest.approx(lasted_us, abs=1e-6)
