"""The topology of a server with several GPUs: a tree from host memory to the GPUs, and peer links between GPUs.

    host memory ── socket0 ── switch0 ── gpu0
                                   └──── gpu1

Every node but the root has a link to its parent. A copy crosses each link of its path in one direction, and concurrent
copies share links (`vdnnsim.hardware.fair_share`). The bandwidth of host memory is that of the link below the root. A
copy between GPUs takes their peer link, else the fabric that joins their ports, else the path through the tree, which
turns below their common ancestor, or in host memory where GPUs cannot reach each other over PCIe.

More GPUs than a server has are several servers of the kind, joined by their network cards. A GPU reaches the card that
is its own over its link to its parent, where the card is plugged in, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from vdnnsim.hardware.fair_share import max_min_rates
from vdnnsim.hardware.ring_search import closed_ring
from vdnnsim.hardware.stated_figure import FRACTION, RATE, TIME, Stated


class NodeKind(Enum):
    """Kinds of nodes of the tree."""

    HOST_MEMORY = "host memory"
    SOCKET = "socket"
    SWITCH = "switch"
    GPU = "gpu"


class Sharing(Enum):
    """How the two directions of a link share its capacity.

    `shared`: one capacity for both. `split_duplex`: each direction has its own. `lossy_duplex`: each has its own, of
    which a measured fraction is left while the other direction is busy.
    """

    SHARED = "shared"
    SPLIT_DUPLEX = "split_duplex"
    LOSSY_DUPLEX = "lossy_duplex"


class Way(Enum):
    """Directions over a link: down the tree, toward the GPUs (H2D), or up (D2H)."""

    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True)
class TopologyLink:
    """One link.

    Attributes:
        down_bytes_per_s, up_bytes_per_s: capacity of each direction alone; of a peer link down is from its first GPU to
            its second. The capacity of a shared link is the larger of both.
        kept_down, kept_up: of a lossy duplex link, the fraction of a direction that is left while the other is busy.
        nccl_bytes_per_s: what kernels of NCCL reach in each direction, however idle it is; None for all of it.
        kind: its type in the profile; empty if not known.
    """

    name: str
    down_bytes_per_s: Annotated[float, Stated("down", RATE, "rate toward the GPUs")]
    up_bytes_per_s: Annotated[float, Stated("up", RATE, "rate toward host memory")]
    latency_s: Annotated[float, Stated("latency", TIME, "latency of a copy that crosses it")]
    sharing: Sharing
    kept_down: Annotated[float, Stated("kept_down", FRACTION, "share of down while up is busy")] = 1.0
    kept_up: Annotated[float, Stated("kept_up", FRACTION, "share of up while down is busy")] = 1.0
    nccl_bytes_per_s: Annotated[float | None, Stated("nccl", RATE, "rate that collectives reach")] = None
    kind: str = ""

    def alone_bytes_per_s(self, way: "Way") -> float:
        """Return its capacity in one direction while the other is idle."""
        if self.sharing is Sharing.SHARED:
            return max(self.down_bytes_per_s, self.up_bytes_per_s)
        return self.down_bytes_per_s if way is Way.DOWN else self.up_bytes_per_s

    def beside_bytes_per_s(self, way: "Way") -> float:
        """Return its capacity in one direction while the other is busy; of a shared link, that of both together."""
        kept = self.kept_down if way is Way.DOWN else self.kept_up
        return self.alone_bytes_per_s(way) * (kept if self.sharing is Sharing.LOSSY_DUPLEX else 1)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `link` leads to its parent, and the root has neither."""

    name: str
    kind: NodeKind
    parent: str | None
    link: TopologyLink | None


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A link between two GPUs beside the tree."""

    first: str
    second: str
    link: TopologyLink


@dataclass(frozen=True, slots=True)
class FabricPort:
    """The link of a GPU to a switch that joins all GPUs with such a port, as NVSwitch does; down is toward the GPU."""

    gpu: str
    link: TopologyLink


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """A network card, which some GPUs of a server share; its link leads to the network, down is toward the server."""

    gpus: tuple[str, ...]
    link: TopologyLink


@dataclass(frozen=True, slots=True)
class Hop:
    """One link crossed in one direction; of several servers of one kind, the host tells which."""

    link: str
    way: Way
    host: int = 0


@dataclass(frozen=True)
class Topology:
    """The tree, peer links, fabric ports and network cards of a server.

    Attributes:
        nodes: each after its parent, the root first; GPUs are numbered in this order.
        cards: each GPU has one, or there are none.
        peer_to_peer: whether GPUs reach each other through the tree without host memory.
        multicast: whether the fabric adds up and distributes what GPUs send, as NVSwitch does from Hopper on.
    """

    nodes: tuple[Node, ...]
    peers: tuple[PeerLink, ...] = ()
    ports: tuple[FabricPort, ...] = ()
    cards: tuple[NetworkCard, ...] = ()
    peer_to_peer: bool = True
    multicast: bool = False

    @cached_property
    def gpus(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is NodeKind.GPU)

    @cached_property
    def links(self) -> Mapping[str, TopologyLink]:
        tree = [node.link for node in self.nodes if node.link]
        peers, ports = [peer.link for peer in self.peers], [port.link for port in self.ports]
        return {link.name: link for link in (*tree, *peers, *ports, *(card.link for card in self.cards))}

    @cached_property
    def _by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def to_host(self, gpu: int) -> tuple[Hop, ...]:
        """Return the path of a D2H copy of a GPU."""
        hops, node = [], self.gpus[gpu]
        while node.parent is not None and node.link is not None:
            hops.append(Hop(node.link.name, Way.UP))
            node = self._by_name[node.parent]
        return tuple(hops)

    def from_host(self, gpu: int) -> tuple[Hop, ...]:
        """Return the path of an H2D copy of a GPU."""
        return tuple(Hop(hop.link, Way.DOWN) for hop in reversed(self.to_host(gpu)))

    def between(self, sender: int, receiver: int) -> tuple[Hop, ...]:
        if beside := self._beside_tree(sender, receiver):
            return beside
        up, down = self.to_host(sender), self.from_host(receiver)
        if not self.peer_to_peer:
            return (*up, *down)
        turned = {hop.link for hop in up} & {hop.link for hop in down}
        return tuple(hop for hop in (*up, *down) if hop.link not in turned)

    def port(self, gpu: int) -> str:
        """Return the link of a GPU to the fabric."""
        return self._port_links[self.gpus[gpu].name]

    def to_network(self, gpu: int) -> tuple[Hop, ...]:
        """Return the path of what a GPU sends to other servers."""
        card = self._card_links[self.gpus[gpu].name]
        return (*self.to_host(gpu)[:1], Hop(card, Way.UP))

    def from_network(self, gpu: int) -> tuple[Hop, ...]:
        """Return the path of what a GPU receives from other servers."""
        return tuple(Hop(hop.link, Way.DOWN) for hop in reversed(self.to_network(gpu)))

    def rings(self, gpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return orders of some GPUs that are rings of peer links or a fabric; else one order by number.

        Peer links serve one ring in each direction, so each ring is there twice, and as many are found one after the
        other as have no link in common. A fabric, and the tree, carry one ring. A search ends after 10,000 trials.
        """
        joined = {each: {to for to in gpus if to != each and self._beside_tree(each, to)} for each in gpus}
        if any(self.gpus[each].name in self._port_links for each in gpus):
            return (closed_ring(joined) or tuple(gpus),)
        found: list[tuple[int, ...]] = []
        while ring := closed_ring(joined):
            found += [ring, ring[::-1]]
            for one, other in pairwise((*ring, ring[0])):
                joined[one].discard(other)
                joined[other].discard(one)
        return tuple(found[: 1 if len(gpus) < 3 else None]) or (tuple(gpus),)

    def latency_s(self, path: Iterable[Hop]) -> float:
        return sum(self.links[hop.link].latency_s for hop in path)

    def alone_bytes_per_s(self, path: Iterable[Hop]) -> float:
        return min(self.links[hop.link].alone_bytes_per_s(hop.way) for hop in path)

    def rates(self, paths: Sequence[Sequence[Hop]]) -> list[float]:
        """Return the rates of simultaneous copies over paths that are otherwise idle."""
        busy = {(hop.host, hop.link, hop.way) for path in paths for hop in path}
        capacities: dict[tuple[object, ...], float] = {}
        channels: list[list[tuple[object, ...]]] = []
        for path in paths:
            channels.append([])
            for hop in path:
                link = self.links[hop.link]
                other = Way.UP if hop.way is Way.DOWN else Way.DOWN
                beside = (hop.host, hop.link, other) in busy
                channel = (hop.host, hop.link, link.sharing is Sharing.SHARED or hop.way)
                capacities[channel] = (link.beside_bytes_per_s if beside else link.alone_bytes_per_s)(hop.way)
                channels[-1].append(channel)
        return max_min_rates(channels, capacities)

    def group(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs with the same parent as this one, itself included: its switch group."""
        parent = self.gpus[gpu].parent
        return tuple(number for number, node in enumerate(self.gpus) if node.parent == parent)

    @cached_property
    def _peer_hops(self) -> Mapping[tuple[str, str], Hop]:
        down = {(peer.first, peer.second): Hop(peer.link.name, Way.DOWN) for peer in self.peers}
        return {(peer.second, peer.first): Hop(peer.link.name, Way.UP) for peer in self.peers} | down

    @cached_property
    def _port_links(self) -> Mapping[str, str]:
        return {port.gpu: port.link.name for port in self.ports}

    @cached_property
    def _card_links(self) -> Mapping[str, str]:
        return {gpu: card.link.name for card in self.cards for gpu in card.gpus}

    def _beside_tree(self, sender: int, receiver: int) -> tuple[Hop, ...]:
        """Return the path over a peer link or the fabric; empty if there is none."""
        names, ports = (self.gpus[sender].name, self.gpus[receiver].name), self._port_links
        if hop := self._peer_hops.get(names):
            return (hop,)
        if all(name in ports for name in names):
            return (Hop(ports[names[0]], Way.UP), Hop(ports[names[1]], Way.DOWN))
        return ()
