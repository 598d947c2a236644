import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.hardware.toy_profile import TOY, figure, refusal
from vdnnsim.errors import ProfileError
from vdnnsim.files.value import Entry
from vdnnsim.hardware.figures import Figures
from vdnnsim.hardware.profile import load_profile, read_profile
from vdnnsim.hardware.server import Link
from vdnnsim.hardware.topology import FabricPort, NetworkCard, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink
from vdnnsim.hardware.topology_section import read_topology
from vdnnsim.hardware.write import profile_text


def rates(down: str, up: str, latency: str, sharing: str) -> dict[str, object]:
    return {"down": figure(down), "up": figure(up), "latency": figure(latency), "sharing": sharing}


# Two GPUs behind one switch, with a peer link between them and ports of a fabric.
SECTION: dict[str, Any] = {
    "links": {
        "DDR4 x4": rates("70 B/s", "70 B/s", "0 s", "shared"),
        "PCIe gen3 x16": rates("12 B/s", "13 B/s", "2 us", "lossy_duplex")
        | {"kept_down": figure(0.9), "kept_up": figure(0.8)},
        "NVLink-1": rates("20 B/s", "19 B/s", "1 us", "split_duplex"),
        "port": rates("40 B/s", "41 B/s", "3 us", "split_duplex"),
    },
    "nodes": {
        "memory": {"kind": "host memory"},
        "socket0": {"kind": "socket", "parent": "memory", "link": "DDR4 x4"},
        "switch0": {"kind": "switch", "parent": "socket0", "link": "PCIe gen3 x16"},
        "gpu0": {"kind": "gpu", "parent": "switch0", "link": "PCIe gen3 x16"},
        "gpu1": {"kind": "gpu", "parent": "switch0", "link": "PCIe gen3 x16"},
    },
    "peers": [{"gpus": ["gpu0", "gpu1"], "link": "NVLink-1"}],
    "fabric": {"gpus": ["gpu0", "gpu1"], "link": "port"},
}
PROFILE = {key: value for key, value in TOY.items() if key != "link"}


def write(folder: Path, section: object, **others: object) -> Path:
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(PROFILE | {"topology": section} | others, sort_keys=False), encoding="utf-8")
    return path


def message_of(folder: Path, section: object) -> str:
    place, _, message = refusal(write(folder, section)).partition("topology.")
    assert not place
    return message


def pcie(name: str) -> TopologyLink:
    return TopologyLink(name, 12.0, 13.0, 2e-6, Sharing.LOSSY_DUPLEX, 0.9, 0.8, kind="PCIe gen3 x16")


def test_a_section_becomes_a_topology_whatever_the_order_of_its_nodes(tmp_path: Path) -> None:
    """A link of the tree is named after both its ends, a peer link after its GPUs, a port after the fabric."""
    dram = TopologyLink("memory-socket0", 70.0, 70.0, 0.0, Sharing.SHARED, kind="DDR4 x4")
    nvlink = TopologyLink("gpu0-gpu1", 20.0, 19.0, 1e-6, Sharing.SPLIT_DUPLEX, kind="NVLink-1")
    ports = [TopologyLink(f"fabric-gpu{n}", 40.0, 41.0, 3e-6, Sharing.SPLIT_DUPLEX, kind="port") for n in (0, 1)]
    assert read_profile(write(tmp_path, SECTION)).topology == Topology(
        nodes=(
            Node("memory", NodeKind.HOST_MEMORY, None, None),
            Node("socket0", NodeKind.SOCKET, "memory", dram),
            Node("switch0", NodeKind.SWITCH, "socket0", pcie("socket0-switch0")),
            Node("gpu0", NodeKind.GPU, "switch0", pcie("switch0-gpu0")),
            Node("gpu1", NodeKind.GPU, "switch0", pcie("switch0-gpu1")),
        ),
        peers=(PeerLink("gpu0", "gpu1", nvlink),),
        ports=(FabricPort("gpu0", ports[0]), FabricPort("gpu1", ports[1])),
    )
    # Reversed, gpu1 comes first; before it in the file stands a GPU at the socket, nearer to the root.
    nodes = dict(reversed(SECTION["nodes"].items()))
    nodes = {"near": {"kind": "gpu", "parent": "socket0", "link": "port"}} | nodes
    topology = read_profile(write(tmp_path, SECTION | {"nodes": nodes})).topology
    assert topology is not None
    assert [gpu.name for gpu in topology.gpus] == ["near", "gpu1", "gpu0"]
    assert [node.name for node in topology.nodes[:3]] == ["memory", "socket0", "switch0"]
    # Three of each of four types, and what a lossy link keeps.
    figures = [each for each in read_profile(write(tmp_path, SECTION)).figures if each.path.startswith("topology.")]
    assert len(figures) == 4 * 3 + 2
    assert figures[3].path == "topology.links.'PCIe gen3 x16'.down"
    assert (figures[3].text, figures[3].source) == ("12 B/s", "a page")


