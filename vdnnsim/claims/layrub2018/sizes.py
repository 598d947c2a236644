"""Table 1 of Jin et al. (2018): weights and intermediate data of five networks."""

from collections.abc import Mapping
from typing import Final

from vdnnsim.claims.layrub2018.metrics import weight_bytes
from vdnnsim.claims.layrub2018.runs import Case, LayrubRuns
from vdnnsim.claims.layrub2018.tables import Row
from vdnnsim.claims.markdown import markdown_table
from vdnnsim.units import GIB, MIB

TABLE_1: Final[Mapping[tuple[str, int], tuple[float, float]]] = {
    ("lstm_rnn_800", 64): (148, 49.2),
    ("vgg16", 64): (548, 7.24),
    ("resnet152", 32): (60.2, 11.61),
    ("resnet1001", 32): (40.8, 67.2),
    ("p3d_resnet199", 128): (232.5, 23.69),
}
"""MB of weights and GB of intermediate data, by network and batch size; that of the LSTM-RNN is Fig. 11's."""

COLUMNS: Final = ("network", "batch_size", "paper_weights_mb", "weights_mib", "paper_intermediate_gb", "blobs_gib")


def table_1(runs: LayrubRuns) -> list[Row]:
    """Return sizes, the paper's and the replay's."""
    rows: list[Row] = []
    for (network, batch_size), (weights_mb, intermediate_gb) in TABLE_1.items():
        case = Case("k40m", network, batch_size)
        weights_mib, blobs_gib = weight_bytes(runs, case) / MIB, runs.blob_bytes(case) / GIB
        rows.append((network, batch_size, weights_mb, weights_mib, intermediate_gb, blobs_gib))
    return rows


def text_1(rows: list[Row]) -> str:
    """Return Table 1 as Markdown."""
    cells = [
        (f"{row[0]} ({row[1]})", f"{row[2]} MB", f"{float(row[3]):.1f} MiB", f"{row[4]} GB", f"{float(row[5]):.2f} GiB")
        for row in rows
    ]
    return markdown_table(
        ("network", "weights, paper", "weights, replay", "intermediate data, paper", "blobs, replay"), cells
    )
