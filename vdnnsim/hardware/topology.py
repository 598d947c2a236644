"""The topology of a server with several GPUs: a tree from host memory to the GPUs, and peer links between GPUs.

    host memory ── socket0 ── switch0 ── gpu0
                                   └──── gpu1

Every node but the root has a link to its parent. A copy crosses each link of its path in one direction, and concurrent
copies share links (`vdnnsim.hardware.fair_share`). The bandwidth of host memory is that of the link below the root. A
copy between GPUs takes their peer link, else the fabric that joins their ports, else the path through the tree.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Final

from vdnnsim.hardware.stated_figure import FRACTION, RATE, TIME, Stated

_MOST_TRIALS: Final = 10_000
"""Of the search for a ring, about a second."""


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
        kind: its type in the profile; empty if not known.
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
        """Return its capacity in one direction while the other is idle."""
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
    """The tree, peer links and fabric ports of a server.

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
        """Return the first order of the first GPUs that is a ring of peer links or a fabric; else by number.

        The search ends after 10,000 trials.
        """
        numbers = tuple(range(gpus))
        joined = {each: {to for to in numbers if to != each and self._beside_tree(each, to)} for each in numbers}
        return _ring(joined) or numbers

    def latency_s(self, path: Iterable[Hop]) -> float:
        """Return the latency of a path: the sum over its links."""
        return sum(self.links[hop.link].latency_s for hop in path)

    def alone_bytes_per_s(self, path: Iterable[Hop]) -> float:
        """Return the rate of a copy alone on a path."""
        return min(self.links[hop.link].alone_bytes_per_s(hop.way) for hop in path)

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

    def _beside_tree(self, sender: int, receiver: int) -> tuple[Hop, ...]:
        """Return the path over a peer link or the fabric; empty if there is none."""
        names, ports = (self.gpus[sender].name, self.gpus[receiver].name), self._port_links
        if hop := self._peer_hops.get(names):
            return (hop,)
        if all(name in ports for name in names):
            return (Hop(ports[names[0]], Way.UP), Hop(ports[names[1]], Way.DOWN))
        return ()


def _ring(joined: Mapping[int, AbstractSet[int]]) -> tuple[int, ...] | None:
    """Return the first order in which each is joined to the next, and the last to the first; None if not found."""
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
    """Whether a path through the rest may lead from the last back to the first.

    The rest must be connected, and each must have two neighbours in the ring, unless there are two GPUs in all.
    """
    beside = rest | {order[0], order[-1]}
    if len(joined) > 2 and any(len(joined[each] & beside) < 2 for each in rest):
        return False
    reached, found = set[int](), {min(rest)}
    while found:
        reached |= found
        found = set[int]().union(*(joined[each] for each in found)) & rest - reached
    return reached == rest