STATED_LINK = {"name": "wire", "h2d": figure("3 B/s"), "d2h": figure("4 B/s"), "latency": figure("5 ms")}


def test_a_link_that_is_left_out_is_the_path_of_the_first_gpu(tmp_path: Path) -> None:
    """The least of 70, 12 and 12 B/s down, of 70, 13 and 13 B/s up; 0 + 2 + 2 us."""
    assert read_profile(write(tmp_path, SECTION)).link == Link("PCIe gen3 x16", 12.0, 13.0, 4e-6)
    assert read_profile(write(tmp_path, SECTION, link=STATED_LINK)).link == Link("wire", 3.0, 4.0, 0.005)
    # Without a topology the link must be stated.
    path = tmp_path / "toy.yaml"
    path.write_text(yaml.safe_dump(PROFILE))
    assert "missing are link" in refusal(path)


@pytest.mark.parametrize("with_link", [False, True])
def test_a_topology_that_is_written_reads_back_as_the_same(tmp_path: Path, with_link: bool) -> None:  # noqa: FBT001
    path = write(tmp_path, SECTION, **({"link": STATED_LINK} if with_link else {}))
    server = read_profile(path)
    path.write_text(profile_text(server, "a toy"), encoding="utf-8")
    assert read_profile(path) == server


CLUSTER = SECTION | {
    "links": {**SECTION["links"], "port": SECTION["links"]["port"] | {"nccl": figure("30 B/s")}},
    "fabric": SECTION["fabric"] | {"multicast": True},
    "network": [{"gpus": ["gpu1"], "link": "NVLink-1"}, {"gpus": ["gpu0"], "link": "port"}],
    "peer_to_peer": False,
}


def test_a_fabric_that_sums_and_network_cards_are_read_and_written(tmp_path: Path) -> None:
    """A card's link is named after its first GPU; what NCCL reaches is a figure like the others."""
    path = write(tmp_path, CLUSTER)
    topology = read_profile(path).topology
    assert topology is not None
    port = TopologyLink("network-gpu0", 40.0, 41.0, 3e-6, Sharing.SPLIT_DUPLEX, nccl_bytes_per_s=30.0, kind="port")
    assert topology.cards[1] == NetworkCard(("gpu0",), port)
    assert (topology.multicast, topology.peer_to_peer, topology.port(1)) == (True, False, "fabric-gpu1")
    path.write_text(profile_text(read_profile(path), "a toy"), encoding="utf-8")
    assert read_profile(path).topology == topology


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("network", [{"gpus": ["gpu1"], "link": "port"}], "network: found none for gpu0, expected a network card for"),
        (
            "network",
            [{"gpus": ["gpu0"], "link": "port"}, {"gpus": ["gpu0"], "link": "port"}],
            "network[1].gpus: gpu0 has a network card already",
        ),
        ("network", [{"gpus": ["gpu7"], "link": "port"}], "network[0].gpus[0]: 'gpu7' is not a GPU of this topology"),
        ("peer_to_peer", "no", "peer_to_peer: found 'no', expected true or false"),
        ("fabric", {**SECTION["fabric"], "multicast": 1}, "fabric.multicast: found 1, expected true or false"),
    ],
)
def test_wrong_network_cards_are_refused(tmp_path: Path, key: str, value: object, message: str) -> None:
    assert message_of(tmp_path, CLUSTER | {key: value}).startswith(message)


