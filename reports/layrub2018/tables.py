"""Tables 1 and 5 to 8 of Jin et al. (2018) beside the replay."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from vdnnsim.claims.claim import NetworkBatch, read_network
from vdnnsim.claims.layrub2018.metrics import (
    ITERATIONS,
    PASSES,
    STATED,
    at_paper_pace,
    epoch_change,
    two_nodes_speedup,
    weight_bytes,
)
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.units import GIB, MIB

HYBRID: Final = "layrub_hybrid"
SYSTEMS: Final[Mapping[str, str]] = {"caffe": "Caffe", "memonger": "MXNet", HYBRID: "Layrub"}
"""Policies by what the paper calls them."""
NETWORK_BYTES_PER_S: Final = 125e6
"""Between two nodes: 1 Gbit/s Ethernet (5.1), without what protocols take."""
NEAR: Final = 0.15
"""How near to the capacity, as a share of it, a figure decides nothing about what fits."""

Cells = TypeVar("Cells")
Record = Mapping[str, Any]
"""A row of a table by the columns of its CSV; None where a cell is empty."""


def by_case(table: Mapping[str, Cells]) -> list[tuple[NetworkBatch, Cells]]:
    """Return the rows of a table with their networks."""
    return [(read_network(name), cells) for name, cells in table.items()]


def table_1(runs: LayrubRuns) -> Iterator[Record]:
    """Yield sizes, the paper's and the replay's."""
    for (network, batch_size), (weights_mb, intermediate_gb) in by_case(STATED.table_1):
        case = LayrubCase("k40m", network, batch_size)
        yield {
            "network": network,
            "batch_size": batch_size,
            "paper_weights_mb": weights_mb,
            "weights_mib": weight_bytes(runs, case) / MIB,
            "paper_intermediate_gb": intermediate_gb,
            "blobs_gib": runs.blob_bytes(case) / GIB,
        }


def table_5(runs: LayrubRuns) -> Iterator[Record]:
    """Yield times of 20 iterations, base and policy, of MXNet with memonger and of Caffe with Layrub.

    The replay is at the paper's pace and, as `own`, at that of the kernels.
    """
    for (network, batch_size), seconds in by_case(STATED.table_5):
        case = LayrubCase("k40m", network, batch_size)
        for policy, base, (paper_base_s, paper_s) in (
            ("memonger", "base(p)", seconds[:2]),
            (HYBRID, "caffe", seconds[2:]),
        ):
            if paper_base_s is None or paper_s is None:
                continue
            passes = ITERATIONS * PASSES.get((network, base), 1)
            taken_s = {"paper_": (paper_base_s, paper_s)}
            for of, each in (("", at_paper_pace(runs, case, base)), ("own_", case)):
                taken_s[of] = passes * runs.iteration_s(each, base), passes * runs.iteration_s(each, policy)
            yield {"network": network, "batch_size": batch_size, "system": SYSTEMS[policy]} | {
                f"{of}{name}": value
                for of, (base_s, policy_s) in taken_s.items()
                for name, value in (("base_s", base_s), ("s", policy_s), ("overhead", policy_s / base_s - 1))
            }


def table_6(runs: LayrubRuns) -> Iterator[Record]:
    """Yield runtime memory and whether it fits, of every cell."""
    for network, figures in STATED.table_6.items():
        cells = [(hardware, policy) for hardware in ("titan_z", "k40m") for policy in SYSTEMS]
        for (hardware, policy), figure in zip(cells, figures, strict=True):
            memory = runs.memory(LayrubCase(hardware, network, 32), policy)
            mib, capacity = memory.runtime / MIB, runs.machines[hardware].gpu.memory_bytes / MIB
            yield {
                "hardware": hardware,
                "network": network,
                "system": SYSTEMS[policy],
                "paper_mib": figure,
                "mib": mib,
                "error": None if figure is None else mib / figure - 1,
                "paper_fits": "no" if figure is None else "yes",
                "fits": "yes" if memory.fits else "no",
                "capacity_mib": capacity,
                "share_of_capacity": (figure or mib) / capacity,
            }


def table_7(runs: LayrubRuns) -> Iterator[Record]:
    """Yield the largest batches, and what the paper's change in the time of an epoch."""
    for (network, batch_size), (largest, change) in by_case(STATED.table_7):
        yield {
            "network": network,
            "batch_size": batch_size,
            "paper_largest": largest,
            "largest": runs.largest(LayrubCase("k40m", network, batch_size), HYBRID).batch_size,
            "paper_epoch_change": change,
            "epoch_change": epoch_change(runs, LayrubCase("k40m", network, largest), batch_size, HYBRID),
        }


def table_8(runs: LayrubRuns) -> Iterator[Record]:
    """Yield the speedups of two nodes, and how long the exchange of one iteration takes alone."""
    for (network, batch_size), speedup in by_case(STATED.table_8):
        case = LayrubCase("k40m_x2_ethernet", network, batch_size)
        yield {
            "network": network,
            "batch_size": batch_size,
            "paper_speedup": speedup,
            "speedup_at_paper_pace": two_nodes_speedup(runs, case, HYBRID, paper_pace=True),
            "speedup_at_own_pace": two_nodes_speedup(runs, case, HYBRID, paper_pace=False),
            "exchange_s": 4 * runs.simulator(case).workload.graph.parameters / NETWORK_BYTES_PER_S,
        }


TABLES: Final[Mapping[str, Callable[[LayrubRuns], Iterator[Record]]]] = {
    "table1": table_1,
    "table5": table_5,
    "table6": table_6,
    "table7": table_7,
    "table8": table_8,
}
"""By the name of its file."""
