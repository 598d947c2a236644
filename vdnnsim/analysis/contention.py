"""What copies between GPU and host lose by running beside others: how long each took, and how long it takes alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from vdnnsim.cost.transfer import before_flow_s, copy_s, paged_copy_s
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server
from vdnnsim.plans.operations import Offload, Paged, Prefetch
from vdnnsim.plans.trace import IterationTrace, Span


@dataclass(frozen=True, slots=True)
class TimedCopy:
    """One copy.

    Attributes:
        alone_s: what it takes when nothing else is on the links of its path.
    """

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
