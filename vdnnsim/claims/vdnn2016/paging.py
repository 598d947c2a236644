"""What demand paging would cost on the paper's networks, beside what vDNN costs (II-C)."""

from dataclasses import dataclass

from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns

LATENCIES = ("20 us", "50 us")
"""The range that the paper gives for a page of 4 KB."""
COLUMNS = ("network", "batch_size", "page_latency", "iteration_s", "performance_ratio", "vdnn_dyn_performance_ratio")


@dataclass(frozen=True, slots=True)
class PagingCost:
    """One network under paging: seconds per iteration, and speed over that of the oracular baseline."""

    case: NetworkBatch
    latency: str
    iteration_s: float
    ratio: float
    dyn_ratio: float

    @property
    def cells(self) -> tuple[str | float, ...]:
        """One row in the order of the columns."""
        return *self.case, self.latency, self.iteration_s, self.ratio, self.dyn_ratio

    @property
    def shown(self) -> tuple[str, ...]:
        """One row for people."""
        network, batch_size = self.case
        speeds = f"{self.ratio:.1%}", f"{self.dyn_ratio:.1%}"
        return f"{network} ({batch_size})", self.latency, f"{self.iteration_s:.3g}", *speeds


def paging_costs(runs: VdnnRuns) -> tuple[PagingCost, ...]:
    """Replay page migration on the six networks of Fig. 11, at both ends of the paper's range."""
    costs = []
    for case in CONVENTIONAL:
        dyn = runs.result(*case, "vdnn_dyn")
        for latency in LATENCIES:
            paged = runs.result(*case, "page_migration(p)", page_latency=latency)
            costs.append(
                PagingCost(case, latency, paged.metrics.iteration_s, paged.performance_ratio, dyn.performance_ratio)
            )
    return tuple(costs)
