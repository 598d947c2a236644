"""The topology of a server with several GPUs: a tree from host memory to the GPUs, and peer links between GPUs.

    host memory ── socket0 ── switch0 ── gpu0
                                   └──── gpu1

Every node but the root hangs on one link. A copy crosses each link of its path in one direction, and what links carry
at the same time is shared (`vdnnsim.hardware.fair_share`). The bandwidth of host memory is the link below the root.
A copy between GPUs takes their peer link, else the fabric that joins their ports, else the way through the tree, which
turns at the lowest common node.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Final

from vdnnsim.hardware.stated_figure import FRACTION, RATE, TIME, Stated

_MOST_TRIALS: Final = 10_000
"""In the search for a ring, about a second."""


class NodeKind(Enum):
    """What stands at a node of the tree."""

    HOST_MEMORY = "host memory"
    SOCKET = "socket"
    SWITCH = "switch"
    GPU = "gpu"


class Sharing(Enum):
    """What the two directions of a link have to do with each other.

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
        down_bytes_per_s, up_bytes_per_s: what it carries in each direction alone; of a peer link, from its first GPU to
            its second and back. Of a shared link the larger of both is the capacity.
        kept_down, kept_up: of a lossy duplex link, the fraction of a direction that is left while the other is busy.
        kind: what it is made of, as a profile names it; empty where it is not known.
    """

    name: str
    down_bytes_per_s: Annotated[float, Stated("down", RATE, "toward the GPUs")]
    up_bytes_per_s: Annotated[float, Stated("up", RATE, "toward host memory")]
    latency_s: Annotated[float, Stated("latency", TIME, "of a copy that crosses it")]
    sharing: Sharing
    kept_down: Annotated[float, Stated("kept_down", FRACTION, "of down while up is busy")] = 1.0
    kept_up: Annotated[float, Stated("kept_up", FRACTION, "of up while down is busy")] = 1.0
    kind: str = ""

    def alone_bytes_per_s(self, way: "Way") -> float:
        """Return what it carries in one direction while the other is idle."""
        if self.sharing is Sharing.SHARED:
            return max(self.down_bytes_per_s, self.up_bytes_per_s)
        return self.down_bytes_per_s if way is Way.DOWN else self.up_bytes_per_s


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
class Hop:
    """One link crossed in one direction."""

    link: str
    way: Way


@dataclass(frozen=True)
class Topology:
    """The tree and the peer links of a server, as `hardware.topology_section` has checked them.

    Attributes:
        nodes: each after its parent, the root first; GPUs are numbered in this order.
    """

    nodes: tuple[Node, ...]
    peers: tuple[PeerLink, ...] = ()
    ports: tuple[FabricPort, ...] = ()

    @cached_property
    def gpus(self) -> tuple[Node, ...]:
        """The GPUs, by number."""
        return tuple(node for node in self.nodes if node.kind is NodeKind.GPU)

    @cached_property
    def links(self) -> Mapping[str, TopologyLink]:
        """All links by name."""
        tree = [node.link for node in self.nodes if node.link]
        peers, ports = [peer.link for peer in self.peers], [port.link for port in self.ports]
        return {link.name: link for link in (*tree, *peers, *ports)}

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
        """Return the path of a copy from one GPU to another."""
        if beside := self._beside_tree(sender, receiver):
            return beside
        up, down = self.to_host(sender), self.from_host(receiver)
        turned = {hop.link for hop in up} & {hop.link for hop in down}
        return tuple(hop for hop in (*up, *down) if hop.link not in turned)

    def ring(self, gpus: int) -> tuple[int, ...]:
        """Return the first GPUs, each of them joined to the next and the last to the first by peer links or a fabric.

        The first such order by number; where there is none, or none is found in 10,000 trials, the order of their
        numbers.
        """
        numbers = tuple(range(gpus))
        joined = {each: {to for to in numbers if to != each and self._beside_tree(each, to)} for each in numbers}
        return _ring(joined) or numbers

    def latency_s(self, path: Iterable[Hop]) -> float:
        """Return the latency of a path: the sum over its links."""
        return sum(self.links[hop.link].latency_s for hop in path)

    def alone_bytes_per_s(self, path: Iterable[Hop]) -> float:
        """Return at which rate the bytes of a copy flow that meets no other."""
        return min(self.links[hop.link].alone_bytes_per_s(hop.way) for hop in path)

    def group(self, gpu: int) -> tuple[int, ...]:
        """Return the GPUs that hang on the same node as this one, itself among them: its switch group."""
        parent = self.gpus[gpu].parent
        return tuple(number for number, node in enumerate(self.gpus) if node.parent == parent)

    @cached_property
    def _peer_hops(self) -> Mapping[tuple[str, str], Hop]:
        down = {(peer.first, peer.second): Hop(peer.link.name, Way.DOWN) for peer in self.peers}
        return {(peer.second, peer.first): Hop(peer.link.name, Way.UP) for peer in self.peers} | down

    @cached_property
    def _port_links(self) -> Mapping[str, str]:
        return {port.gpu: port.link.name for port in self.ports}

    def _beside_tree(self, sender: int, receiver: int) -> tuple[Hop, ...]:
        """Return the way by a peer link or the fabric; empty where there is none."""
        names, ports = (self.gpus[sender].name, self.gpus[receiver].name), self._port_links
        if hop := self._peer_hops.get(names):
            return (hop,)
        if all(name in ports for name in names):
            return (Hop(ports[names[0]], Way.UP), Hop(ports[names[1]], Way.DOWN))
        return ()


def _ring(joined: Mapping[int, AbstractSet[int]]) -> tuple[int, ...] | None:
    """Return the first order in which each is joined to the next, and the last to the first; None if none is found."""
    trials = 0

    def completed(order: tuple[int, ...], rest: frozenset[int]) -> tuple[int, ...] | None:
        nonlocal trials
        trials += 1
        if not rest:
            return order if order[0] in joined[order[-1]] else None
        if trials > _MOST_TRIALS or not _may_close(joined, order, rest):
            return None
        following = (completed((*order, each), rest - {each}) for each in sorted(joined[order[-1]] & rest))
        return next((each for each in following if each), None)

    return completed((0,), frozenset(joined) - {0})


def _may_close(joined: Mapping[int, AbstractSet[int]], order: tuple[int, ...], rest: frozenset[int]) -> bool:
    """Whether a way through all that are left may lead from the last back to the first.

    Each of them has a way in and another out, and there is a way between any two. Of two GPUs in all the way in is the
    way out.
    """
    beside = rest | {order[0], order[-1]}
    if len(joined) > 2 and any(len(joined[each] & beside) < 2 for each in rest):
        return False
    reached, found = set[int](), {min(rest)}
    while found:
        reached |= found
        found = set[int]().union(*(joined[each] for each in found)) & rest - reached
    return reached == rest
