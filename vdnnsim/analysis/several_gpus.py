"""What GPUs of one server do to each other: contention of copies, exchanges of gradients, loads of links."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from vdnnsim.cost.transfer import before_flow_s, copy_s, paged_copy_s
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop, Sharing, TopologyLink, Way
from vdnnsim.plans.operations import AllReduce, Offload, Paged, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace, ServerTrace, Span

_FULL = 0.9
"""Of its capacity a link is full: what the other direction takes of it is not there for this one."""


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """One copy, and the seconds that it takes when nothing else is on the links of its path."""

    span: Span
    alone_s: float

    @property
    def taken_s(self) -> float:
        """What it took."""
        return self.span.end_s - self.span.start_s

    @property
    def stretch(self) -> float:
        """How many times as long it took as it takes alone."""
        return self.taken_s / self.alone_s


def timed_copies(trace: IterationTrace, server: Server, gpu: int) -> tuple[TimedCopy, ...]:
    """Return the copies of a GPU in their order; pages that migrate wait for faults and not for links."""
    return tuple(
        TimedCopy(span, _alone_s(server, gpu, copy, trace.plan.copied_bytes(copy))) for span, copy in trace.copies
    )


def total_stretch(copies: Iterable[TimedCopy]) -> float:
    """Return how many times as long copies took together as each alone; 1 where there are none."""
    pairs = [(copy.taken_s, copy.alone_s) for copy in copies]
    return sum(taken for taken, _ in pairs) / sum(alone for _, alone in pairs) if pairs else 1.0


def _alone_s(server: Server, gpu: int, copy: Offload | Prefetch, nbytes: int) -> float:
    if isinstance(copy.mechanism, Paged):
        return paged_copy_s(nbytes, copy.mechanism.page_bytes, copy.mechanism.page_latency_s)
    direction = Direction.D2H if isinstance(copy, Offload) else Direction.H2D
    topology = server.topology
    if topology is None:
        return copy_s(server.link, direction, nbytes)
    path = topology.to_host(gpu) if direction is Direction.D2H else topology.from_host(gpu)
    return before_flow_s(server, direction, path, nbytes) + nbytes / topology.alone_bytes_per_s(path)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange of gradients; it begins when all GPUs have come, and ends for all at once.

    Attributes:
        layer: whose gradients are reduced; of a bucket the one that completes it.
        arrivals_s: when each GPU came, by number.
    """

    layer: int
    arrivals_s: tuple[float, ...]
    end_s: float

    @property
    def begin_s(self) -> float:
        """When the last GPU came."""
        return max(self.arrivals_s)

    @property
    def last(self) -> int:
        """The GPU that came last; of several the first by number."""
        return self.arrivals_s.index(self.begin_s)


def exchanges(server_trace: ServerTrace) -> tuple[Exchange, ...]:
    """Return the exchanges of an iteration in their order."""
    found = []
    for spans in zip(*(trace.spans_on(Stream.COMMUNICATION) for trace in server_trace.gpus), strict=True):
        all_reduce = server_trace.gpus[0].plan.operations[spans[0].operation]
        assert isinstance(all_reduce, AllReduce)
        found.append(Exchange(all_reduce.layer, tuple(span.start_s for span in spans), spans[0].end_s))
    return tuple(found)


def waits_s(server_trace: ServerTrace) -> tuple[tuple[float, ...], ...]:
    """Return how long each GPU waited before exchanges that had not begun, by the GPU that came last to them."""
    waits = [[0.0] * len(server_trace.gpus) for _ in server_trace.gpus]
    for each in exchanges(server_trace):
        for gpu, arrival_s in enumerate(each.arrivals_s):
            waits[gpu][each.last] += each.begin_s - arrival_s
    return tuple(map(tuple, waits))


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """What one direction of a link carries as a step function: rates[i] bytes per second from times_s[i] on."""

    times_s: tuple[float, ...]
    rates_bytes_per_s: tuple[float, ...]
    end_s: float

    @property
    def _steps(self) -> list[tuple[float, float]]:
        """Rate and length of each step."""
        lengths_s = (after - before for before, after in pairwise((*self.times_s, self.end_s)))
        return list(zip(self.rates_bytes_per_s, lengths_s, strict=True))

    @property
    def carried_bytes(self) -> float:
        """Bytes that crossed it."""
        return sum(rate * length_s for rate, length_s in self._steps)

    def share_of_use(self, bytes_per_s: float) -> float:
        """For which part of the time that it carried anything it carried at least so much."""
        used_s = sum(length_s for rate, length_s in self._steps if rate > 0)
        return sum(length_s for rate, length_s in self._steps if rate >= bytes_per_s) / used_s if used_s else 0.0


def load_curves(server_trace: ServerTrace) -> dict[Hop, LoadCurve]:
    """Return the curve of every direction of a link that carried anything; changes at the same time are merged."""
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
        return sum(map(self.fraction, Way)) if self.link.sharing is Sharing.SHARED else max(map(self.fraction, Way))


def link_uses(server: Server, server_trace: ServerTrace | None) -> tuple[LinkUse, ...]:
    """Return the links of a server of several GPUs that carried anything, those near host memory first."""
    assert server.topology is not None
    assert server_trace is not None
    curves = load_curves(server_trace)
    uses = (
        LinkUse(link, {way: curves[Hop(name, way)] for way in Way if Hop(name, way) in curves})
        for name, link in server.topology.links.items()
    )
    return tuple(use for use in uses if use.curves)
