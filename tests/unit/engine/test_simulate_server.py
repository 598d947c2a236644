"""Exchanges of two toy GPUs behind one switch (`tests.two_gpus`), and of three in a ring.

The chain of one CONV and one FC layer runs 7 kernels of 1 s. The weight gradient of fc (12 B) is there at 6, that of
conv1 (60 B) at 7; the exchange of conv1 waits for that of fc, for both run on the communication stream.

In rings of three the links are not equal, and gradients do not divide by three; times in us. GPU 0 and 1 have a peer
link of 20 B/us and 1 us; the other ways turn at the switch, over two links of 8 B/us and 2 us each. So no ring of peer
links joins all three, and the ring follows their numbers: over the peer link, and twice over the tree. The weight
gradient of fc has 4 + 1 values in float16, 10 B, and is there at 6 s; that of conv1 has 5 x 4 + 4, 48 B, and comes at 7
s. DRAM moves 120 B/us.
"""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, placement_of, toy_costs, toy_graph, toy_setting, toy_workload, with_fc
from tests.two_gpus import BASE, COSTS, PEERED, SERVER, TREE, WORKLOAD, link, placed, replay_two
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.engine.simulate import simulate, simulate_server
from vdnnsim.errors import SimulationDeadlock
from vdnnsim.hardware.topology import Hop, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Stream
from vdnnsim.plans.trace import ServerTrace, StallCause
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll


@pytest.mark.parametrize(
    ("aggregation", "fc_end_s", "conv_end_s"),
    [(Aggregation.CPU, 11.8, 40.8), (Aggregation.GPU, 10.4, 32.4), (Aggregation.RING, 8.2, 19.2)],
)
def test_gradients_are_exchanged_behind_backward(aggregation: Aggregation, fc_end_s: float, conv_end_s: float) -> None:
    """The exchange of fc begins at 6, that of conv1 when it ends.

    cpu: both copy up over the uplink, 5 B/s each: 12 B take 2.4 s; adding 3 x 12 B at 36 B/s takes 1 s; back 2.4 s,
    until 11.8. conv1: 12 + 5 + 12 s, until 40.8.
    gpu: 12 B over the peer link take 1.2 s, adding 3 x 12 B at 18 B/s 2 s, back 1.2 s, until 10.4. conv1: 6 + 10 + 6 s.
    ring: two steps of one half, 0.6 s each, with adding 3 x 6 B at 18 B/s between, 1 s, until 8.2. conv1: 3 + 5 + 3 s.
    """
    trace = replay_two(aggregate_gradients(BASE, aggregation))

    for gpu in trace.gpus:
        assert [span.end_s for span in gpu.spans_on(Stream.COMMUNICATION)] == pytest.approx([fc_end_s, conv_end_s])
    assert trace.iteration_s == pytest.approx(conv_end_s)


def test_a_bucket_is_exchanged_when_its_last_gradient_is_there() -> None:
    """Both gradients are one bucket of 72 B, complete at 7: 36 B are sent twice over the peer link of 10 B/s, 7.2 s.

    Simple's 8.4 + 2 x 3.4 us beat LL, which would move 5 B/s. To read and write 72 B at 18 B/s takes 8 s, before and
    after. All of it is exposed.
    """
    trace = replay_two(aggregate_gradients(BASE, Aggregation.DDP))

    for gpu in trace.gpus:
        (span,) = gpu.spans_on(Stream.COMMUNICATION)
        assert (span.start_s, span.end_s) == pytest.approx((7.0, 7.0 + 8.0 + 7.2 + 15.2e-6 + 8.0), abs=1e-9)
    assert trace.iteration_s == pytest.approx(30.2000152, abs=1e-9)
    moved = [load.bytes_per_s for load in trace.loads if load.hop == Hop("nvlink", Way.DOWN)]
    assert moved == [10.0, 0.0]


