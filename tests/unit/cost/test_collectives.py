"""What collectives put on links, by hand; a link carries 100 B/s, 10 ms a byte, beside which latencies vanish.

The tree is of two sockets with two GPUs each; peers and ports are added to it.
"""

from dataclasses import replace

import pytest

from tests.machines import shipped_server
from vdnnsim.cost.collectives import Cluster
from vdnnsim.cost.nccl import Wire
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.hardware.topology import (
    FabricPort,
    Hop,
    NetworkCard,
    Node,
    NodeKind,
    PeerLink,
    Sharing,
    Topology,
    TopologyLink,
    Way,
)

KINDS = {each.value: each for each in CollectiveKind}
UP, DOWN = Way.UP, Way.DOWN


def link(name: str, nccl: float | None = None) -> TopologyLink:
    return TopologyLink(name, 100.0, 100.0, 0.0, Sharing.SPLIT_DUPLEX, nccl_bytes_per_s=nccl)


NODES = (
    Node("memory", NodeKind.HOST_MEMORY, None, None),
    Node("socket0", NodeKind.SOCKET, "memory", link("ddr0")),
    Node("socket1", NodeKind.SOCKET, "memory", link("ddr1")),
    *(Node(f"gpu{gpu}", NodeKind.GPU, f"socket{gpu // 2}", link(f"x{gpu}")) for gpu in range(4)),
)
TREE = Topology(NODES)
SWITCH = replace(TREE, ports=tuple(FabricPort(f"gpu{gpu}", link(f"p{gpu}")) for gpu in range(4)))
CARDS = tuple(NetworkCard((f"gpu{gpu}",), link(f"n{gpu}", nccl=50.0)) for gpu in range(4))
HOSTS = replace(SWITCH, cards=CARDS)


def collective(kind: str, nbytes: int, ranks: int, stride: int = 1) -> Collective:
    return Collective(KINDS[kind], nbytes, "float32", ranks, stride)


def moved(
    topology: Topology, ranks: int, what: Collective, *, of: tuple[int, ...] = (0,)
) -> dict[tuple[str, Way], float]:
    """Return what each direction of a link carries under Simple, which adds nothing."""
    timed = Cluster(topology, ranks).timed(what, of)
    assert timed.method.name.endswith("/Simple")
    carried: dict[tuple[str, Way], float] = {}
    for path, nbytes in timed.flows:
        for hop in path:
            carried[hop.link, hop.way] = carried.get((hop.link, hop.way), 0.0) + nbytes
    return {key: pytest.approx(value) for key, value in carried.items()}  # type: ignore[misc]  # compares both ways


@pytest.mark.parametrize(
    ("kind", "each"),
    [("all_reduce", 1200), ("all_gather", 600), ("reduce_scatter", 600), ("broadcast", 800), ("all_to_all", 600)],
)
def test_ports_of_a_fabric(kind: str, each: int) -> None:
    """Of 800 B four GPUs move 2 x 3 / 4 around a ring, 3 / 4 to gather, scatter or send to all, a broadcast all."""
    expected = {(f"p{gpu}", way): each for gpu in range(4) for way in Way}
    assert moved(SWITCH, 4, collective(kind, 800, 4)) == expected


def test_a_kernel_of_nccl_has_a_block_for_each_channel() -> None:
    """24 over NVSwitch; 16 where it adds up, as of large sums of eight H100; two of a ring on PCIe."""
    topology = shipped_server("h100_x8").topology
    assert topology is not None
    eight = Cluster(topology, 8)

    assert eight.blocks(collective("all_gather", 10**9, 8), (0,)) == 24
    assert eight.blocks(collective("all_reduce", 10**9, 8), (0,)) == 16
    assert Cluster(TREE, 4).blocks(collective("all_reduce", 10**9, 4), (0,)) == 2


def test_rings_of_peer_links_share_the_bytes() -> None:
    """Three joined GPUs are a ring in both directions: each moves half of 2 x 2 / 3 of 900 B, 600 over each link."""
    peers = tuple(PeerLink(f"gpu{a}", f"gpu{b}", link(f"l{a}{b}")) for a, b in ((0, 1), (1, 2), (0, 2)))
    expected = {(f"l{pair}", way): 600 for pair in ("01", "12", "02") for way in Way}
    assert moved(replace(TREE, peers=peers), 3, collective("all_reduce", 900, 3)) == expected


def test_a_ring_through_the_tree_crosses_both_sockets() -> None:
    """0 to 1 and 2 to 3 turn at their socket; 1 to 2 and 3 to 0 cross both: 300 B of a gather of 400."""
    ways = [
        *((f"x{gpu}", way) for gpu in range(4) for way in Way),
        *((f"ddr{n}", way) for n in range(2) for way in Way),
    ]
    assert moved(TREE, 4, collective("all_gather", 400, 4)) == dict.fromkeys(ways, 300)


