"""The report on what others measured: what comes out by source and card, one picture for each thing to see, every row.

Files: README.md, claims.csv, step_times.csv, operator_times.csv, largest_batches.csv, peak_memory.csv, pictures,
run.json. Equal input gives equal bytes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.public2026.page import readme
from vdnnsim.claims.public2026.pictures import draw_pictures
from vdnnsim.claims.public2026.scoreboard import Scoreboard
from vdnnsim.claims.report import manifest
from vdnnsim.claims.row import COLUMNS, ClaimRow, cells
from vdnnsim.report.csv_file import attributes_csv, csv_text

_PLACE: Final = {"series": "row.series", "hardware": "row.hardware"}
_NETWORK: Final = {"network": "row.setup.network"}
_BATCH: Final = {"batch_size": "row.batch_size"}
_FOUND_S: Final = {"measured_s": "row.seconds", "simulated_s": "simulated", "error_ratio": "error_ratio"}
_STANDING: Final = {"fitted": "fitted", "left_out": "left_out"}
_TIMES: Final = {
    **(_PLACE | _NETWORK | _BATCH | {"mode": "row.setup.mode.value", "precision": "row.setup.precision.value"}),
    **(_FOUND_S | _STANDING),
}
_OPERATORS: Final = {**_PLACE, "operators": "row.operators", **_FOUND_S, **_STANDING}
_BATCHES: Final = {
    **(_PLACE | _NETWORK | {"measured_batch_size": "row.batch_size", "next_batch_size": "row.next_batch"}),
    "simulated": "simulated",
    "left_out": "left_out",
}
_MEMORY: Final = {
    **(_NETWORK | _BATCH | {"measured_bytes": "row.nbytes", "simulated_bytes": "simulated"}),
    "error_ratio": "error_ratio",
    "faketensor_bytes": "row.faketensor_bytes",
    **({"faketensor_error_ratio": "row.faketensor_error"} | _STANDING),
}
"""Columns of the tables, and what of a row they show."""


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    board: Scoreboard,
    profiles: Sequence[Path],
    tell: Callable[[str], object] = str,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    tell("replays of all rows")
    pictures = draw_pictures(board)
    texts = {
        "claims.csv": csv_text(COLUMNS, [cells(row) for row in rows]),
        "step_times.csv": attributes_csv(_TIMES, board.step_times),
        "operator_times.csv": attributes_csv(_OPERATORS, board.operator_times),
        "largest_batches.csv": attributes_csv(_BATCHES, board.largest_batches),
        "peak_memory.csv": attributes_csv(_MEMORY, board.peaks),
        "run.json": manifest(file, profiles),
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    return files | {"README.md": readme(rows, board, pictures)}