def test_a_bucket_over_the_host_shares_its_links() -> None:
    """Without a peer link the ring turns at the switch, and each GPU's link carries 10 B/s each way: as fast.

    Over PCIe a step of Simple takes 5.7 us. Through a socket whose memory carries 10 B/s in all instead of the switch,
    each GPU has 5 B/s: 14.4 s.
    """
    two_sockets = (
        *(
            replace(node, link=link("dram", 10.0, Sharing.SHARED)) if node.name == "socket" else node
            for node in TREE[:4]
        ),
        Node("socket1", NodeKind.SOCKET, "memory", link("dram1")),
        replace(TREE[4], parent="socket1"),
    )
    plans = [placed(aggregate_gradients(BASE, Aggregation.DDP))] * 2
    ends = [
        simulate_server(plans, COSTS, replace(SERVER, topology=Topology(nodes)), PinnedMemory.ARENA).iteration_s
        for nodes in (TREE, two_sockets)
    ]

    assert ends == pytest.approx([7.0 + 16.0 + 7.2 + 19.8e-6, 7.0 + 16.0 + 14.4 + 19.8e-6], abs=1e-9)


def test_a_full_bucket_is_exchanged_beside_backward() -> None:
    """FC has 2^20 + 2^19 weights in float16, 3 MiB, which fill the first bucket: it goes at 6, that of conv1 later.

    At 1 MiB/s of the link and 3 MiB/s of DRAM the first takes 2 + 3 + 2 s, until 13; the last kernel ends at 7. The
    second, conv1's 60 B, begins at 13. Were they one bucket, it would begin at 7 and end a second later than at 13.
    """
    net = GraphBuilder("wide", MapShape(5, 1, 1))
    y = net.conv("conv1", 0, 5, 1, relu=False)
    workload = toy_workload(with_fc(net, y, 2**18))
    costs = toy_costs(workload, {})
    mib = 2.0**20
    fast = Topology(TREE, (PeerLink("gpu0", "gpu1", link("nvlink", mib)),))
    server = replace(SERVER, gpu=replace(SERVER.gpu, dram_bytes_per_s=3 * mib), topology=fast)
    plan = aggregate_gradients(Base().plan(toy_setting(workload, costs)), Aggregation.DDP)
    placement = placement_of(plan, replace(TOY_LIMITS, device_bytes=2**30))
    first, second = (
        simulate_server([(plan, placement)] * 2, costs, server, PinnedMemory.ARENA)
        .gpus[0]
        .spans_on(Stream.COMMUNICATION)
    )

    assert (first.start_s, first.end_s) == pytest.approx((6.0, 13.0), abs=1e-3)
    assert second.start_s == first.end_s
    assert second.end_s == pytest.approx(first.end_s, abs=1e-3)


def test_an_exchange_begins_when_the_host_has_issued_it() -> None:
    """At 1 s each the host is slower than the GPUs: the sixth kernel, which writes dW of fc, is issued at 6.

    Event, wait and exchange follow at 7, 8 and 9, and the next event at 10. The last kernel is issued at 11, and its
    exchange at 14. They take 2.2 and 11 s around the ring.
    """
    server = replace(SERVER, host=replace(SERVER.host, issue_s=1.0))
    plans = [placed(aggregate_gradients(BASE, Aggregation.RING))] * 2
    spans = simulate_server(plans, COSTS, server, PinnedMemory.ARENA).gpus[0].spans_on(Stream.COMMUNICATION)

    assert [span.start_s for span in spans] == pytest.approx([9.0, 14.0])
    assert [span.end_s for span in spans] == pytest.approx([11.2, 25.0])


def test_a_gpu_waits_for_the_slowest() -> None:
    """Over an uplink of 1 B/s the second GPU offloads 10 B of its input until 10, not 1: all it does comes 9 s later.

    The exchange of fc begins at 15 then and takes 2.2 s on both. The input comes back from 13, when backward of loss
    has begun, to 23; the weight gradient of conv1 is there at 24, and its exchange takes 11 s.
    """
    slow = Topology(tuple(replace(node, link=link("uplink", 1.0)) if node.name == "switch" else node for node in TREE))
    server = replace(SERVER, topology=replace(slow, peers=PEERED.peers))
    other = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))
    plans = [placed(aggregate_gradients(plan, Aggregation.RING)) for plan in (BASE, other)]
    trace = simulate_server(plans, COSTS, server, PinnedMemory.ARENA)
    ends = [[span.end_s for span in gpu.spans_on(Stream.COMMUNICATION)] for gpu in trace.gpus]

    assert ends[0] == ends[1]
    assert ends[0] == pytest.approx([17.2, 35.0])


