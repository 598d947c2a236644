from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest

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


def link(name: str) -> TopologyLink:
    return TopologyLink(name, 10.0, 10.0, 1.0, Sharing.SPLIT_DUPLEX)


# Two sockets; gpu0 and gpu1 behind one switch, gpu2 behind another of the same socket, gpu3 on the other socket.
NODES = (
    Node("memory", NodeKind.HOST_MEMORY, None, None),
    Node("socket0", NodeKind.SOCKET, "memory", link("ddr0")),
    Node("socket1", NodeKind.SOCKET, "memory", link("ddr1")),
    Node("switch0", NodeKind.SWITCH, "socket0", link("up0")),
    Node("switch1", NodeKind.SWITCH, "socket0", link("up1")),
    Node("gpu0", NodeKind.GPU, "switch0", link("x0")),
    Node("gpu1", NodeKind.GPU, "switch0", link("x1")),
    Node("gpu2", NodeKind.GPU, "switch1", link("x2")),
    Node("gpu3", NodeKind.GPU, "socket1", link("x3")),
)
TREE = Topology(NODES)


def up(*names: str) -> tuple[Hop, ...]:
    return tuple(Hop(name, Way.UP) for name in names)


def down(*names: str) -> tuple[Hop, ...]:
    return tuple(Hop(name, Way.DOWN) for name in names)


def test_paths_between_gpus_and_host() -> None:
    assert TREE.to_host(0) == up("x0", "up0", "ddr0")
    assert TREE.to_host(3) == up("x3", "ddr1")
    assert TREE.from_host(0) == down("ddr0", "up0", "x0")
    assert TREE.latency_s(TREE.to_host(0)) == 3.0
    # gpu0 and gpu1 meet in their switch, gpu0 and gpu2 in their socket, gpu0 and gpu3 in host memory.
    assert TREE.between(0, 1) == (*up("x0"), *down("x1"))
    assert TREE.between(0, 2) == (*up("x0", "up0"), *down("up1", "x2"))
    assert TREE.between(0, 3) == (*up("x0", "up0", "ddr0"), *down("ddr1", "x3"))
    # From its first GPU to its second it is crossed down, back up.
    peered = Topology(NODES, (PeerLink("gpu0", "gpu2", link("nvlink")),))
    assert peered.between(0, 2) == down("nvlink")
    assert peered.between(2, 0) == up("nvlink")
    assert peered.between(0, 1) == (*up("x0"), *down("x1"))
    # gpu0 and gpu3 have a port: up through the one, down through the other; gpu1 has none.
    fabric = Topology(NODES, ports=(FabricPort("gpu0", link("p0")), FabricPort("gpu3", link("p3"))))
    assert fabric.between(0, 3) == (*up("p0"), *down("p3"))
    assert fabric.between(0, 1) == (*up("x0"), *down("x1"))
    # A switch group is the gpus below one node.
    assert [TREE.group(gpu) for gpu in range(4)] == [(0, 1), (0, 1), (2,), (3,)]


def joined_in(gpus: int, pairs: Iterable[tuple[int, int]]) -> Topology:
    """A switch with GPUs, of which pairs have peer links."""
    nodes = (NODES[0], *(Node(f"gpu{each}", NodeKind.GPU, "memory", link(f"x{each}")) for each in range(gpus)))
    peers = (PeerLink(f"gpu{one}", f"gpu{other}", link(f"p{one}-{other}")) for one, other in pairs)
    return Topology(nodes, tuple(peers))


