"""The links of a server in simulated time: concurrent copies share them max-min fairly.

A copy is a flow of bytes over the hops of its path. Whenever a flow starts or ends, the flows that share links with it,
directly or through others, get new rates; the rest is left alone, so what a re-timing costs grows with the flows that
share links and not with all of them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import simpy

from vdnnsim.hardware.fair_share import max_min_rates
from vdnnsim.hardware.topology import Hop, Sharing, Topology, TopologyLink, Way
from vdnnsim.trace import LinkLoad

NOTHING_LEFT_BYTES: Final = 0.5
"""A flow with less than this to go is done; what is left is rounding of the clock."""


@dataclass(slots=True, eq=False)
class Flow:
    """One copy under way.

    Attributes:
        done: succeeds when the last byte has arrived.
        rates: (since when, bytes per second), one entry for each time the rate changed.
    """

    path: tuple[Hop, ...]
    left_bytes: float
    done: simpy.Event
    settled_s: float
    rate_bytes_per_s: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)

    @property
    def under_way(self) -> bool:
        """Whether bytes are left."""
        return self.left_bytes >= NOTHING_LEFT_BYTES


class Interconnect:
    """All links of a server.

    Attributes:
        loads: every change of what a link carries, in the order of time.
    """

    def __init__(self, env: simpy.Environment, topology: Topology) -> None:
        self._env = env
        self._links = topology.links
        self._flows_on: dict[Hashable, dict[Flow, None]] = {}
        self.loads: list[LinkLoad] = []

    def start(self, path: tuple[Hop, ...], nbytes: int) -> Flow:
        """Start a copy of nbytes over a path; latencies are the caller's."""
        flow = Flow(path, float(nbytes), self._env.event(), self._env.now)
        for hop in path:
            self._flows_on.setdefault(self._domain(hop), {})[flow] = None
        self._retime(flow)
        return flow

    def _domain(self, hop: Hop) -> Hashable:
        """Return what must be looked at together: the direction alone, or the whole link where the two interact."""
        split = self._links[hop.link].sharing is Sharing.SPLIT_DUPLEX
        return hop if split else hop.link

    def _together(self, flow: Flow) -> list[Flow]:
        """Return the flows that share links with a flow, directly or through others, in the order of their start."""
        found: dict[Flow, None] = {flow: None}
        waiting = [flow]
        while waiting:
            for hop in waiting.pop().path:
                for neighbour in self._flows_on[self._domain(hop)]:
                    if neighbour not in found:
                        found[neighbour] = None
                        waiting.append(neighbour)
        return list(found)

    def _retime(self, changed: Flow) -> None:
        now = self._env.now
        together = self._together(changed)
        for flow in together:
            flow.left_bytes -= flow.rate_bytes_per_s * (now - flow.settled_s)
            flow.settled_s = now
        for flow in together:
            if not flow.under_way:
                self._end(flow)
        under_way = [flow for flow in together if flow.under_way]
        self._share(under_way)
        self._note_loads(together, under_way)

    def _share(self, flows: list[Flow]) -> None:
        busy = {hop for flow in flows for hop in flow.path}
        capacities = {_channel(self._links[hop.link], hop): _capacity(self._links[hop.link], hop, busy) for hop in busy}
        paths = [[_channel(self._links[hop.link], hop) for hop in flow.path] for flow in flows]
        for flow, rate in zip(flows, max_min_rates(paths, capacities), strict=True):
            if rate != flow.rate_bytes_per_s:
                flow.rate_bytes_per_s = rate
                flow.rates.append((self._env.now, rate))
                self._env.process(self._finish(flow, len(flow.rates)))

    def _finish(self, flow: Flow, changes: int) -> "simpy.events.ProcessGenerator":
        yield self._env.timeout(flow.left_bytes / flow.rate_bytes_per_s)
        # Whoever changed the rate meanwhile has set another clock.
        if len(flow.rates) == changes and not flow.done.triggered:
            flow.left_bytes = 0.0
            flow.settled_s = self._env.now
            self._retime(flow)

    def _end(self, flow: Flow) -> None:
        for hop in flow.path:
            del self._flows_on[self._domain(hop)][flow]
        flow.rate_bytes_per_s = 0.0
        flow.done.succeed()

    def _note_loads(self, together: list[Flow], under_way: list[Flow]) -> None:
        for hop in dict.fromkeys(hop for flow in together for hop in flow.path):
            crossing = [flow.rate_bytes_per_s for flow in under_way if hop in flow.path]
            self.loads.append(LinkLoad(self._env.now, hop, sum(crossing), len(crossing)))


def _channel(link: TopologyLink, hop: Hop) -> Hashable:
    """Return what the copies over a hop share: its direction, or the whole of a shared link."""
    return hop.link if link.sharing is Sharing.SHARED else hop


def _capacity(link: TopologyLink, hop: Hop, busy: set[Hop]) -> float:
    alone = link.alone_bytes_per_s(hop.way)
    if link.sharing is not Sharing.LOSSY_DUPLEX:
        return alone
    is_down = hop.way is Way.DOWN
    other = Hop(hop.link, Way.UP if is_down else Way.DOWN)
    return alone * (link.kept_down if is_down else link.kept_up) if other in busy else alone
