"""Topologies of the shipped servers of several GPUs."""

import shutil
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from tests.machines import shipped_server
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.topology import Topology
from vdnnsim.hardware.write import profile_text

PROFILES = Path(__file__).parents[2] / "hw_profiles"
SERVERS = (
    *("p100_x2", "p100_x4", "dgx1_p100", "h100_x8", "h100_x8_96gb", "h200_x8", "gh200", "a100_80gb_x8", "rtx_4090_x4"),
    *("rtx_4090_x8", "rtx_3090_x2_nvlink", "rtx_3090_x4", "rtx_3090_x8", "l40s_x4", "l40s_x8"),
)


def topology(name: str) -> Topology:
    found = shipped_server(name).topology
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("p100_x2", [(0, 1)]),
        ("p100_x4", [(0, 1), (2, 3)]),
        ("dgx1_p100", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("h100_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("h200_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("gh200", [(0,)]),
        ("a100_80gb_x8", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        ("rtx_4090_x4", [(0, 1, 2, 3)]),
        ("rtx_3090_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
        ("l40s_x8", [(0, 1, 2, 3), (4, 5, 6, 7)]),
    ],
)
def test_the_groups_of_gpus_are_those_of_the_machine(name: str, groups: list[tuple[int, ...]]) -> None:
    found = topology(name)
    assert list(dict.fromkeys(found.group(gpu) for gpu in range(len(found.gpus)))) == groups


def test_the_path_of_a_p100_to_its_host() -> None:
    """Over the switch and the socket; the link of one is PCIe, two links of 5 us: host memory is faster."""
    names = [hop.link for hop in topology("p100_x4").to_host(2)]
    assert names == ["switch1-gpu2", "socket0-switch1", "memory-socket0"]
    link = shipped_server("p100_x2").link
    assert (link.name, link.h2d_bytes_per_s, link.d2h_bytes_per_s) == ("PCIe gen3 x16", 12.256e9, 13.512e9)
    assert link.latency_s == pytest.approx(10e-6)
    # Two full meshes of four, and four edges between them: 2 x 6 + 4 = 16 links, four at each GPU.
    pairs = {frozenset((peer.first, peer.second)) for peer in topology("dgx1_p100").peers}
    meshes = {frozenset((f"gpu{a}", f"gpu{b}")) for quad in ("0123", "4567") for a, b in combinations(quad, 2)}
    assert pairs == meshes | {frozenset((f"gpu{g}", f"gpu{g + 4}")) for g in range(4)}
    assert len(topology("dgx1_p100").peers) == 16


@pytest.mark.parametrize("name", ["h100_x8", "h200_x8"])
def test_hopper_servers_have_a_fabric_between_all(name: str) -> None:
    found = topology(name)
    assert [hop.link for hop in found.between(0, 7)] == ["fabric-gpu0", "fabric-gpu7"]
    assert found.links["fabric-gpu0"].down_bytes_per_s == 450e9
    assert found.multicast


def test_geforce_cards_reach_each_other_over_nvlink_or_through_host_memory() -> None:
    """What one of eight sends its neighbour passes the memory of their processor twice."""
    links = [hop.link for hop in topology("rtx_4090_x8").between(0, 1)]
    assert links == ["socket0-gpu0", "memory-socket0", "memory-socket0", "socket0-gpu1"]
    assert [hop.link for hop in topology("rtx_3090_x2_nvlink").between(0, 1)] == ["gpu0-gpu1"]
    assert [hop.link for hop in topology("l40s_x8").between(0, 1)] == ["switch0-gpu0", "switch0-gpu1"]


@pytest.mark.parametrize("name", ["h100_x8", "h200_x8", "a100_80gb_x8"])
def test_servers_for_clusters_have_a_network_card_for_each_gpu(name: str) -> None:
    assert [card.gpus for card in topology(name).cards] == [(f"gpu{number}",) for number in range(8)]


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    """The kernels of a profile lie beside it, so the copy of h200_x8 finds none where it is written."""
    read = shipped_server(name)
    if read.kernels is not None:
        shutil.copy(read.kernels.table, tmp_path)
    path = tmp_path / f"{name}.yaml"
    path.write_text(profile_text(read, "a server"), encoding="utf-8")
    again = read_profile(path)
    assert (again.topology, again.link, again.gpu, again.host) == (read.topology, read.link, read.gpu, read.host)
    assert again.figures == read.figures


@pytest.mark.parametrize(
    ("name", "ring"),
    [("dgx1_p100", (0, 1, 2, 3, 7, 5, 6, 4)), ("h100_x8", (0, 1, 2, 3, 4, 5, 6, 7)), ("p100_x4", (0, 1, 2, 3))],
)
def test_a_ring_goes_over_peer_links_where_they_close_one(name: str, ring: tuple[int, ...]) -> None:
    """The cube mesh joins 0 to 3 and 4 to 7 with each other, and 0 to 4, 1 to 5, 2 to 6, 3 to 7; the P100 by no peer.

    By number 0, 1, 2, 3 leads to 7. Behind it 4 cannot be the last, and of 5 and 6 neither is a peer of 0; so 5 comes
    next, and behind 5 not 4, for the same reason, but 6, and 4 closes the ring.
    """
    rings = topology(name).rings(range(len(ring)))
    assert rings[0] == ring
    # The cube mesh has 16 links, which are two rings, each in both directions.
    assert len(rings) == (4 if name == "dgx1_p100" else 1)
    assert name != "dgx1_p100" or not set(pairwise(rings[0])) & set(pairwise(rings[2]))
