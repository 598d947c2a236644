"""Tables 1 and 5 to 8 of Jin et al. (2018), what they state beside what the replay shows."""

from collections.abc import Callable, Mapping
from typing import Final

from vdnnsim.analysis.columns import Row
from vdnnsim.claims.layrub2018.metrics import epoch_change, two_nodes_speedup, weight_bytes
from vdnnsim.claims.layrub2018.pace import ITERATIONS, PASSES, TABLE_5, at_paper_pace, one_node_iteration_s
from vdnnsim.claims.layrub2018.runs import LayrubCase, LayrubRuns
from vdnnsim.report import markdown
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

HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "table1": ("network", "batch_size", "paper_weights_mb", "weights_mib", "paper_intermediate_gb", "blobs_gib"),
    "table5": (
        "network",
        "batch_size",
        "system",
        "paper_base_s",
        "paper_s",
        "paper_overhead",
        "base_s",
        "s",
        "overhead",
        "own_base_s",
        "own_s",
        "own_overhead",
    ),
    "table6": (
        "hardware",
        "network",
        "system",
        "paper_mib",
        "mib",
        "error",
        "paper_fits",
        "fits",
        "capacity_mib",
        "share_of_capacity",
    ),
    "table7": (
        "network",
        "batch_size",
        "paper_largest",
        "largest",
        "paper_epoch_change",
        "epoch_change",
    ),
    "table8": ("network", "batch_size", "paper_speedup", "speedup_at_paper_pace", "speedup_at_own_pace", "exchange_s"),
}
"""Columns of the CSV of each table; times in seconds, of 20 iterations in Table 5.

There the replay is at the paper's pace and, as `own`, at that of the kernels.
"""


def table_1(runs: LayrubRuns) -> list[Row]:
    """Return sizes, the paper's and the replay's."""
    rows: list[Row] = []
    for (network, batch_size), (weights_mb, intermediate_gb) in TABLE_1.items():
        case = LayrubCase("k40m", network, batch_size)
        weights_mib, blobs_gib = weight_bytes(runs, case) / MIB, runs.blob_bytes(case) / GIB
        rows.append((network, batch_size, weights_mb, weights_mib, intermediate_gb, blobs_gib))
    return rows


def table_5(runs: LayrubRuns) -> list[Row]:
    """Return times of 20 iterations, base and policy, of MXNet with memonger and of Caffe with Layrub."""
    rows: list[Row] = []
    for (network, batch_size), seconds in TABLE_5.items():
        case = LayrubCase("k40m", network, batch_size)
        for policy, base, paper in (("memonger", "base(p)", seconds[:2]), (HYBRID, "caffe", seconds[2:])):
            paper_base_s, paper_s = paper
            if paper_base_s is None or paper_s is None:
                continue
            passes = ITERATIONS * PASSES.get((network, base), 1)
            stated = paper_base_s, paper_s, paper_s / paper_base_s - 1
            replayed: list[float] = []
            for each in (at_paper_pace(runs, case, base), case):
                base_s, policy_s = (passes * runs.iteration_s(each, of) for of in (base, policy))
                replayed += [base_s, policy_s, policy_s / base_s - 1]
            rows.append((network, batch_size, SYSTEMS[policy], *stated, *replayed))
    return rows


def table_6(runs: LayrubRuns) -> list[Row]:
    """Return runtime memory and whether it fits, of every cell."""
    rows: list[Row] = []
    for network, figures in TABLE_6.items():
        cells = [(hardware, policy) for hardware in ("titan_z", "k40m") for policy in SYSTEMS]
        for (hardware, policy), figure in zip(cells, figures, strict=True):
            memory = runs.memory(LayrubCase(hardware, network, 32), policy)
            mib, capacity = memory.runtime / MIB, runs.machines[hardware].gpu.memory_bytes / MIB
            rows.append(
                (
                    hardware,
                    network,
                    SYSTEMS[policy],
                    "" if figure is None else figure,
                    mib,
                    "" if figure is None else mib / figure - 1,
                    "no" if figure is None else "yes",
                    "yes" if memory.fits else "no",
                    capacity,
                    (mib if figure is None else figure) / capacity,
                )
            )
    return rows