def test_groups_of_a_dimension_run_together() -> None:
    """Ranks 0 and 2, and 1 and 3, reduce 100 B each: all cross the sockets, twice 100 B over each way to memory."""
    two = collective("all_reduce", 100, 2, stride=2)
    each = moved(TREE, 4, two, of=(0, 1, 2, 3))
    assert each == {
        **{(f"x{gpu}", way): 100 for gpu in range(4) for way in Way},
        **{(f"ddr{n}", way): 200 for n in range(2) for way in Way},
    }
    # Two flows of 100 B/s share a way of 100 B/s: each takes two seconds.
    assert Cluster(TREE, 4).timed(two, range(4)).seconds == pytest.approx(2.0, rel=1e-3)
    assert Cluster(TREE, 4).timed(two, (0,)).seconds == pytest.approx(1.0, rel=1e-3)


def test_hosts_are_joined_by_their_cards() -> None:
    """Eight ranks on two hosts gather 800 B: 700 around, of which each card has a fourth, and each port three.

    What enters or leaves a host crosses the link of the GPU. A card reaches 50 B/s: 175 B take 3.5 s, and ports 5.25.
    """
    gather = collective("all_gather", 800, 8)
    timed = Cluster(HOSTS, 8).timed(gather, (0,))
    assert timed.seconds == pytest.approx(5.25, rel=1e-3)
    carried = dict.fromkeys(((f"{kind}{gpu}", way) for kind in "nx" for gpu in range(4) for way in Way), 0.0)
    ports = 0.0
    for path, nbytes in timed.flows:
        for hop in path:
            if hop.link.startswith("p"):
                ports += nbytes
            else:
                carried[hop.link, hop.way] += nbytes
    # On the wires of a card that carries 100 B/s, 50 are as long as 100.
    assert list(carried.values()) == pytest.approx([350.0] * 16)
    assert ports == pytest.approx(8 * 525)


def test_one_rank_of_each_host() -> None:
    """Every fourth of twelve ranks reduces 300 B over three hosts: 400 around, at 50 B/s, on whichever GPUs."""
    each = collective("all_reduce", 300, 3, stride=4)
    timed = Cluster(HOSTS, 12).timed(each, range(4))
    assert timed.seconds == pytest.approx(8.0, rel=1e-3)
    assert {hop.link for path, _ in timed.flows for hop in path} == {
        f"{kind}{gpu}" for kind in "nx" for gpu in range(4)
    }


def slower(cards: float) -> Topology:
    """Hosts whose NVSwitch sums, with cards that reach so many bytes per second."""
    slow = tuple(replace(card, link=replace(card.link, nccl_bytes_per_s=cards)) for card in CARDS)
    return replace(HOSTS, multicast=True, cards=slow)


def test_switches_that_sum() -> None:
    """Of 800 B four GPUs of a host send and receive 1000, at 0.796875 of 100 B/s in 12.549 s, a ring 1200 in 12 s.

    Two GPUs in a ring move 800 B in 8 s, where NVLS would take 15. Between two hosts with cards of 25 B/s eight take
    14 s in a ring, 350 B over each card, or 12.549 s by NVLS: the cards exchange 200 B beside it, in 8 s. Of three
    hosts a ring moves 366.7 B over each card, and the tree of NVLS would 400.
    """
    for hosts, name, seconds in ((1, "ring", 12.0), (2, "NVLSTree", 12.549), (3, "ring", 14.667)):
        timed = Cluster(slower(25.0), 4 * hosts).timed(collective("all_reduce", 800, 4 * hosts), (0,))
        assert timed.method.name == f"{name}/Simple"
        assert timed.seconds == pytest.approx(seconds, rel=1e-3)
        if hosts == 2:
            assert {nbytes for path, nbytes in timed.flows if path[0].link == "x0"} == {800.0}
    assert Cluster(slower(25.0), 2).timed(collective("all_reduce", 800, 2), (0,)).seconds == pytest.approx(8, rel=1e-3)


def fast(each: TopologyLink) -> TopologyLink:
    return replace(each, down_bytes_per_s=1e9, up_bytes_per_s=1e9, nccl_bytes_per_s=None)


FAST = replace(
    HOSTS,
    multicast=True,
    cards=tuple(NetworkCard(card.gpus, fast(card.link)) for card in CARDS),
    ports=tuple(FabricPort(port.gpu, fast(port.link)) for port in SWITCH.ports),
    nodes=tuple(node if node.link is None else replace(node, link=fast(node.link)) for node in NODES),
)


