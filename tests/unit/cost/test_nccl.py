"""NCCL's tuning model, by hand from its constants."""

from dataclasses import replace

import pytest

from vdnnsim.cost.nccl import Algorithm, Group, Method, Protocol, Wire, methods
from vdnnsim.dnn.collective import CollectiveKind

LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.SIMPLE
RING, TREE, NVLS, NVLS_TREE, SENDS = Algorithm
REDUCE, GATHER, BROADCAST = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST
H100 = Group(8, 1, Wire.NVSWITCH, multicast=True, network_s=0.0)
PCIE = Group(2, 1, Wire.PCIE, multicast=False, network_s=0.0)
TWO = Group(16, 2, Wire.NVSWITCH, multicast=True, network_s=5e-6)
ONE_EACH = Group(4, 4, Wire.NVSWITCH, multicast=True, network_s=5e-6)


@pytest.mark.parametrize(
    ("group", "kind", "method", "microseconds"),
    [
        # Eight GPUs take 14 steps: over NVLink 6.6 + 14 x 0.6, 14 + 14 x 1.9 and 8.4 + 14 x 3.4 us; half to gather.
        *((H100, REDUCE, (RING, LL), 15.0), (H100, REDUCE, (RING, LL128), 40.6), (H100, REDUCE, (RING, SIMPLE), 56.0)),
        *((H100, GATHER, (RING, SIMPLE), 32.2), (H100, BROADCAST, (RING, SIMPLE), 11.8)),
        (H100, REDUCE, (NVLS, SIMPLE), 25.0),
        # Two GPUs take two steps: 6.6 + 2 x 1.0 and 8.4 + 2 x 5.7 us; a send is one.
        *((PCIE, REDUCE, (RING, LL), 8.6), (PCIE, REDUCE, (RING, SIMPLE), 19.8)),
        (PCIE, CollectiveKind.SEND, (SENDS, LL), 7.6),
        # Two hosts of eight take 30 steps, two of them over the network: 2.7 and a latency of 5 us, under Simple 14 and
        # two latencies. The others are not shorter than it takes to post, 1 and 3 us. LL: 6.6 + 28 x 1 + 2 x 7.7;
        # Simple: 8.4 + 1.4 (28 x 3.4 + 2 x 24), 1.4 but for 256 B on each of 16 channels.
        *((TWO, REDUCE, (RING, LL), 50.0), (TWO, REDUCE, (RING, SIMPLE), 8.4 + 1.4 * 143.2)),
        (TWO, GATHER, (RING, SIMPLE), 8.4 + 14 * 3.4 + 24),
        # A tree: 6.8 + 2 x 7 x 0.6 + 2 x (5 + 5), and NVLS on each host with 2 x 20.9 and four latencies.
        *((TWO, REDUCE, (TREE, LL), 35.2), (TWO, REDUCE, (NVLS_TREE, SIMPLE), 25 + 41.8 + 20)),
        # One GPU on each of four hosts: three steps of 5 + 5 to gather; up and down a tree of depth two 4 x (14 + 10).
        *((ONE_EACH, GATHER, (RING, LL), 6.6 + 30), (ONE_EACH, REDUCE, (TREE, SIMPLE), 8.4 + 96)),
    ],
)
def test_latencies(group: Group, kind: CollectiveKind, method: tuple[Algorithm, Protocol], microseconds: float) -> None:
    assert Method(*method).latency_s(kind, group, 10**9) == pytest.approx(microseconds * 1e-6)


def test_a_ring_of_little_has_no_plateau() -> None:
    """Below 64 B for each of 16 GPUs on 16 channels, 16,384 B, 28 x 3.4 and 2 x 24 us count as they are."""
    ring = Method(RING, SIMPLE)
    assert ring.latency_s(REDUCE, TWO, 16_383) == pytest.approx((8.4 + 143.2) * 1e-6)
    assert ring.latency_s(REDUCE, TWO, 16_384) == pytest.approx((8.4 + 1.4 * 143.2) * 1e-6)


@pytest.mark.parametrize(
    ("ring_gb_per_s", "ll_gb_per_s"),
    [(20, 10), (78, 39), (150, 39), (200, 87.7), (300, 87.7), (450, 141), (500, 250), (900, 282)],
)
def test_ll_moves_half_the_rate_up_to_a_limit(ring_gb_per_s: float, ll_gb_per_s: float) -> None:
    """One of two rings moves half of it."""
    assert Method(RING, LL).rate(ring_gb_per_s * 1e9, 1.0, H100, 1) == pytest.approx(ll_gb_per_s * 1e9)
    assert Method(RING, LL).rate(ring_gb_per_s * 5e8, 0.5, H100, 1) == pytest.approx(ll_gb_per_s * 5e8)


def test_rates_of_other_protocols_and_algorithms() -> None:
    """LL128 moves 0.92 of the rate, NVLS all; a tree 0.92 of what a ring does, LL 1 / 3.8 of it and LL128 15 / 16.

    Of 1 MiB, 2^14 x 64 B, a tree reaches 0.5 of that under LL, 0.6 under LL128, 0.5 under Simple. Of 64 B it reaches
    0.9 under Simple, and of all above 2^22 x 64 B.
    """
    mib = 2**20
    assert Method(RING, LL128).rate(100.0, 1.0, H100, mib) == pytest.approx(92.0)
    assert Method(RING, SIMPLE).rate(100.0, 1.0, H100, mib) == 100.0
    assert Method(NVLS).rate(100.0, 1.0, H100, mib) == 100.0
    assert Method(TREE, LL).rate(100.0, 1.0, TWO, mib) == pytest.approx(92 / 3.8 * 0.5)
    assert Method(TREE, LL128).rate(100.0, 1.0, TWO, mib) == pytest.approx(92 * 0.9375 * 0.6)
    for nbytes, factor in ((1, 0.9), (64, 0.9), (mib, 0.5), (2**40, 0.9)):
        assert Method(TREE, SIMPLE).rate(100.0, 1.0, TWO, nbytes) == pytest.approx(92 * factor)


def test_ll_over_the_network_is_limited_for_all_cards_together() -> None:
    """39 GB/s over two hosts and 20.4 over more: of eight cards 4.875, of one on each of four hosts 20.4."""
    assert Method(RING, LL).rate(48e9, 1 / 8, TWO, 1) == pytest.approx(4.875e9)
    assert Method(RING, LL).rate(48e9, 1.0, ONE_EACH, 1) == pytest.approx(20.4e9)


def names(kind: CollectiveKind, group: Group) -> list[str]:
    return [method.name for method in methods(kind, group)]


def test_methods_by_collective_and_machine() -> None:
    """LL128 over NVSwitch alone, trees between hosts, NVLS where NVSwitch sums and a host has several GPUs."""
    rings = ["ring/LL", "ring/LL128", "ring/Simple"]
    trees = ["tree/LL", "tree/LL128", "tree/Simple"]
    assert names(REDUCE, H100) == [*rings, "NVLS/Simple"]
    assert names(GATHER, H100) == rings
    assert names(REDUCE, TWO) == [*rings, *trees, "NVLSTree/Simple"]
    assert names(REDUCE, ONE_EACH) == [*rings, *trees]
    assert names(REDUCE, replace(H100, multicast=False)) == rings
    assert names(REDUCE, PCIE) == ["ring/LL", "ring/Simple"]
    assert names(CollectiveKind.ALL_TO_ALL, H100) == ["sends/LL", "sends/Simple"]