def table_7(runs: LayrubRuns) -> list[Row]:
    """Return the largest batches, and what the paper's change in the time of an epoch."""
    rows: list[Row] = []
    for (network, batch_size), (largest, change) in TABLE_7.items():
        found = runs.largest(LayrubCase("k40m", network, batch_size), HYBRID).batch_size
        simulated = epoch_change(runs, LayrubCase("k40m", network, largest), batch_size, HYBRID)
        rows.append((network, batch_size, largest, found, change, simulated))
    return rows


def table_8(runs: LayrubRuns) -> list[Row]:
    """Return the speedups of two nodes, and how long the exchange of one iteration takes alone."""
    rows: list[Row] = []
    for (network, batch_size), speedup in TABLE_8.items():
        case = LayrubCase("k40m_x2_ethernet", network, batch_size)
        paces = [two_nodes_speedup(runs, case, HYBRID, paper_pace=pace) for pace in (True, False)]
        exchange_s = 4 * runs.simulator(case).workload.graph.parameters / NETWORK_BYTES_PER_S
        rows.append((network, batch_size, speedup, *paces, exchange_s))
    return rows


TABLES: Final[Mapping[str, Callable[[LayrubRuns], list[Row]]]] = {
    "table1": table_1,
    "table5": table_5,
    "table6": table_6,
    "table7": table_7,
    "table8": table_8,
}
"""By the name of its file."""


def _shown_1(row: Row) -> tuple[str, ...]:
    return f"{row[0]} ({row[1]})", f"{row[2]} MB", f"{row[3]:.1f} MiB", f"{row[4]} GB", f"{row[5]:.2f} GiB"


def _shown_5(row: Row) -> tuple[str, ...]:
    numbers = [float(cell) for cell in row[3:]]
    base_s, s, paper, pace_base_s, pace_s, replay, own_base_s, _, own = numbers
    overheads = (f"{each:.1%}" for each in (paper, replay, own))
    return (
        *(f"{row[0]} ({row[1]})", str(row[2]), *overheads),
        *(f"{each:.2f} s" for each in (base_s, own_base_s, s - base_s, pace_s - pace_base_s)),
    )


def _shown_6(row: Row) -> tuple[str, ...]:
    """Paper, replay, error; and how near the paper's figure is to the capacity."""
    hardware, network, system, figure, mib, error, paper_fits, fits, _, share = row
    stated = "out of memory" if figure == "" else f"{figure} ({share:.0%} of the GPU)"
    shown = f"{mib:.0f}{'' if fits == 'yes' else ', does not fit'}"
    verdict = "" if figure == "" else f"{error:+.1%}"
    if paper_fits != fits:
        differs = markdown.bold("fits only here" if fits == "yes" else "fits only there")
        verdict = markdown.Ready(f"{verdict} {differs}".strip())
    return str(hardware), str(network), str(system), stated, shown, verdict


def _shown_7(row: Row) -> tuple[str, ...]:
    return f"{row[0]} ({row[1]})", str(row[2]), str(row[3]), f"{row[4]:+.1%}", f"{row[5]:+.1%}"


def _shown_8(row: Row) -> tuple[str, ...]:
    network, batch_size, *speedups, exchange_s = row
    iteration_s = one_node_iteration_s(LayrubCase("k40m", str(network), int(batch_size)))
    return (
        f"{network} ({batch_size})",
        *(f"{each:.2f}" for each in speedups),
        f"{iteration_s:.2f} s",
        f"{exchange_s:.2f} s",
    )


SHOWN: Final[Mapping[str, Callable[[Row], tuple[str, ...]]]] = {
    "table1": _shown_1,
    "table5": _shown_5,
    "table6": _shown_6,
    "table7": _shown_7,
    "table8": _shown_8,
}
"""Makes a row of a table cells for people."""