def test_hosts_of_a_cluster_are_read_and_written(tmp_path: Path) -> None:
    path = write(tmp_path, CLUSTER, hosts=3)
    assert read_profile(path).hosts == 3
    path.write_text(profile_text(read_profile(path), "a toy"), encoding="utf-8")
    assert read_profile(path).hosts == 3
    assert read_profile(write(tmp_path, SECTION, hosts=1)).hosts == 1
    assert read_profile(write(tmp_path, SECTION)).hosts is None


@pytest.mark.parametrize(
    ("section", "hosts", "message"),
    [
        *((CLUSTER, each, "expected an integer from 1 to 10000") for each in (0, 10_001, 1.5, True, "two", None, [2])),
        (SECTION, 2, "hosts: found 2, expected a 'network' in the topology"),
    ],
)
def test_wrong_hosts_are_refused(tmp_path: Path, section: object, hosts: object, message: str) -> None:
    assert message in refusal(write(tmp_path, section, hosts=hosts))


def test_a_profile_takes_the_topology_of_another(tmp_path: Path) -> None:
    """Its link is the path of the other's first GPU; the card that it extends keeps all but its own link."""
    (tmp_path / "card.yaml").write_text(yaml.safe_dump(TOY | {"name": "card"}), encoding="utf-8")
    write(tmp_path, SECTION)
    path = tmp_path / "both.yaml"
    both = {"schema_version": 1, "name": "both", "extends": "card", "description": "a toy", "topology": "toy"}
    path.write_text(yaml.safe_dump(both), encoding="utf-8")
    profile = load_profile(path)
    assert profile.server.topology == read_profile(tmp_path / "toy.yaml").topology
    assert profile.server.link == Link("PCIe gen3 x16", 12.0, 13.0, 4e-6)
    assert profile.server.gpu == read_profile(tmp_path / "card.yaml").gpu
    assert [Path(name).name for name, _ in profile.read_from] == ["card.yaml", "toy.yaml"]
    path.write_text(yaml.safe_dump(both | {"topology": "card"}), encoding="utf-8")
    assert "topology: found nothing" in refusal(path)
    path.write_text(yaml.safe_dump(both | {"topology": "rtx_4090_x9"}), encoding="utf-8")
    assert refusal(path).startswith("topology: 'rtx_4090_x9' is not a hardware profile; did you mean")


def test_a_profile_states_another_rate_of_a_link_of_the_topology_that_it_extends(tmp_path: Path) -> None:
    """The port sends 99 B/s down; its other figures and all else are those of the base."""
    write(tmp_path, SECTION)
    path = tmp_path / "faster.yaml"
    faster = {"schema_version": 1, "name": "faster", "extends": "toy", "description": "a toy"}
    links = {"port": {"down": figure("99 B/s")}}
    path.write_text(yaml.safe_dump(faster | {"topology": {"links": links}}), encoding="utf-8")
    base, found = read_profile(tmp_path / "toy.yaml").topology, read_profile(path).topology
    assert base is not None
    assert found is not None
    assert {name for name, each in found.links.items() if each != base.links[name]} == {
        name for name, each in base.links.items() if each.kind == "port"
    }
    assert {each.down_bytes_per_s for each in found.links.values() if each.kind == "port"} == {99.0}
    assert found.nodes == base.nodes