def test_copies_of_two_gpus_share_the_uplink() -> None:
    """Offloading the input, 10 B, takes 1 s alone at 10 B/s, and 2 s where both GPUs do it at once."""
    plan, placement = placed(VdnnAll().plan(toy_setting(WORKLOAD, COSTS)))
    alone = simulate(plan, COSTS, SERVER, placement, PinnedMemory.ARENA)
    both = replay_two(plan)

    assert alone.spans_on(Stream.MEMORY)[0].end_s == pytest.approx(1.0)
    assert both.gpus[0].spans_on(Stream.MEMORY)[0].end_s == pytest.approx(2.0)
    uplink = [load for load in both.loads if load.hop == Hop("uplink", Way.UP)]
    assert [(load.bytes_per_s, load.copies) for load in uplink][:2] == [(10.0, 2), (0.0, 0)]


def test_an_update_stalls_for_the_aggregation() -> None:
    """The end of the iteration is no kernel; where a kernel reads a sum its stall is that of the aggregation."""
    workload = replace(WORKLOAD, optimizer=Optimizer.SGD)
    costs = toy_costs(workload, {})
    plan = aggregate_gradients(Base().plan(toy_setting(workload, costs)), Aggregation.RING)
    trace = simulate_server([placed(plan)] * 2, costs, SERVER, PinnedMemory.ARENA)
    stalls = trace.gpus[0].stalls

    assert {stall.cause for stall in stalls} == {StallCause.AGGREGATION}
    assert trace.iteration_s > 19.2


def test_the_updates_wait_for_their_bucket() -> None:
    """Both are held by the one bucket, until 30.2, and take 1 s each; the stall is that of the aggregation."""
    workload = replace(WORKLOAD, optimizer=Optimizer.SGD)
    costs = toy_costs(workload, {})
    plan = aggregate_gradients(Base().plan(toy_setting(workload, costs)), Aggregation.DDP)
    trace = simulate_server([placed(plan)] * 2, costs, SERVER, PinnedMemory.ARENA)
    (stall,) = trace.gpus[0].stalls

    assert (stall.cause, stall.start_s) == (StallCause.AGGREGATION, 7.0)
    assert stall.end_s == pytest.approx(30.2000152, abs=1e-9)
    assert trace.iteration_s == pytest.approx(32.2000152, abs=1e-9)


@pytest.mark.parametrize(
    ("aggregation", "what"),
    [
        (Aggregation.RING, r"gradients of fc \(ring\)"),
        (Aggregation.DDP, r"bucket of 2 gradients, completed by conv1 \(ddp\)"),
    ],
)
def test_a_gpu_that_exchanges_nothing_is_a_deadlock(aggregation: Aggregation, what: str) -> None:
    plans = [placed(aggregate_gradients(BASE, aggregation)), placed(BASE)]

    with pytest.raises(SimulationDeadlock, match=f"aggregation of the {what}"):
        simulate_server(plans, COSTS, SERVER, PinnedMemory.ARENA)


US = 1e-6


def us_link(name: str, bytes_per_us: float, latency_us: float) -> TopologyLink:
    rate = bytes_per_us / US
    return TopologyLink(name, rate, rate, latency_us * US, Sharing.SPLIT_DUPLEX)


THREE = Topology(
    (*TREE[:3], *(Node(f"gpu{gpu}", NodeKind.GPU, "switch", us_link(f"x{gpu}", 8.0, 2.0)) for gpu in range(3))),
    (PeerLink("gpu0", "gpu1", us_link("nvlink", 20.0, 1.0)),),
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
