"""Tree of a server's topology on the terminal, with peer links and fabric."""

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from vdnnsim.hardware.server import Link, Server
from vdnnsim.hardware.topology import Node, NodeKind, Sharing, Topology, TopologyLink
from vdnnsim.units import Dimension, format_bytes, format_seconds, quantity_text

_INDENT = "  "


def topology_tree(server: Server) -> RenderableType:
    """Return the tree of a server; without a topology that of one GPU on its link."""
    topology = server.topology or _one_gpu(server.link)
    hosts = f"{server.hosts} hosts of " if (server.hosts or 1) > 1 else ""
    title = f"{server.name}: {hosts}{len(topology.gpus)} x {server.gpu.name}"
    lines: list[RenderableType] = [Text(title, style="bold")]
    root, *others = topology.nodes
    trees = {root.name: Tree(Text(f"{root.name}  {root.kind.value}, {format_bytes(server.host.memory_bytes)}"))}
    for node in others:
        assert node.parent is not None
        trees[node.name] = trees[node.parent].add(_node_text(node, server))
    lines.append(trees[root.name])
    if topology.peers:
        lines.append(Text("peer links", style="bold"))
        lines += [
            Text(f"{_INDENT}{peer.first} to {peer.second}  {link_text(peer.link, 'there', 'back')}")
            for peer in topology.peers
        ]
    if topology.ports:
        names = ", ".join(port.gpu for port in topology.ports)
        lines.append(Text("fabric", style="bold"))
        lines.append(Text(f"{_INDENT}{names}, each  {link_text(topology.ports[0].link)}"))
    if topology.cards:
        lines.append(Text("network", style="bold"))
        lines += [Text(f"{_INDENT}{', '.join(card.gpus)}  {link_text(card.link)}") for card in topology.cards]
    return Group(*lines)


def link_text(link: TopologyLink, down: str = "down", up: str = "up") -> str:
    """Return a link in one line: `PCIe gen3 x16, 12 GB/s down, 13 GB/s up, lossy duplex 96%/96%`."""
    if link.sharing is Sharing.SHARED:
        rates = [f"{_rate(max(link.down_bytes_per_s, link.up_bytes_per_s))} for both directions"]
    else:
        rates = [f"{_rate(link.down_bytes_per_s)} {down}", f"{_rate(link.up_bytes_per_s)} {up}"]
    shares = link.sharing.value.replace("_", " ")
    if link.sharing is Sharing.LOSSY_DUPLEX:
        shares += f" {link.kept_down:.0%}/{link.kept_up:.0%}"
    latency = [format_seconds(link.latency_s)] if link.latency_s else []
    return ", ".join([link.kind, *rates, shares, *latency])


def _node_text(node: Node, server: Server) -> Text:
    assert node.link is not None
    memory = f", {format_bytes(server.gpu.memory_bytes)}" if node.kind is NodeKind.GPU else ""
    text = Text(f"{node.name}{memory}  ", style="bold" if node.kind is NodeKind.GPU else "")
    return text.append(link_text(node.link), style="not bold")


def _one_gpu(link: Link) -> Topology:
    wire = TopologyLink(
        "memory-gpu0", link.h2d_bytes_per_s, link.d2h_bytes_per_s, link.latency_s, Sharing.SPLIT_DUPLEX, kind=link.name
    )
    return Topology((Node("memory", NodeKind.HOST_MEMORY, None, None), Node("gpu0", NodeKind.GPU, "memory", wire)))


def _rate(bytes_per_s: float) -> str:
    return quantity_text(bytes_per_s, Dimension.BYTES_PER_SECOND)