def test_a_ring_goes_over_peer_links_alone_in_both_directions() -> None:
    """A square 0 1 3 2, the same with a diagonal, a chain, and two GPUs, whose link is the way there and back.

    All pairs of five have 10 links, which are two rings of 5: 0 1 2 3 4, then of what is left 0 2 4 1 3.
    """
    square = [(0, 1), (1, 3), (3, 2), (2, 0)]
    assert joined_in(4, square).rings(range(4)) == ((0, 1, 3, 2), (2, 3, 1, 0))
    assert joined_in(4, [*square, (0, 3)]).rings(range(4)) == ((0, 1, 3, 2), (2, 3, 1, 0))
    assert joined_in(4, square[:3]).rings(range(4)) == ((0, 1, 2, 3),)
    assert joined_in(4, square).rings((1, 3)) == ((1, 3),)
    assert joined_in(2, [(0, 1)]).rings((0, 1)) == ((0, 1),)
    assert joined_in(1, []).rings((0,)) == ((0,),)
    both = [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 2, 4, 1, 3), (3, 1, 4, 2, 0)]
    assert joined_in(5, combinations(range(5), 2)).rings(range(5)) == tuple(both)
    # A fabric carries all of a GPU over its one port.
    ports = tuple(FabricPort(f"gpu{each}", link(f"p{each}")) for each in range(4))
    assert Topology(NODES, ports=ports).rings((0, 2, 3)) == ((0, 2, 3),)


def test_without_peer_to_peer_copies_go_through_host_memory() -> None:
    assert replace(TREE, peer_to_peer=False).between(0, 1) == (*TREE.to_host(0), *TREE.from_host(1))


def test_a_network_card_is_reached_beside_the_gpu() -> None:
    """GPU 0 has a card of its own, GPUs 1 to 3 share one; all reach it over their own link alone."""
    cards = (NetworkCard(("gpu0",), link("n0")), NetworkCard(("gpu1", "gpu2", "gpu3"), link("n1")))
    joined = replace(TREE, cards=cards)
    assert joined.to_network(0) == (*TREE.to_host(0)[:1], Hop("n0", Way.UP))
    assert joined.from_network(2) == (Hop("n1", Way.DOWN), *TREE.from_host(2)[-1:])
    assert {"n0", "n1"} <= joined.links.keys()


def test_rates_of_copies_that_share_links() -> None:
    """Two into 9 B/s of shared memory pass it once each; one through it and out again passes it twice.

    Rates grow together: 3 x 2 of the copy through memory and 3 of the other fill it. Beside the other direction a lossy
    link of 10 B/s keeps half, but on another host.
    """
    memory = TopologyLink("memory", 9.0, 9.0, 0.0, Sharing.SHARED)
    lossy = TopologyLink("lossy", 10.0, 10.0, 0.0, Sharing.LOSSY_DUPLEX, 0.5, 0.5)
    nodes = (
        Node("host", NodeKind.HOST_MEMORY, None, None),
        Node("socket", NodeKind.SOCKET, "host", memory),
        Node("gpu0", NodeKind.GPU, "socket", lossy),
    )
    topology = Topology(nodes)
    up, down = Hop("memory", Way.UP), Hop("memory", Way.DOWN)
    assert topology.rates([(up,), (up,)]) == [4.5, 4.5]
    assert topology.rates([(up, down), (down,)]) == [3.0, 3.0]
    there, back = Hop("lossy", Way.UP), Hop("lossy", Way.DOWN)
    assert topology.rates([(there,), (back,)]) == [5.0, 5.0]
    assert topology.rates([(there,), (replace(back, host=1),)]) == [10.0, 10.0]


@pytest.mark.parametrize("gpus", [11, 64])
def test_graphs_without_a_ring_keep_the_order_of_numbers(gpus: int) -> None:
    """All but the last are joined; two halves that share one GPU; a star: there are 62! ways to try them."""
    pairs = list(combinations(range(gpus), 2))
    half = gpus // 2
    for some in (
        [pair for pair in pairs if gpus - 1 not in pair],
        [pair for pair in pairs if max(pair) <= half or min(pair) >= half],
        [pair for pair in pairs if 0 in pair],
    ):
        assert joined_in(gpus, some).rings(range(gpus)) == (tuple(range(gpus)),)


def test_the_search_for_a_ring_is_bounded() -> None:
    """Seven are joined to each of eight, and no two of the eight: no ring, though all have a way in and another out."""
    pairs = [(one, other) for one in range(7) for other in range(7, 15)]
    assert joined_in(15, pairs).rings(range(15)) == (tuple(range(15)),)