def test_trees_are_taken_where_a_ring_has_many_steps() -> None:
    """Over 64 hosts a ring takes 126 steps between hosts, a tree 12, so that 4 B go along it.

    A tree moves 2 x 4 x 3 / 4 B over each port one way and 2 x 4 / 4 over each card, under the same overhead. 1 MB
    takes 25 + 12 x 20.9 us and 1,569 us of 1.25 MB by NVLS, whose tree moves 0.5 MB over each card.
    """
    cluster = Cluster(FAST, 256)
    assert cluster.timed(collective("all_reduce", 4, 64, stride=4), (0,)).method.name == "tree/LL"
    timed = cluster.timed(collective("all_reduce", 4, 256), (0,))
    assert timed.method.name == "tree/LL"
    ports = [nbytes for path, nbytes in timed.flows if path[0].link.startswith("p")]
    cards = [nbytes for path, nbytes in timed.flows if path[-1].link.startswith("n") and path[-1].way is UP]
    assert (len(ports), len(cards)) == (8, 4)
    assert ports[0] / cards[0] == pytest.approx(1.5)
    timed = cluster.timed(collective("all_reduce", 1_000_000, 256), (0,))
    assert timed.method.name == "NVLSTree/Simple"
    assert timed.seconds == pytest.approx(25e-6 + 12 * 20.9e-6 + 1.25e-3 / 0.796875)
    cards = [nbytes for path, nbytes in timed.flows if path[-1].link.startswith("n")]
    assert cards == pytest.approx([500_000] * 4)


def test_sends_take_the_way_between_two_ranks() -> None:
    """Rank 1 sends 100 B to rank 3 on its host, and rank 3 to rank 4 on the next, where it is the first."""
    cluster = Cluster(HOSTS, 8)
    assert [path for path, _ in cluster.timed(collective("send", 100, 2, stride=2), (1,)).flows] == [
        (Hop("p1", UP), Hop("p3", DOWN))
    ]
    across = collective("send", 100, 2)
    assert [path for path, _ in cluster.timed(across, (3,)).flows] == [(Hop("x3", UP), Hop("n3", UP))]
    both = cluster.timed(across, (3,), (0, 1))
    assert [path for path, _ in both.flows][1] == (Hop("n0", DOWN, 1), Hop("x0", DOWN, 1))
    assert both.seconds == pytest.approx(2.0, rel=1e-3)
    # A receive has the sender a stride away.
    receive = Collective(CollectiveKind.RECEIVE, 100, "float32", 2, -1)
    assert cluster.group(4, receive) == (3, 4)
    assert cluster.timed(receive, (4,), (0, 1)).flows == both.flows


def test_an_all_to_all_over_hosts() -> None:
    """Of 800 B for each of eight ranks, 100 stay, 100 go to each of three, and 400 over the card at 50 B/s: 8 s."""
    timed = Cluster(HOSTS, 8).timed(collective("all_to_all", 800, 8), (0,))
    assert timed.seconds == pytest.approx(8.0, rel=1e-3)
    assert len(timed.flows) == 4 * 3 + 2 * 4


@pytest.mark.parametrize(
    ("topology", "ranks", "wire"),
    [
        (SWITCH, 4, Wire.NVSWITCH),
        (HOSTS, 1, Wire.NVSWITCH),
        (TREE, 1, Wire.PCIE),
        (TREE, 2, Wire.PCIE),
        (replace(TREE, peers=(PeerLink("gpu0", "gpu1", link("l")),)), 2, Wire.NVLINK),
        # Of three, the last has no peer link.
        (replace(TREE, peers=(PeerLink("gpu0", "gpu1", link("l")),)), 3, Wire.PCIE),
        # Two of the three ways go through the fabric, one over the peer link.
        (replace(SWITCH, peers=(PeerLink("gpu0", "gpu1", link("l")),)), 3, Wire.NVLINK),
    ],
)
def test_wires_of_a_group(topology: Topology, ranks: int, wire: Wire) -> None:
    assert Cluster(topology, 4).wire(tuple(range(ranks))) is wire


def test_ranks_of_a_group() -> None:
    """Of twelve ranks, those of rank 7: three neighbours, and every fourth."""
    cluster = Cluster(HOSTS, 12)
    assert cluster.group(7, collective("all_gather", 1, 3)) == (6, 7, 8)
    assert cluster.group(7, collective("all_gather", 1, 3, stride=4)) == (3, 7, 11)
    assert (cluster.local, cluster.on_host((3, 7, 11), 1)) == (4, (3,))
