"""What each link carried over an iteration, from the changes that a trace of all GPUs noted."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop, Sharing, TopologyLink, Way
from vdnnsim.plans.trace import ServerTrace

_FULL = 0.9
"""Of its capacity a link is full: what the other direction takes of it is not there for this one."""


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """What one direction of a link carries as a step function: rates[i] bytes per second from times_s[i] on."""

    times_s: tuple[float, ...]
    rates_bytes_per_s: tuple[float, ...]
    end_s: float

    @property
    def carried_bytes(self) -> float:
        """Bytes that crossed it."""
        lengths_s = (after - before for before, after in pairwise((*self.times_s, self.end_s)))
        return sum(rate * length_s for rate, length_s in zip(self.rates_bytes_per_s, lengths_s, strict=True))

    def share_of_use(self, bytes_per_s: float) -> float:
        """For which part of the time that it carried anything it carried at least so much."""
        lengths_s = [after - before for before, after in pairwise((*self.times_s, self.end_s))]
        steps = list(zip(self.rates_bytes_per_s, lengths_s, strict=True))
        used_s = sum(length_s for rate, length_s in steps if rate > 0)
        return sum(length_s for rate, length_s in steps if rate >= bytes_per_s) / used_s if used_s else 0.0


def load_curves(server_trace: ServerTrace) -> dict[Hop, LoadCurve]:
    """Return the curve of every direction of a link that carried anything; changes at the same moment are merged."""
    changes: defaultdict[Hop, dict[float, float]] = defaultdict(dict)
    for load in server_trace.loads:
        changes[load.hop][load.time_s] = load.bytes_per_s
    end_s = server_trace.iteration_s
    return {hop: LoadCurve(tuple(steps), tuple(steps.values()), end_s) for hop, steps in changes.items()}


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link and what it carried in each direction that was used."""

    link: TopologyLink
    curves: dict[Way, LoadCurve]

    def fraction(self, way: Way) -> float:
        """Return how much of what it can carry in one direction it carried over the iteration."""
        curve = self.curves.get(way)
        return curve.carried_bytes / (self.link.alone_bytes_per_s(way) * curve.end_s) if curve else 0.0

    def full(self, way: Way) -> float:
        """Return for which part of the time that it carried anything in a direction it carried all that it can."""
        curve = self.curves.get(way)
        return curve.share_of_use(_FULL * self.link.alone_bytes_per_s(way)) if curve else 0.0

    @property
    def busiest(self) -> float:
        """The greater of both fractions; of a shared link, where they add up, their sum."""
        fractions = [self.fraction(way) for way in Way]
        return sum(fractions) if self.link.sharing is Sharing.SHARED else max(fractions)


def link_uses(server: Server, server_trace: ServerTrace | None) -> tuple[LinkUse, ...]:
    """Return the links of a server of several GPUs that carried anything, those near host memory first."""
    topology = server.topology
    assert topology is not None
    assert server_trace is not None
    curves = load_curves(server_trace)
    uses = (
        LinkUse(link, {way: curves[Hop(name, way)] for way in Way if Hop(name, way) in curves})
        for name, link in topology.links.items()
    )
    return tuple(use for use in uses if use.curves)
