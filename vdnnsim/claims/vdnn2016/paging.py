"""What demand paging would cost on the paper's networks, beside what vDNN costs (II-C)."""

from collections.abc import Iterator
from typing import NamedTuple

from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns

LATENCIES = ("20 us", "50 us")
"""The range that the paper gives for a page of 4 KB."""


class PagingCost(NamedTuple):
    """One network under paging beside vDNN_dyn: a row of `page_migration.csv`."""

    network: str
    batch_size: int
    page_latency: str
    iteration_s: float
    performance_ratio: float
    vdnn_dyn_performance_ratio: float


def paging_costs(runs: VdnnRuns) -> Iterator[PagingCost]:
    """Replay page migration on the six networks of Fig. 11, at both ends of the paper's range."""
    for case in CONVENTIONAL:
        dyn = runs.result(*case, "vdnn_dyn").performance_ratio
        for latency in LATENCIES:
            paged = runs.result(*case, "page_migration(p)", page_latency=latency)
            yield PagingCost(*case, latency, paged.metrics.iteration_s, paged.performance_ratio, dyn)
