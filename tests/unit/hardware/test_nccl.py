"""NCCL's tuning model of a ring, by hand from its constants."""

import pytest

from vdnnsim.hardware.nccl import Protocol, Ring, Wire, wire_of
from vdnnsim.hardware.topology import FabricPort, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink

LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.SIMPLE
H100 = Ring(8, Wire.NVSWITCH, 450e9)


PCIE = Ring(2, Wire.PCIE, 10e9)


@pytest.mark.parametrize(
    ("ring", "protocol", "sent", "microseconds"),
    [
        # Eight GPUs take 14 steps: over NVLink 6.6 + 14 x 0.6, 14 + 14 x 1.9 and 8.4 + 14 x 3.4 us.
        *((H100, LL, 0, 15.0), (H100, LL128, 0, 40.6), (H100, SIMPLE, 0, 56.0)),
        # Two GPUs take two steps: 6.6 + 2 x 1.0 and 8.4 + 2 x 5.7 us.
        *((PCIE, LL, 0, 8.6), (PCIE, SIMPLE, 0, 19.8)),
        # 9 MB at 450 GB/s take 20 us. LL moves 141 GB/s, in 63.83 us; LL128 414 GB/s, in 21.74 us.
        *((H100, LL, 9_000_000, 15.0 + 43.83), (H100, LL128, 9_000_000, 40.6 + 1.74), (H100, SIMPLE, 9_000_000, 56.0)),
    ],
)
def test_overhead_by_protocol(ring: Ring, protocol: Protocol, sent: int, microseconds: float) -> None:
    assert ring.overhead_s(protocol, sent) == pytest.approx(microseconds * 1e-6, abs=1e-8)


@pytest.mark.parametrize(
    ("ring_gb_per_s", "ll_gb_per_s"),
    [(20, 10), (78, 39), (150, 39), (200, 87.7), (300, 87.7), (450, 141), (500, 250), (900, 282)],
)
def test_ll_moves_half_the_rate_up_to_a_limit(ring_gb_per_s: float, ll_gb_per_s: float) -> None:
    """Of one GB/s n GB take n s, less what they take at the rate of the ring."""
    rate = ring_gb_per_s * 1e9
    overhead_s = Ring(8, Wire.NVSWITCH, rate).overhead_s(LL, 10**12)

    assert overhead_s == pytest.approx(15.0e-6 + 1000 / ll_gb_per_s - 1000 / ring_gb_per_s)


@pytest.mark.parametrize(
    ("ring", "sent", "protocol"),
    [
        # LL gains 25.6 us and loses 4.87 ps/B less the 0.19 of LL128: until 5.5 MB.
        (H100, 5_400_000, LL),
        (H100, 5_550_000, LL128),
        # LL128 gains 15.4 us and loses 0.193 ps/B: until 79.7 MB.
        (H100, 79_600_000, LL128),
        (H100, 79_800_000, SIMPLE),
        # LL gains 1.8 + 2 x 4.7 us over Simple and loses 0.1 ns/B: until 112 kB.
        (PCIE, 111_900, LL),
        (PCIE, 112_100, SIMPLE),
    ],
)
def test_the_protocol_with_the_least_time_is_taken(ring: Ring, sent: int, protocol: Protocol) -> None:
    assert ring.fastest(sent) is protocol


def test_ll128_is_used_over_nvswitch_alone() -> None:
    assert Ring(4, Wire.NVSWITCH, 1e9).protocols == (LL, LL128, SIMPLE)
    assert Ring(4, Wire.NVLINK, 1e9).protocols == Ring(4, Wire.PCIE, 1e9).protocols == (LL, SIMPLE)


def link(name: str) -> TopologyLink:
    return TopologyLink(name, 1e9, 1e9, 0.0, Sharing.SPLIT_DUPLEX)


NODES = (
    Node("memory", NodeKind.HOST_MEMORY, None, None),
    *(Node(f"gpu{number}", NodeKind.GPU, "memory", link(f"x{number}")) for number in range(3)),
)
PORTS = tuple(FabricPort(f"gpu{number}", link(f"port{number}")) for number in range(3))
PEERS = (PeerLink("gpu0", "gpu1", link("peer")),)


@pytest.mark.parametrize(
    ("topology", "gpus", "wire"),
    [
        (Topology(NODES, (), PORTS), 3, Wire.NVSWITCH),
        (Topology(NODES, PEERS), 2, Wire.NVLINK),
        # Two of the three hops go through the fabric, one over the peer link.
        (Topology(NODES, PEERS, PORTS), 3, Wire.NVLINK),
        # GPU 2 has no peer link.
        (Topology(NODES, PEERS), 3, Wire.PCIE),
        (Topology(NODES), 2, Wire.PCIE),
    ],
)
def test_wire_of_a_ring(topology: Topology, gpus: int, wire: Wire) -> None:
    ring = [topology.between(gpu, (gpu + 1) % gpus) for gpu in range(gpus)]

    assert wire_of(topology, ring) is wire