GPU = {"kind": "gpu", "parent": "switch0", "link": "PCIe gen3 x16"}


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        ("nodes gpu1", {"kind": "gpu"}, "nodes.gpu1: has no path to host memory: 'parent' is missing"),
        ("nodes switch0", {"kind": "switch", "link": "port"}, "nodes.switch0: leads to no host memory: 'parent' is"),
        ("nodes socket0 parent", "switch0", "nodes.socket0: has no path to host memory: socket0 -> switch0 -> socket0"),
        ("nodes switch0 parent", "switch0", "nodes.switch0: has no path to host memory: switch0 -> switch0 is a cycle"),
        ("nodes gpu1 parent", "swich0", "nodes.gpu1.parent: 'swich0' is not a node that others hang on; did you mean"),
        ("nodes gpu1 parent", "gpu0", "nodes.gpu1.parent: 'gpu0' is not a node that others hang on"),
        ("nodes heap", {"kind": "host memory"}, "nodes: found 2 nodes (memory, heap) of kind host memory"),
        ("nodes memory", None, "nodes: found no node of kind host memory"),
        ("nodes", {"memory": {"kind": "host memory"}}, "nodes: found no nodes of kind gpu"),
        ("nodes gpu1 link", None, "nodes.gpu1: 'link' is missing"),
        ("nodes memory link", "port", "nodes.memory: is host memory, the root of the tree"),
        ("nodes gpu1 kind", "tpu", "nodes.gpu1.kind: 'tpu' is not a kind of node"),
        ("nodes fabric", GPU, "nodes.fabric: is not a name of a node"),
        ("nodes network", GPU, "nodes.network: is not a name of a node"),
        ("nodes GPU_2", GPU, "nodes.GPU_2: is not a name of a node"),
        ("nodes gpu1 link", "NVLink-2", "nodes.gpu1.link: 'NVLink-2' is not a type of link"),
        ("peers 0 gpus", ["gpu0", "gpu2"], "peers[0].gpus[1]: 'gpu2' is not a GPU of this topology; did you mean"),
        ("peers 0 gpus", ["gpu0", "switch0"], "peers[0].gpus[1]: 'switch0' is not a GPU of this topology"),
        ("peers 0 gpus", ["gpu1", "gpu1"], "peers[0].gpus[1]: gpu1 is listed already"),
        ("peers 0 gpus", ["gpu1"], "peers[0].gpus: found 1 GPUs, expected two"),
        ("peers", [*SECTION["peers"], {"gpus": ["gpu1", "gpu0"], "link": "NVLink-1"}], "peers[1].gpus: gpu1 and gpu0"),
        ("fabric gpus", ["gpu0", "gpu7"], "fabric.gpus[1]: 'gpu7' is not a GPU of this topology"),
        ("peers", None, "links.NVLink-1: is used by no link"),
        ("links port sharing", "half", "links.port.sharing: 'half' is not a way of sharing"),
        ("links port kept_up", figure(0.5), "links.port.kept_up: found in a link that is split_duplex"),
        ("links PCIE kept_up", None, "links.'PCIe gen3 x16': 'kept_up' is missing"),
        ("links PCIE kept_up", figure(1.5), "links.'PCIe gen3 x16'.kept_up.value: found 1.5"),
        ("links port down", "40 GB/s", "links.port.down: found '40 GB/s'"),
        ("links v1.0", SECTION["links"]["port"], "links.v1.0: is not a name of a link type"),
    ],
)
def test_a_wrong_section_is_refused_in_one_line(tmp_path: Path, keys: str, value: object, message: str) -> None:
    """One value of the section set, or removed where it is None."""
    section = copy.deepcopy(SECTION)
    place: Any = section
    *above, last = (int(key) if key == "0" else key.replace("PCIE", "PCIe gen3 x16") for key in keys.split())
    for key in above:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    assert message_of(tmp_path, section).startswith(message)


def test_more_than_64_gpus_are_refused(tmp_path: Path) -> None:
    nodes = {**SECTION["nodes"], **{f"more{number}": dict(GPU) for number in range(63)}}
    assert message_of(tmp_path, SECTION | {"nodes": nodes}).startswith("nodes: found 65 nodes of kind gpu")


def test_a_deep_tree_is_read() -> None:
    """2,000 switches, each under the next, the deepest first: the way of the GPU below them has 2,001 links."""
    names = [f"s{number}" for number in range(2000)]
    above = [*names[1:], "memory"]
    switches = {
        name: {"kind": "switch", "parent": parent, "link": "PCIe"} for name, parent in zip(names, above, strict=True)
    }
    nodes = {"gpu0": {"kind": "gpu", "parent": "s0", "link": "PCIe"}, **switches, "memory": {"kind": "host memory"}}
    section = {"links": {"PCIe": rates("12 B/s", "13 B/s", "0 s", "split_duplex")}, "nodes": nodes}
    topology = read_topology(Entry("deep.yaml", "topology", section, ProfileError), Figures())  # type: ignore[arg-type]  # as YAML has it
    assert len(topology.to_host(0)) == 2001
    assert topology.nodes[1].name == "s1999"
