"""The links of a server in simulated time: concurrent copies share them max-min fairly.

A copy is a flow of bytes over the hops of its path. Whenever flows start or end, those that share links with them,
directly or through others, get new rates, all others keep theirs. Flows that start at the same time are timed together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Final

import simpy

from vdnnsim.hardware.fair_share import max_min_rates
from vdnnsim.hardware.topology import Hop, Sharing, Topology, Way
from vdnnsim.plans.trace import LinkLoad

NOTHING_LEFT_BYTES: Final = 0.5
"""A flow with less left is done, but for rounding errors of the clock."""


@dataclass(frozen=True, slots=True)
class _Crossing:
    """A hop as numbers, for speed.

    Attributes:
        hop: its number.
        channel: that copies share: this direction of the link, or the whole of a shared one.
        opposite: the hop in the other direction.
        domain: that is timed together: the channel, or the whole link where its directions interact.
        alone_bytes_per_s, beside_bytes_per_s: rate of the channel alone, and while the other direction is busy.
    """

    hop: int
    channel: int
    opposite: int
    domain: int
    alone_bytes_per_s: float
    beside_bytes_per_s: float


@dataclass(slots=True, eq=False)
class Flow:
    """One copy in flight.

    Attributes:
        done: succeeds when the last byte has arrived.
        retimed: version of its rate, by which an outdated timeout is recognized.
    """

    crossings: tuple[_Crossing, ...]
    left_bytes: float
    done: simpy.Event
    settled_s: float
    rate_bytes_per_s: float = 0.0
    retimed: int = 0

    @property
    def under_way(self) -> bool:
        return self.left_bytes >= NOTHING_LEFT_BYTES


@dataclass(slots=True)
class _Carried:
    """The rate and the number of copies of a hop."""

    bytes_per_s: float = 0.0
    copies: int = 0


class Interconnect:
    """All links of a server, or of several of one kind.

    Attributes:
        loads: every change of the rate of a link, in order of time.
    """

    def __init__(self, env: simpy.Environment, topology: Topology, hosts: Iterable[int] = (0,)) -> None:
        self._env = env
        self._hops: list[Hop] = []
        self._crossings: dict[Hop, _Crossing] = {}
        for host, link in product(hosts, topology.links.values()):
            first = len(self._hops)
            together = link.sharing is not Sharing.SPLIT_DUPLEX
            for place, way in enumerate(Way):
                hop = Hop(link.name, way, host)
                self._hops.append(hop)
                self._crossings[hop] = _Crossing(
                    hop=first + place,
                    channel=first if link.sharing is Sharing.SHARED else first + place,
                    opposite=first + 1 - place,
                    domain=first if together else first + place,
                    alone_bytes_per_s=link.alone_bytes_per_s(way),
                    beside_bytes_per_s=link.beside_bytes_per_s(way),
                )
        self._flows_in: list[dict[Flow, None]] = [{} for _ in self._hops]
        self._starting: list[Flow] = []
        self.loads: list[LinkLoad] = []

    def start(self, path: tuple[Hop, ...], nbytes: float) -> Flow:
        """Start a copy of nbytes over a path; latencies are the caller's."""
        flow = Flow(tuple(self._crossings[hop] for hop in path), float(nbytes), self._env.event(), self._env.now)
        for crossing in flow.crossings:
            self._flows_in[crossing.domain][flow] = None
        if not self._starting:
            _call(self._env.timeout(0), self._begin)
        self._starting.append(flow)
        return flow

    def _begin(self, _: simpy.Event) -> None:
        started, self._starting = self._starting, []
        self._retime(started)

    def _finish(self, flow: Flow, retimed: int, _: simpy.Event) -> None:
        if flow.retimed == retimed:
            flow.left_bytes = 0.0
            flow.settled_s = self._env.now
            self._retime([flow])

    def _retime(self, changed: Iterable[Flow]) -> None:
        """Update the bytes left of flows, end those that are done, and share the links among the others."""
        now_s = self._env.now
        seen: dict[Flow, None] = {}
        for flow in changed:
            if flow in seen:
                continue
            together = self._sharing_links(flow)
            seen.update(together)
            for each in together:
                each.left_bytes -= each.rate_bytes_per_s * (now_s - each.settled_s)
                each.settled_s = now_s
                each.retimed += 1
                if not each.under_way:
                    self._end(each)
            # A flow that ended may have been the only connection: each remaining component has a timeout of its own.
            left = {each: None for each in together if each.under_way}
            while left:
                part = self._sharing_links(next(iter(left)))
                self._share(list(part))
                left = {each: None for each in left if each not in part}
            self._note_loads(together)

    def _sharing_links(self, flow: Flow) -> dict[Flow, None]:
        """Return the flows that share links with a flow, directly or through others, in order of their start."""
        found: dict[Flow, None] = {flow: None}
        looked_at: set[int] = set()
        waiting = [flow]
        while waiting:
            for crossing in waiting.pop().crossings:
                if crossing.domain in looked_at:
                    continue
                looked_at.add(crossing.domain)
                for neighbour in self._flows_in[crossing.domain]:
                    if neighbour not in found:
                        found[neighbour] = None
                        waiting.append(neighbour)
        return found

    def _share(self, flows: list[Flow]) -> None:
        for flow, rate in zip(flows, _rates([flow.crossings for flow in flows]), strict=True):
            flow.rate_bytes_per_s = rate
        # All are re-timed when the first ends, so one timeout is enough.
        first = min(flows, key=lambda flow: flow.left_bytes / flow.rate_bytes_per_s)
        clock = self._env.timeout(first.left_bytes / first.rate_bytes_per_s)
        _call(clock, partial(self._finish, first, first.retimed))

    def _end(self, flow: Flow) -> None:
        for crossing in flow.crossings:
            self._flows_in[crossing.domain].pop(flow, None)
        flow.rate_bytes_per_s = 0.0
        flow.done.succeed()

    def _note_loads(self, flows: Iterable[Flow]) -> None:
        carried: dict[int, _Carried] = {}
        for flow in flows:
            for crossing in flow.crossings:
                on_hop = carried.setdefault(crossing.hop, _Carried())
                on_hop.bytes_per_s += flow.rate_bytes_per_s
                on_hop.copies += flow.under_way
        self.loads += [
            LinkLoad(self._env.now, self._hops[hop], on_hop.bytes_per_s, on_hop.copies)
            for hop, on_hop in carried.items()
        ]


def _rates(paths: list[tuple[_Crossing, ...]]) -> list[float]:
    """Return the rates of copies by their crossings."""
    busy = {crossing.hop for path in paths for crossing in path}
    capacities = {
        crossing.channel: crossing.beside_bytes_per_s if crossing.opposite in busy else crossing.alone_bytes_per_s
        for path in paths
        for crossing in path
    }
    return max_min_rates([[crossing.channel for crossing in path] for path in paths], capacities)


def _call(event: simpy.Event, callback: Callable[[simpy.Event], None]) -> None:
    assert event.callbacks is not None
    event.callbacks.append(callback)
