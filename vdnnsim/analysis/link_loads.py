"""What each link carried over an iteration, from the changes that a trace of all GPUs noted."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from vdnnsim.hardware.topology import Hop
from vdnnsim.trace import ServerTrace


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
