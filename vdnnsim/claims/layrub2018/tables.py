"""Tables 1 and 5 to 8 of Jin et al. (2018), what they state beside what the replay shows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from vdnnsim.claims.layrub2018.metrics import epoch_change, two_nodes_speedup, weight_bytes
from vdnnsim.claims.layrub2018.pace import ITERATIONS, PASSES, TABLE_5, at_paper_pace
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.units import GIB, MIB

HYBRID: Final = "layrub_hybrid"
SYSTEMS: Final[Mapping[str, str]] = {"caffe": "Caffe", "memonger": "MXNet", HYBRID: "Layrub"}
"""Policies by what the paper calls them."""
NETWORK_BYTES_PER_S: Final = 125e6
"""Between two nodes: 1 Gbit/s Ethernet (5.1), without what protocols take."""
NEAR: Final = 0.15
"""How near to the capacity, as a share of it, a figure decides nothing about what fits."""

TABLE_1: Final[Mapping[tuple[str, int], tuple[float, float]]] = {
    ("lstm_rnn_800", 64): (148, 49.2),
    ("vgg16", 64): (548, 7.24),
    ("resnet152", 32): (60.2, 11.61),
    ("resnet1001", 32): (40.8, 67.2),
    ("p3d_resnet199", 128): (232.5, 23.69),
}
"""MB of weights and GB of intermediate data, by network and batch size; that of the LSTM-RNN is Fig. 11's."""

TABLE_6: Final[Mapping[str, tuple[int | None, ...]]] = {
    "resnet34": (4426, 1554, 1251, 4430, 1431, 1257),
    "resnet50": (None, 2298, 1802, 11425, 2195, 1805),
    "resnet302": (None, 4873, 3444, None, 4911, 3448),
    "resnet695": (None, None, 5964, None, 7885, 5968),
    "resnet1001": (None, None, None, None, 10104, 7901),
    "resnet1172": (None, None, None, None, 11455, 9022),
    "resnet1304": (None, None, None, None, None, 9872),
    "resnet1517": (None, None, None, None, None, 11239),
}
"""MiB on one GPU of the Titan Z and on the K40M, each under Caffe, MXNet, Layrub; None where it is out of memory."""

TABLE_7: Final[Mapping[tuple[str, int], tuple[int, float]]] = {
    ("alexnet", 128): (2100, -0.0819),
    ("vgg_d_13conv", 64): (240, -0.0416),
    ("resnet34", 32): (416, -0.1325),
    ("resnet50", 32): (272, -0.0626),
    ("resnet56", 256): (5000, -0.0916),
    ("wrn_28_10", 128): (1376, -0.0864),
}
"""By the normal batch: the extreme one, and what it changes in the time of an epoch."""

TABLE_8: Final[Mapping[tuple[str, int], float]] = {
    ("alexnet", 256): 1.98,
    ("resnet50", 32): 1.98,
    ("resnet1001", 32): 1.97,
}
"""Speedup of two nodes."""

Record = Mapping[str, Any]
"""A row of a table by the columns of its CSV; None where a cell is empty."""


def table_1(runs: LayrubRuns) -> Iterator[Record]:
    """Yield sizes, the paper's and the replay's."""
    for (network, batch_size), (weights_mb, intermediate_gb) in TABLE_1.items():
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
    for (network, batch_size), seconds in TABLE_5.items():
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
    for network, figures in TABLE_6.items():
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
    for (network, batch_size), (largest, change) in TABLE_7.items():
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
    for (network, batch_size), speedup in TABLE_8.items():
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
