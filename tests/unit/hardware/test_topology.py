from collections.abc import Iterable
from itertools import combinations

import pytest

from vdnnsim.hardware.topology import FabricPort, Hop, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink, Way


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


def test_a_ring_goes_over_peer_links_alone() -> None:
    """A square 0 1 3 2, the same with a diagonal, a chain, and two GPUs, whose link is the way there and back."""
    square = [(0, 1), (1, 3), (3, 2), (2, 0)]
    assert joined_in(4, square).ring(4) == (0, 1, 3, 2)
    assert joined_in(4, [*square, (0, 3)]).ring(4) == (0, 1, 3, 2)
    assert joined_in(4, square[:3]).ring(4) == (0, 1, 2, 3)
    assert joined_in(2, [(0, 1)]).ring(2) == (0, 1)
    assert joined_in(1, []).ring(1) == (0,)


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
        assert joined_in(gpus, some).ring(gpus) == tuple(range(gpus))


def test_the_search_for_a_ring_is_bounded() -> None:
    """Seven are joined to each of eight, and no two of the eight: no ring, though all have a way in and another out."""
    pairs = [(one, other) for one in range(7) for other in range(7, 15)]
    assert joined_in(15, pairs).ring(15) == tuple(range(15))
