"""Collectives over the links of servers: who takes part, what each link carries, and which method takes the least time.

Ranks are numbered host by host. A collective of one dimension of a mesh runs in all its groups at once, so that groups
of one host share its links. Of n ranks, g on each of k hosts, and a collective of N bytes, each method moves:

    ring      around 2 (n - 1) / n N in an all-reduce, half to gather or to scatter, N in a broadcast; over several
              hosts there are g rings, each of which enters a host at another GPU's network card
    tree      N (g - 1) / g along a ring within a host, in both directions; between hosts 2 N / g to and from each card
    NVLS      N + N / g to and from NVSwitch; between hosts as a tree, between two of them half of it, an exchange
    sends     N / n from each to each other

Each is timed on links that are otherwise idle. The fastest is taken, as NCCL does by its own table.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Final

from vdnnsim.cost.nccl import NVLS_CHANNELS, NVLS_SHARE, Algorithm, Group, Method, Wire, methods
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.hardware.topology import Hop, Topology, Way

_TWO: Final = 2
Path = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Timed:
    """A collective by one method.

    Attributes:
        latency_s: before its bytes flow.
        flows: paths, and the bytes on their wires with all that the protocol adds.
        seconds: of all, on links that are otherwise idle.
    """

    method: Method
    latency_s: float
    flows: tuple[tuple[Path, float], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Flow:
    """What goes over a path, of each byte of a collective, as part of what a ring moves, and at what rate it may."""

    path: Path
    sent: float
    part: float
    idle_bytes_per_s: float = 0.0
    bytes_per_s: float = 0.0


class Cluster:
    """Ranks on the GPUs of servers of one kind, in the order of their numbers.

    Attributes:
        ranks: how many there are.
        local: how many are on a host.
    """

    def __init__(self, topology: Topology, ranks: int) -> None:
        assert ranks <= len(topology.gpus) or topology.cards, "servers without network cards are not joined"
        self.topology = topology
        self.ranks = ranks
        self.local = min(ranks, len(topology.gpus))
        self._timed: dict[tuple[object, ...], Timed] = {}
        self._routes: dict[tuple[object, ...], tuple[Group, Mapping[Algorithm, list[_Flow]]]] = {}

    def group(self, rank: int, collective: Collective) -> tuple[int, ...]:
        """Return the ranks of a rank's group; of a send and a receive the sender first, the other a stride away."""
        stride = collective.stride
        if collective.kind is CollectiveKind.SEND:
            return rank, rank + stride
        if collective.kind is CollectiveKind.RECEIVE:
            return rank + stride, rank
        first = rank - rank // stride % collective.ranks * stride
        return tuple(range(first, first + collective.ranks * stride, stride))

    def timed(self, collective: Collective, ranks: Iterable[int], hosts: tuple[int, ...] = (0,)) -> Timed:
        """Return a collective in all groups of some ranks, by the method that takes the least time.

        The links of these hosts count; all other hosts are like one of them.
        """
        groups = tuple(dict.fromkeys(self.group(rank, collective) for rank in ranks))
        key = (collective, groups, hosts)
        if key not in self._timed:
            route = (collective.kind, groups, hosts)
            if route not in self._routes:
                self._routes[route] = self._route(*route)
            group, flows = self._routes[route]
            found = (_by(each, collective, group, flows[each.algorithm]) for each in methods(collective.kind, group))
            self._timed[key] = min(found, key=lambda each: each.seconds)
        return self._timed[key]

    def _route(
        self, kind: CollectiveKind, groups: tuple[tuple[int, ...], ...], hosts: tuple[int, ...]
    ) -> tuple[Group, Mapping[Algorithm, list[_Flow]]]:
        """Return the group, and the flows of each algorithm for one byte, with the rates that links have for them."""
        ranks = len(groups[0])
        over = len({rank // self.local for rank in groups[0]})
        topology = self.topology
        first = self.on_host(groups[0], groups[0][0] // self.local)
        multicast = topology.multicast and len(first) * over == ranks
        cards_s = max((topology.latency_s([Hop(each.link.name, Way.UP)]) for each in topology.cards), default=0.0)
        group = Group(ranks, over, self.wire(first), multicast, cards_s if over > 1 else 0.0)
        by_algorithm = {}
        for algorithm in {each.algorithm for each in methods(kind, group)}:
            flows = [
                flow
                for members in groups
                for host in hosts
                if (local := self.on_host(members, host))
                for flow in self._flows(algorithm, kind, group, members, local, host)
            ]
            idle = topology.rates([flow.path for flow in flows])
            by_algorithm[algorithm] = [
                replace(flow, idle_bytes_per_s=rate, bytes_per_s=min((rate, *self._limits(flow.path))))
                for flow, rate in zip(flows, idle, strict=True)
            ]
        return group, by_algorithm

    def channels(self, collective: Collective) -> int:
        """Return how many channels NCCL opens for a group of ranks, each a ring with buffers of its own.

        It takes two for each ring that its search finds, and 24 over NVSwitch, 16 where network cards decide; so do its
        logs of A100 and H100.
        """
        members = self.group(0, collective)
        local = self.on_host(members, 0)
        if self.topology.ports:
            return 24 if len(local) == len(members) else 2 * len(local)
        return 2 * len(self.topology.rings(local))

    def blocks(self, collective: Collective, ranks: Iterable[int], hosts: tuple[int, ...] = (0,)) -> int:
        """Return how many blocks NCCL's kernel has, one for each channel that the collective uses.

        A block has a multiprocessor to itself, for its shared memory leaves no room beside a product's
        (https://forums.developer.nvidia.com/t/337991: 24 of 132 on eight H100).
        """
        algorithm = self.timed(collective, ranks, hosts).method.algorithm
        channels = self.channels(collective)
        return min(channels, NVLS_CHANNELS) if algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE) else channels

    def on_host(self, members: Iterable[int], host: int) -> tuple[int, ...]:
        return tuple(rank % self.local for rank in members if rank // self.local == host)

    def _flows(
        self,
        algorithm: Algorithm,
        kind: CollectiveKind,
        group: Group,
        members: tuple[int, ...],
        local: tuple[int, ...],
        host: int,
    ) -> Iterator[_Flow]:
        """Yield what a group sends on one host."""
        within = len(local)
        match algorithm:  # pragma: no branch
            case Algorithm.RING:
                moved = _moved(kind, group.ranks)
                rings = self.topology.rings(local)
                part = 1.0 / len(rings)
                inside = (within - 1) / within if group.hosts > 1 else 1.0
                if within > 1:
                    for ring in rings:
                        yield from self._around(ring, moved * inside * part, part, host)
                if group.hosts > 1:
                    yield from self._to_and_from(local, moved / within, 1 / within, host)
            case Algorithm.TREE:
                if within > 1:
                    forward = self.topology.rings(local)[0]
                    for ring in (forward, forward[::-1]):
                        yield from self._around(ring, (within - 1) / within, 1.0, host)
                yield from self._to_and_from(local, 2 / within, 1 / within, host)
            case Algorithm.NVLS | Algorithm.NVLS_TREE:
                for gpu in local:
                    port = self.topology.port(gpu)
                    for way in Way:
                        yield _Flow((Hop(port, way, host),), (1 + 1 / within) / NVLS_SHARE, 1.0)
                if group.hosts > 1:
                    exchanged = (1 if group.hosts == _TWO else 2) / within
                    yield from self._to_and_from(local, exchanged, 1 / within, host)
            case Algorithm.SENDS:
                yield from self._sends(kind, group, members, local, host)

    def _sends(
        self, kind: CollectiveKind, group: Group, members: tuple[int, ...], local: tuple[int, ...], host: int
    ) -> Iterator[_Flow]:
        if kind is CollectiveKind.ALL_TO_ALL:
            for sender, receiver in permutations(local, 2):
                yield self._between(sender, receiver, 1 / group.ranks, 1.0, host)
            if group.hosts > 1:
                yield from self._to_and_from(local, 1 - len(local) / group.ranks, 1.0, host)
        elif group.hosts == 1:
            yield self._between(local[0], local[1], 1.0, 1.0, host)
        elif members[0] // self.local == host:
            yield _Flow(_on(self.topology.to_network(local[0]), host), 1.0, 1.0)
        else:
            yield _Flow(_on(self.topology.from_network(local[0]), host), 1.0, 1.0)

    def _around(self, ring: tuple[int, ...], sent: float, part: float, host: int) -> Iterator[_Flow]:
        for sender, receiver in pairwise((*ring, ring[0])):
            yield self._between(sender, receiver, sent, part, host)

    def _between(self, sender: int, receiver: int, sent: float, part: float, host: int) -> _Flow:
        return _Flow(_on(self.topology.between(sender, receiver), host), sent, part)

    def _to_and_from(self, gpus: Iterable[int], sent: float, part: float, host: int) -> Iterator[_Flow]:
        for gpu in gpus:
            yield _Flow(_on(self.topology.to_network(gpu), host), sent, part)
            yield _Flow(_on(self.topology.from_network(gpu), host), sent, part)

    def _limits(self, path: Path) -> tuple[float, ...]:
        """Return what NCCL reaches of the links of a path, where a profile states it."""
        links = (self.topology.links[hop.link] for hop in path)
        return tuple(link.nccl_bytes_per_s for link in links if link.nccl_bytes_per_s is not None)

    def wire(self, gpus: tuple[int, ...]) -> Wire:
        """Return the links of a ring of GPUs of one host."""
        topology = self.topology
        fabric = {port.link.name for port in topology.ports}
        peers = {peer.link.name for peer in topology.peers}
        if len(gpus) == 1:
            return Wire.NVSWITCH if fabric else Wire.PCIE
        ring = topology.rings(gpus)[0]
        crossed = {hop.link for pair in pairwise((*ring, ring[0])) for hop in topology.between(*pair)}
        if crossed <= fabric:
            return Wire.NVSWITCH
        return Wire.NVLINK if crossed <= fabric | peers else Wire.PCIE


def _by(method: Method, collective: Collective, group: Group, flows: Iterable[_Flow]) -> Timed:
    nbytes = collective.nbytes
    latency_s = method.latency_s(collective.kind, group, nbytes)
    loads, longest_s = [], 0.0
    for flow in flows:
        seconds = nbytes * flow.sent / method.rate(flow.bytes_per_s, flow.part, group, nbytes)
        loads.append((flow.path, seconds * flow.idle_bytes_per_s))
        longest_s = max(longest_s, seconds)
    return Timed(method, latency_s, tuple(loads), latency_s + longest_s)


def _moved(kind: CollectiveKind, ranks: int) -> float:
    """Return what a ring moves over each of its links, of each byte of a collective."""
    if kind is CollectiveKind.BROADCAST:
        return 1.0
    return (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks


def _on(path: Path, host: int) -> Path:
    return tuple(replace(hop, host=host) for hop in path)
