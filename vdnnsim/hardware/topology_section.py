"""The section `topology` of a profile, read and written: links by type, nodes as a tree, and what else joins GPUs.

    topology:
      links:
        DDR4 x4:       {down: ..., up: ..., latency: ..., sharing: shared}
        PCIe gen3 x16: {down: ..., up: ..., latency: ..., sharing: lossy_duplex, kept_down: ..., kept_up: ...}
        NVLink 1:      {down: ..., up: ..., latency: ..., sharing: split_duplex}
      nodes:
        memory:  {kind: host memory}
        socket0: {kind: socket, parent: memory, link: DDR4 x4}
        switch0: {kind: switch, parent: socket0, link: PCIe gen3 x16}
        gpu0:    {kind: gpu, parent: switch0, link: PCIe gen3 x16}
        gpu1:    {kind: gpu, parent: switch0, link: PCIe gen3 x16}
      peers:
        - {gpus: [gpu0, gpu1], link: NVLink 1}
      fabric: {gpus: [gpu0, gpu1], link: NVLink 4, multicast: true}
      network:
        - {gpus: [gpu0, gpu1], link: InfiniBand NDR}
      peer_to_peer: false

`...` are figures. Down is toward the GPUs, up toward host memory; of a peer link down is from its first GPU to its
second. GPUs are numbered in the order of the file. With two sockets, a GPU copies to the memory of its own. `nccl` of
a link is what collectives reach of it (`vdnnsim.cost.nccl`); `multicast` says that the fabric sums, `peer_to_peer` that
GPUs reach each other over PCIe, which GeForce cards do not. `network` has the network cards, each with its GPUs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from vdnnsim.files.messages import not_one_of, quote
from vdnnsim.files.value import Entry
from vdnnsim.hardware.figures import Figures, figure_lines, keys_of, quoted
from vdnnsim.hardware.server import Figure, Link
from vdnnsim.hardware.topology import FabricPort, NetworkCard, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink

MOST_GPUS: Final = 64
FIGURES_AT: Final = "topology.links."
"""Prefix of the key paths of a topology's figures, before the type of link, which is quoted if it has blanks."""
_FABRIC, _NETWORK, _PEER_TO_PEER, _MULTICAST = "fabric", "network", "peer_to_peer", "multicast"
_NODE_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LINK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _-]{0,39}")


def read_topology(entry: Entry, figures: Figures) -> Topology:
    """Return the topology of a section.

    Raises:
        ProfileError: it is no tree from host memory to at least one GPU, or names an unknown node or link.
    """
    keys = entry.members(("links", "nodes"), ("peers", _FABRIC, _NETWORK, _PEER_TO_PEER))
    types = _LinkTypes(keys["links"], figures)
    nodes = _nodes(keys["nodes"], types)
    gpus = [node.name for node in nodes if node.kind is NodeKind.GPU]
    peers = tuple(_peers(keys["peers"], gpus, types)) if "peers" in keys else ()
    ports, multicast = _fabric(keys[_FABRIC], gpus, types) if _FABRIC in keys else ((), False)
    cards = tuple(_cards(keys[_NETWORK], gpus, types)) if _NETWORK in keys else ()
    types.refuse_unused()
    return Topology(nodes, peers, ports, cards, _PEER_TO_PEER not in keys or keys[_PEER_TO_PEER].boolean(), multicast)


def host_link(topology: Topology) -> Link:
    """Return the path of GPU 0 to host memory as one link: the least rate, the sum of latencies."""
    up = topology.to_host(0)
    path = [topology.links[hop.link] for hop in up]
    return Link(
        name=path[0].kind,
        h2d_bytes_per_s=min(link.down_bytes_per_s for link in path),
        d2h_bytes_per_s=min(link.up_bytes_per_s for link in path),
        latency_s=topology.latency_s(up),
    )


