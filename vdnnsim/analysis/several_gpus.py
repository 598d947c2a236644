"""Interaction of the GPUs of a server: contention of copies, exchanges of gradients, loads of links."""

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
"""Share of its capacity from which a link counts as full: the other direction takes some of it."""


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """A copy, and its seconds without contention."""

    span: Span
    alone_s: float

    @property
    def taken_s(self) -> float:
        """Seconds with contention."""
        return self.span.end_s - self.span.start_s

    @property
    def stretch(self) -> float:
        """Ratio of time taken to time alone."""
        return self.taken_s / self.alone_s


def timed_copies(trace: IterationTrace, server: Server, gpu: int) -> tuple[TimedCopy, ...]:
    """Return the copies of a GPU in order; migrating pages do not contend."""
    return tuple(
        TimedCopy(span, _alone_s(server, gpu, copy, trace.plan.copied_bytes(copy))) for span, copy in trace.copies
    )


def total_stretch(copies: Iterable[TimedCopy]) -> float:
    """Return the ratio of all times taken to all times alone; 1 without copies."""
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
    """An exchange of gradients; it begins when all GPUs have arrived, and ends for all at once.

    Attributes:
        layer: whose gradients are reduced; of a bucket the one that completes it.
    """

    layer: int
    arrivals_s: tuple[float, ...]
    end_s: float

    @property
    def begin_s(self) -> float:
        """Arrival of the last GPU."""
        return max(self.arrivals_s)

    @property
    def last(self) -> int:
        """The GPU that arrived last, of several the first."""
        return self.arrivals_s.index(self.begin_s)


def exchanges(server_trace: ServerTrace) -> tuple[Exchange, ...]:
    """Return the exchanges of all GPUs; captured ranks, of which a pipeline has several, have collectives instead."""
    return tuple(
        Exchange(of_all[0][0].layer, tuple(span.start_s for _, span in of_all), of_all[0][1].end_s)
        for of_all in zip(*map(_all_reduces, server_trace.gpus), strict=True)
    )


def _all_reduces(trace: IterationTrace) -> list[tuple[AllReduce, Span]]:
    spans = ((trace.plan.operations[each.operation], each) for each in trace.spans_on(Stream.COMMUNICATION))
    return [(operation, span) for operation, span in spans if isinstance(operation, AllReduce)]


def waits_s(server_trace: ServerTrace) -> tuple[tuple[float, ...], ...]:
    """Return how long each GPU waited before exchanges, by the GPU that arrived last."""
    waits = [[0.0] * len(server_trace.gpus) for _ in server_trace.gpus]
    for each in exchanges(server_trace):
        for gpu, arrival_s in enumerate(each.arrivals_s):
            waits[gpu][each.last] += each.begin_s - arrival_s
    return tuple(map(tuple, waits))


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Load of one direction of a link as a step function: rates[i] bytes per second from times_s[i] on."""

    times_s: tuple[float, ...]
    rates_bytes_per_s: tuple[float, ...]
    end_s: float

    @property
    def _steps(self) -> list[tuple[float, float]]:
        lengths_s = (after - before for before, after in pairwise((*self.times_s, self.end_s)))
        return list(zip(self.rates_bytes_per_s, lengths_s, strict=True))

    @property
    def carried_bytes(self) -> float:
        return sum(rate * length_s for rate, length_s in self._steps)

    def share_of_use(self, bytes_per_s: float) -> float:
        """Return the share of its busy time in which the rate was at least so high."""
        used_s = sum(length_s for rate, length_s in self._steps if rate > 0)
        return sum(length_s for rate, length_s in self._steps if rate >= bytes_per_s) / used_s if used_s else 0.0


def load_curves(server_trace: ServerTrace) -> dict[Hop, LoadCurve]:
    """Return the load of each direction of a link in use; changes at the same time are merged."""
    changes: defaultdict[Hop, dict[float, float]] = defaultdict(dict)
    for load in server_trace.loads:
        changes[load.hop][load.time_s] = load.bytes_per_s
    end_s = server_trace.iteration_s
    return {hop: LoadCurve(tuple(steps), tuple(steps.values()), end_s) for hop, steps in changes.items()}


@dataclass(frozen=True, slots=True)
class LinkUse:
    """A link and the loads of the directions in use."""

    link: TopologyLink
    curves: dict[Way, LoadCurve]

    def fraction(self, way: Way) -> float:
        """Return the mean utilization of one direction over the iteration."""
        curve = self.curves.get(way)
        return curve.carried_bytes / (self.link.alone_bytes_per_s(way) * curve.end_s) if curve else 0.0

    def full(self, way: Way) -> float:
        """Return the share of its busy time in which a direction was full."""
        curve = self.curves.get(way)
        return curve.share_of_use(_FULL * self.link.alone_bytes_per_s(way)) if curve else 0.0

    @property
    def busiest(self) -> float:
        """The higher utilization of both directions, or their sum for a shared link."""
        return sum(map(self.fraction, Way)) if self.link.sharing is Sharing.SHARED else max(map(self.fraction, Way))


def link_uses(server: Server, server_trace: ServerTrace | None) -> tuple[LinkUse, ...]:
    """Return the links in use, those near host memory first."""
    assert server.topology is not None
    assert server_trace is not None
    curves = load_curves(server_trace)
    uses = (
        LinkUse(link, {way: curves[Hop(name, way)] for way in Way if Hop(name, way) in curves})
        for name, link in server.topology.links.items()
    )
    return tuple(use for use in uses if use.curves)
