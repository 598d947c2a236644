"""The report on Kim et al. (2018): its tables from simulation, claims, readings, pictures. One command makes it all.

Files: README.md, tables.csv, claims.csv, readings.csv, scaling.png, of both servers pictures of all GPUs' streams and
of the load of each link, and run.json. Equal input gives equal bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.readings import effects_csv
from vdnnsim.claims.report import manifest
from vdnnsim.claims.row import COLUMNS, ClaimRow, cells
from vdnnsim.claims.swap2018.page import page_text
from vdnnsim.claims.swap2018.readings import READINGS, compare_readings
from vdnnsim.claims.swap2018.runs import ServerRuns, SwapReading
from vdnnsim.claims.swap2018.stated import NONE, STAGGERED, SWAP, VGG, Place
from vdnnsim.claims.swap2018.tables import COLUMNS as TABLE_COLUMNS
from vdnnsim.claims.swap2018.tables import table_1_cells, throughput_cells
from vdnnsim.experiment import run_scenario
from vdnnsim.report.csv_file import csv_text

_POLICIES = (NONE, SWAP, STAGGERED)
_DRAWN_BATCHES = {2: 120, 4: 110}
"""The first rows of Tables II and III, where nothing runs out of memory."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of the page: its file, what it says, its content."""

    name: str
    title: str
    png: bytes


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: ServerRuns,
    profiles: Sequence[Path],
    readings: Sequence[SwapReading] = READINGS,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    tables = (*table_1_cells(runs), *throughput_cells(runs))
    compared = compare_readings(file.claims, runs, file.hardware, readings)
    pictures = draw_report(runs)
    texts = {
        "README.md": page_text(tables, rows, compared, [(each.name, each.title) for each in pictures]),
        "claims.csv": csv_text(COLUMNS, [cells(row) for row in rows]),
        "readings.csv": effects_csv(compared, rows),
        "tables.csv": csv_text(TABLE_COLUMNS, [each.cells for each in tables]),
        "run.json": manifest(file, profiles),
    }
    return {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}


def draw_report(runs: ServerRuns) -> tuple[Drawing, ...]:
    """Draw throughput against the number of GPUs, and both servers: all GPUs' streams, the load of each link."""
    # Matplotlib takes longer to import than most scenarios to simulate.
    from vdnnsim.report.plots import draw_pictures
    from vdnnsim.report.plots.scaling import draw_scaling, scaling_title

    scaled = [_result(runs, Place("p100_x4", gpus), _DRAWN_BATCHES[4]) for gpus in (1, 2, 4)]
    drawn = [Drawing("scaling.png", scaling_title(scaled), draw_scaling(scaled))]
    for result in (_result(runs, Place("p100_x2", 2), _DRAWN_BATCHES[2]), scaled[-1]):
        drawn += [
            Drawing(f"{result.gpus}gpus_{each.name.replace('_tensorflow', '')}", each.description, each.png)
            for each in draw_pictures(result)
            if each.name.startswith(("gpus_", "links_"))
        ]
    return tuple(drawn)


def _result(runs: ServerRuns, place: Place, batch_size: int) -> ScenarioResult:
    return run_scenario(runs.scenario(place, VGG, batch_size, _POLICIES))
