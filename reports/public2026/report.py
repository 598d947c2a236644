"""The report on published measurements: errors by source and card, pictures, every row.

Files: README.md, claims.csv, step_times.csv, operator_times.csv, largest_batches.csv, peak_memory.csv,
gpt2_memory.csv, estimators.csv, pictures, run.json. Equal input gives equal bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from reports.page import page, report_files
from reports.public2026.pictures import draw_pictures, estimators
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.public2026.measurements import (
    COMPILED,
    ESTIMATED,
    MEMORY,
    ONE_PEAK_IN,
    ONE_TIME_IN,
    ONE_TRANSFORMER_IN,
    PLAIN_TRANSFORMERS,
    SERIES,
)
from vdnnsim.claims.public2026.scoreboard import AnyHeld, Scoreboard, errors_of
from vdnnsim.report.picture import Picture
from vdnnsim.report.result_table import attributes_csv

_PLACE: Final = {"series": "row.series", "hardware": "row.hardware"}
_NETWORK: Final = {"network": "row.setup.network"}
_BATCH: Final = {"batch_size": "row.batch_size"}
_FOUND_S: Final = {"measured_s": "row.measured", "simulated_s": "simulated", "error_ratio": "error_ratio"}
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
    **(_NETWORK | _BATCH | {"measured_bytes": "row.measured", "simulated_bytes": "simulated"}),
    "error_ratio": "error_ratio",
    "faketensor_bytes": "row.estimates.faketensor",
    **_STANDING,
}
_ESTIMATORS: Final = {
    **(_NETWORK | {"optimizer": "row.setup.optimizer"} | _BATCH | {"measured_bytes": "row.measured"}),
    "simulated_bytes": "simulated",
    "error_ratio": "error_ratio",
    **{f"{each}_bytes": f"row.estimates.{each}" for each in ("xmem", "dnnmem", "schedtune")},
    **_STANDING,
}
"""Columns of the tables, and what of a row they show."""


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    board: Scoreboard,
    profiles: Sequence[Path],
    progress: Callable[[str], object] = str,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    progress("replays of all rows")
    pictures = draw_pictures(board)
    texts = {
        "step_times.csv": attributes_csv(_TIMES, board.step_times),
        "operator_times.csv": attributes_csv(_OPERATORS, board.operator_times),
        "largest_batches.csv": attributes_csv(_BATCHES, board.largest_batches),
        "peak_memory.csv": attributes_csv(_MEMORY, of_series(board.peaks, MEMORY)),
        "gpt2_memory.csv": attributes_csv(_PLACE | _MEMORY, of_series(board.peaks, COMPILED)),
        "estimators.csv": attributes_csv(_ESTIMATORS, [each for each in board.peaks if each.row.series in ESTIMATED]),
    }
    files = report_files(file, profiles, rows, texts) | {each.name: each.png for each in pictures}
    return files | {"README.md": _readme(rows, board, pictures)}


def of_series(rows: Iterable[AnyHeld], series: str) -> list[AnyHeld]:
    """Return the rows of a series."""
    return [each for each in rows if each.row.series == series]


def _readme(rows: Sequence[ClaimRow], board: Scoreboard, pictures: Sequence[Picture]) -> bytes:
    """Return the page in Markdown, of the checked aims and of all rows."""
    everything: tuple[AnyHeld, ...] = (*board.step_times, *board.operator_times, *board.peaks)
    left_out: dict[str, dict[str, None]] = defaultdict(dict)
    for each in everything:
        if each.left_out:
            left_out[each.left_out][each.row.setup.network] = None
    times: dict[tuple[str, ...], list[AnyHeld]] = defaultdict(list)
    for held in board.step_times:
        row, setup = held.row, held.row.setup
        times[row.series, row.hardware, setup.mode.value, setup.precision.value].append(held)
    batches: dict[str, Counter[str]] = defaultdict(Counter)
    for found in board.largest_batches:
        batches[found.row.series].update([str(found.simulated)] if found.counts else [])
    return page(
        "public2026/page.md.j2",
        rows,
        board=board,
        pictures={each.name: each.description for each in pictures},
        networks=len({each.setup.network for each in board.times} | {each.setup.network for each in board.memory}),
        fitted=sum(each.fitted for each in everything),
        one_time_in=ONE_TIME_IN,
        one_peak_in=ONE_PEAK_IN,
        times=times,
        errors_of=errors_of,
        batches=batches,
        memory={
            "peak_memory.png": estimators(of_series(board.peaks, MEMORY)),
            "estimators.png": estimators(each for each in board.peaks if each.row.series in ESTIMATED),
        },
        compiled=list(zip(of_series(board.step_times, COMPILED), of_series(board.peaks, COMPILED), strict=True)),
        plain=[each for each in board.step_times if each.row.setup.network.startswith(PLAIN_TRANSFORMERS)],
        one_transformer_in=ONE_TRANSFORMER_IN,
        series=SERIES.values(),
        left_out=left_out,
    )
