"""The exchanges of gradients between GPUs: when each GPU came, who came last, and who waited for it."""

from dataclasses import dataclass

from vdnnsim.plans.operations import AllReduce, Stream
from vdnnsim.plans.trace import ServerTrace


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange; it begins when all have come, and ends for all at once.

    Attributes:
        layer: whose gradients are added up; of a bucket the one that completes it.
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
    """Return how long each GPU stood before exchanges that had not begun, by the GPU that came last to them."""
    waits = [[0.0] * len(server_trace.gpus) for _ in server_trace.gpus]
    for each in exchanges(server_trace):
        for gpu, arrival_s in enumerate(each.arrivals_s):
            waits[gpu][each.last] += each.begin_s - arrival_s
    return tuple(tuple(row) for row in waits)
