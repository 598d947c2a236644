from dataclasses import replace

from tests.machines import shipped_server
from tests.unit.report.test_terminal import printed
from vdnnsim.hardware.topology import FabricPort, NetworkCard, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink
from vdnnsim.report.tables.topology import topology_tree

TITAN = shipped_server("titan_x_maxwell")
DRAM = TopologyLink("memory-socket0", 68e9, 68e9, 0.0, Sharing.SHARED, kind="DDR4")
NVLINK = TopologyLink("gpu0-gpu1", 20e9, 19e9, 1e-6, Sharing.SPLIT_DUPLEX, kind="NVLink 1")


def pcie(name: str) -> TopologyLink:
    return TopologyLink(name, 12e9, 13e9, 2e-6, Sharing.LOSSY_DUPLEX, 0.9, 0.75, kind="PCIe gen3 x16")


def test_the_tree_shows_every_link_and_what_joins_gpus_beside_it() -> None:
    nodes = (
        Node("memory", NodeKind.HOST_MEMORY, None, None),
        Node("socket0", NodeKind.SOCKET, "memory", DRAM),
        Node("gpu0", NodeKind.GPU, "socket0", pcie("socket0-gpu0")),
        Node("gpu1", NodeKind.GPU, "socket0", pcie("socket0-gpu1")),
    )
    ports = tuple(FabricPort(gpu, replace(NVLINK, name=f"fabric-{gpu}", kind="port")) for gpu in ("gpu0", "gpu1"))
    cards = (NetworkCard(("gpu0", "gpu1"), replace(NVLINK, name="network-gpu0", kind="NDR")),)
    topology = Topology(nodes, (PeerLink("gpu0", "gpu1", NVLINK),), ports, cards)
    gpu = "12.0 GiB  PCIe gen3 x16, 12 GB/s down, 13 GB/s up, lossy duplex 90%/75%, 2.00 us"
    assert printed(topology_tree(replace(TITAN, topology=topology, hosts=4)), width=120) == [
        "titan_x_maxwell: 4 hosts of 2 x NVIDIA GeForce GTX Titan X (Maxwell)",
        "memory  host memory, 64.0 GiB",
        "└── socket0  DDR4, 68 GB/s for both directions, shared",
        f"    ├── gpu0, {gpu}",
        f"    └── gpu1, {gpu}",
        "peer links",
        "  gpu0 to gpu1  NVLink 1, 20 GB/s there, 19 GB/s back, split duplex, 1.00 us",
        "fabric",
        "  gpu0, gpu1, each  port, 20 GB/s down, 19 GB/s up, split duplex, 1.00 us",
        "network",
        "  gpu0, gpu1  NDR, 20 GB/s down, 19 GB/s up, split duplex, 1.00 us",
    ]


def test_a_machine_without_a_topology_is_one_gpu_on_its_link() -> None:
    assert printed(topology_tree(TITAN), width=120) == [
        "titan_x_maxwell: 1 x NVIDIA GeForce GTX Titan X (Maxwell)",
        "memory  host memory, 64.0 GiB",
        "└── gpu0, 12.0 GiB  PCIe gen3 x16, 12.8 GB/s down, 12.8 GB/s up, split duplex, 10.0 us",
    ]