def topology_lines(topology: Topology, figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the section as lines of YAML; links of one type share their figures."""
    sharing = {link.kind: link.sharing.value for link in topology.links.values()}
    yield from ("", "topology:", "  links:")
    written: set[str] = set()
    for figure in figures:
        stated_kind, _, key = figure.path.removeprefix(FIGURES_AT).rpartition(".")
        kind = stated_kind.strip("'")
        if kind not in written:
            written.add(kind)
            yield from (f"    {kind}:", f"      sharing: {sharing[kind]}")
        yield from figure_lines("      ", key, figure)
    assert written == set(sharing), "links without figures"
    yield "  nodes:"
    for node in topology.nodes:
        hangs = f", parent: {node.parent}, link: {quoted(node.link.kind)}" if node.link is not None else ""
        yield f"    {node.name}: {{kind: {node.kind.value}{hangs}}}"
    if topology.peers:
        yield "  peers:"
        for peer in topology.peers:
            yield f"    - {{gpus: [{peer.first}, {peer.second}], link: {quoted(peer.link.kind)}}}"
    if topology.ports:
        names = ", ".join(port.gpu for port in topology.ports)
        yield from ("  fabric:", f"    gpus: [{names}]", f"    link: {quoted(topology.ports[0].link.kind)}")
        if topology.multicast:
            yield "    multicast: true"
    if topology.cards:
        yield "  network:"
        for card in topology.cards:
            yield f"    - {{gpus: [{', '.join(card.gpus)}], link: {quoted(card.link.kind)}}}"
    if not topology.peer_to_peer:
        yield "  peer_to_peer: false"


class _LinkTypes:
    """The types of links of a section, and which of them are used."""

    def __init__(self, entry: Entry, figures: Figures) -> None:
        self._entries = entry.named_members("types of links")
        self._links = {name: _link_type(name, each, figures) for name, each in self._entries.items()}
        self._used: set[str] = set()

    def link(self, entry: Entry, name: str) -> TopologyLink:
        kind = entry.name(list(self._links), "a type of link")
        self._used.add(kind)
        return self._links[kind](name)

    def refuse_unused(self) -> None:
        for name, entry in self._entries.items():
            if name not in self._used:
                raise entry.wrong("is used by no link; expected a node, peers, the fabric or the network to use it")


def _link_type(kind: str, entry: Entry, figures: Figures) -> Callable[[str], TopologyLink]:
    if not _LINK_NAME.fullmatch(kind):
        raise entry.wrong("is not a name of a link type, expected letters, digits, blanks and any of _-")
    required, optional = keys_of(TopologyLink)
    required.append("sharing")
    kept = [key for key in optional if key.startswith("kept_")]
    keys = entry.members(required, optional)
    sharing = keys["sharing"].choice(Sharing, "a way of sharing")
    if sharing is Sharing.LOSSY_DUPLEX:
        keys = entry.members((*required, *kept), optional)
    else:
        for key in kept:
            if key in keys:
                raise keys[key].wrong(f"found in a link that is {sharing.value}, expected in lossy_duplex alone")
    stated = figures.fields(TopologyLink, keys)
    return lambda name: TopologyLink(name, sharing=sharing, kind=kind, **stated)


@dataclass(frozen=True, slots=True)
class _StatedNode:
    """A node as stated, before the tree is checked."""

    entry: Entry
    kind: NodeKind
    parent: Entry | None
    link: Entry | None


def _nodes(entry: Entry, types: _LinkTypes) -> tuple[Node, ...]:
    """Return the nodes, each after its parent and the GPUs last."""
    stated = {name: _stated(name, each) for name, each in entry.named_members("nodes").items()}
    roots = [name for name, node in stated.items() if node.kind is NodeKind.HOST_MEMORY]
    if len(roots) != 1:
        found = f"{len(roots)} nodes ({', '.join(roots)})" if roots else "no node"
        raise entry.wrong(f"found {found} of kind {NodeKind.HOST_MEMORY.value}, expected one, the root of the tree")
    gpus = [name for name, node in stated.items() if node.kind is NodeKind.GPU]
    if not 1 <= len(gpus) <= MOST_GPUS:
        raise entry.wrong(f"found {len(gpus) or 'no'} nodes of kind gpu, expected 1 to {MOST_GPUS}")
    above = [name for name, node in stated.items() if node.kind is not NodeKind.GPU]
    what = "a node that others hang on"
    parents = {name: None if node.parent is None else node.parent.name(above, what) for name, node in stated.items()}
    depths = _depths(parents, stated)
    order = sorted(stated, key=lambda name: (stated[name].kind is NodeKind.GPU, depths[name]))
    return tuple(_node(name, stated[name], parents[name], types) for name in order)


def _stated(name: str, entry: Entry) -> _StatedNode:
    if not _NODE_NAME.fullmatch(name) or name in (_FABRIC, _NETWORK):
        raise entry.wrong(f"is not a name of a node, expected small letters, digits and _, and not {quote(name)}")
    keys = entry.members(("kind",), ("parent", "link"))
    kind = keys["kind"].choice(NodeKind, "a kind of node")
    if kind is NodeKind.HOST_MEMORY:
        if len(keys) > 1:
            raise entry.wrong("is host memory, the root of the tree, expected neither parent nor link")
    elif "parent" not in keys:
        gone = "has no path to host memory" if kind is NodeKind.GPU else "leads to no host memory"
        raise entry.wrong(f"{gone}: 'parent' is missing, expected the node above it")
    else:
        keys = entry.members(("kind", "parent", "link"))
    return _StatedNode(entry, kind, keys.get("parent"), keys.get("link"))


def _depths(parents: Mapping[str, str | None], stated: Mapping[str, _StatedNode]) -> Mapping[str, int]:
    """Return the number of links between each node and host memory."""
    above = {name: [] if parent is None else [parent] for name, parent in parents.items()}
    depths: dict[str, int] = {}
    try:
        for name in TopologicalSorter(above).static_order():
            depths[name] = max((depths[parent] + 1 for parent in above[name]), default=0)
    except CycleError as failure:
        circle = failure.args[1][::-1]
        message = f"has no path to host memory: {' -> '.join(circle)} is a cycle, expected a tree"
        raise stated[circle[0]].entry.wrong(message) from None
    return depths


def _node(name: str, stated: _StatedNode, parent: str | None, types: _LinkTypes) -> Node:
    link = types.link(stated.link, f"{parent}-{name}") if stated.link is not None else None
    return Node(name, stated.kind, parent, link)


def _peers(entry: Entry, gpus: list[str], types: _LinkTypes) -> Iterator[PeerLink]:
    seen: set[frozenset[str]] = set()
    for item in entry.items("peer links"):
        keys = item.members(("gpus", "link"))
        names = _gpu_names(keys["gpus"], gpus)
        if len(names) != len(("first", "second")):
            raise keys["gpus"].wrong(f"found {len(names)} GPUs, expected two")
        if frozenset(names) in seen:
            raise keys["gpus"].wrong(f"{names[0]} and {names[1]} have a peer link already, expected one")
        seen.add(frozenset(names))
        first, second = names
        yield PeerLink(first, second, types.link(keys["link"], f"{first}-{second}"))


def _fabric(entry: Entry, gpus: list[str], types: _LinkTypes) -> tuple[tuple[FabricPort, ...], bool]:
    """Return the ports of the fabric, and whether it sums."""
    keys = entry.members(("gpus", "link"), (_MULTICAST,))
    names = _gpu_names(keys["gpus"], gpus)
    ports = tuple(FabricPort(name, types.link(keys["link"], f"{_FABRIC}-{name}")) for name in names)
    return ports, _MULTICAST in keys and keys[_MULTICAST].boolean()


def _cards(entry: Entry, gpus: list[str], types: _LinkTypes) -> Iterator[NetworkCard]:
    left = list(gpus)
    for item in entry.items("network cards"):
        keys = item.members(("gpus", "link"))
        names = _gpu_names(keys["gpus"], gpus)
        for name in names:
            if name not in left:
                raise keys["gpus"].wrong(f"{name} has a network card already, expected one")
            left.remove(name)
        yield NetworkCard(tuple(names), types.link(keys["link"], f"{_NETWORK}-{names[0]}"))
    if left:
        raise entry.wrong(f"found none for {left[0]}, expected a network card for each GPU")


def _gpu_names(entry: Entry, gpus: list[str]) -> list[str]:
    items = entry.items("GPUs")
    names: list[str] = []
    for item in items:
        if item.text() not in gpus:
            raise item.wrong(not_one_of(item.text(), gpus, "a GPU of this topology"))
        if item.text() in names:
            raise item.wrong(f"{item.text()} is listed already, expected each GPU once")
        names.append(item.text())
    return names
