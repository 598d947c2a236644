"""The report on what others measured: what comes out by source and card, one picture for each thing to see, every row.

Files: README.md, claims.csv, step_times.csv, operator_times.csv, largest_batches.csv, peak_memory.csv, pictures,
run.json. Equal input gives equal bytes.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.public2026.page import readme
from vdnnsim.claims.public2026.pictures import draw_pictures, kind_of
from vdnnsim.claims.public2026.scoreboard import AnyHeld, BatchRow, MemoryRow, OperatorRow, Scoreboard, TimeRow
from vdnnsim.claims.report import manifest
from vdnnsim.claims.row import COLUMNS, ClaimRow, cells
from vdnnsim.report.csv_file import csv_text

_TIMES = (
    "series",
    "hardware",
    "network",
    "batch_size",
    "mode",
    "precision",
    "measured_s",
    "simulated_s",
    "error_ratio",
    "fitted",
    "left_out",
)
_OPERATORS = ("series", "hardware", "operators", "measured_s", "simulated_s", "error_ratio", "fitted", "left_out")
_BATCHES = ("series", "hardware", "network", "measured_batch_size", "next_batch_size", "simulated", "left_out")
_MEMORY = (
    "network",
    "batch_size",
    "measured_bytes",
    "simulated_bytes",
    "error_ratio",
    "faketensor_bytes",
    "faketensor_error_ratio",
    "fitted",
    "left_out",
)


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
        "step_times.csv": csv_text(_TIMES, _times(board.step_times)),
        "operator_times.csv": csv_text(_OPERATORS, _operators(board.operator_times)),
        "largest_batches.csv": csv_text(_BATCHES, _batches(board.largest_batches)),
        "peak_memory.csv": csv_text(_MEMORY, _peaks(board.peaks)),
        "run.json": manifest(file, profiles),
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    return files | {"README.md": readme(rows, board, pictures)}


def _times(rows: Iterable[TimeRow]) -> list[Row]:
    return [
        (
            each.row.series,
            each.row.hardware,
            each.row.setup.network,
            each.row.batch_size,
            each.row.setup.mode.value,
            each.row.setup.precision.value,
            each.row.seconds,
            *_simulated(each),
            each.fitted,
            each.left_out,
        )
        for each in rows
    ]


def _operators(rows: Iterable[OperatorRow]) -> list[Row]:
    return [
        (
            each.row.series,
            each.row.hardware,
            kind_of(each.row),
            each.row.seconds,
            *_simulated(each),
            each.fitted,
            each.left_out,
        )
        for each in rows
    ]


def _simulated(held: AnyHeld) -> tuple[Value, Value]:
    """Return what the replay says and how far off it is; nothing where a row is left out."""
    return ("", "") if held.simulated is None else (held.simulated, held.error)


def _batches(rows: Iterable[BatchRow]) -> list[Row]:
    return [
        (
            each.row.series,
            each.row.hardware,
            each.row.setup.network,
            each.row.batch_size,
            each.row.next_batch or "",
            "" if each.simulated is None else str(each.simulated),
            each.left_out,
        )
        for each in rows
    ]


def _peaks(rows: Iterable[MemoryRow]) -> list[Row]:
    return [
        (
            each.row.setup.network,
            each.row.batch_size,
            each.row.nbytes,
            *_simulated(each),
            each.row.faketensor_bytes,
            each.row.faketensor_bytes / each.row.nbytes - 1,
            each.fitted,
            each.left_out,
        )
        for each in rows
    ]
