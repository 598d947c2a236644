"""Draws the page and its pictures anew from the tables beside them, without a replay: `python -m reports.public2026`.

`python -m reports public2026` replays all rows, and writes the tables as well.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from reports.public2026.report import paper_report
from vdnnsim.claims.claim import PUBLIC, read_claims
from vdnnsim.claims.paper import Paper, open_paper
from vdnnsim.claims.public2026.measurements import COMPILED, ESTIMATED, MEMORY, SERIES, AnyRow, Setup
from vdnnsim.claims.public2026.replays import Fit
from vdnnsim.claims.public2026.scoreboard import AnyHeld, Held, Scoreboard
from vdnnsim.dnn.captured_step import CapturedStep

FOLDER: Final = Path(__file__).parent
_FITS: Final = {
    str(each): each
    for each in (Fit(fits=False, next_fits=None), *(Fit(fits=True, next_fits=more) for more in (True, False)))
}
"""What tables say of the largest batch."""


def recorded_paper(folder: Path) -> Paper:
    """Return the paper with the replays that the tables in a folder have."""
    paper = open_paper(read_claims(PUBLIC), Path(), _not_captured)
    board: Scoreboard = paper.runs
    searched = [each for each in board.times if SERIES[each.series].searches_batch]
    peaks = [
        (name, [each for each in board.memory if each.series in series])
        for name, series in (("peak_memory", (MEMORY,)), ("gpt2_memory", (COMPILED,)), ("estimators", ESTIMATED))
    ]
    # In place of replays, which the scoreboard makes when they are first asked for.
    vars(board).update(
        step_times=_held(folder / "step_times.csv", board.times, "simulated_s", float),
        operator_times=_held(folder / "operator_times.csv", board.operators, "simulated_s", float),
        largest_batches=_held(folder / "largest_batches.csv", searched, "simulated", _FITS.__getitem__),
        peaks=tuple(
            each for name, rows in peaks for each in _held(folder / f"{name}.csv", rows, "simulated_bytes", int)
        ),
    )
    return paper


def _not_captured(setup: Setup, batch_size: int) -> CapturedStep:
    raise AssertionError(f"{setup.network} of {batch_size}: tables have all rows")


def _held(path: Path, rows: Sequence[AnyRow], column: str, read: Callable[[str], float | Fit]) -> tuple[AnyHeld, ...]:
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(
            Held(row, read(line[column]) if line[column] else None, line["left_out"], line.get("fitted") == "true")
            for row, line in zip(rows, csv.DictReader(file), strict=True)
        )


def main() -> None:
    paper = recorded_paper(FOLDER)
    for name, content in paper_report(paper.file, paper.check(), paper.runs, ()).items():
        if name != "run.json":
            (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
