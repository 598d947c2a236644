"""What demand paging would cost on the paper's networks, beside what vDNN costs (II-C)."""

from dataclasses import dataclass

from vdnnsim.claims.claim import NetworkBatch
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.report import markdown

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


def paging_text(costs: tuple[PagingCost, ...]) -> str:
    """Return the section of the report."""
    intro = (
        "The same networks under demand paging, 4 KB a page, everything else as base(p). Where a network fits nothing "
        "is paged; where it does not, every kernel waits for its pages. Speeds are of the oracular baseline."
    )
    cells = [
        (
            "{} ({})".format(*each.case),
            each.latency,
            f"{each.iteration_s:.3g}",
            f"{each.ratio:.1%}",
            f"{each.dyn_ratio:.1%}",
        )
        for each in costs
    ]
    columns = ("network", "a page takes", "s per iteration", "speed", "speed of vdnn_dyn")
    return f"{intro}\n\n{markdown.table(columns, cells, left=2)}"
