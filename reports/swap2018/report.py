"""The report on Kim et al. (2018): simulated tables, claims, readings, pictures.

Files: README.md, tables.csv, claims.csv, readings.csv, scaling.png, of both servers pictures of all GPUs' streams and
of the load of each link, and run.json. Equal input gives equal bytes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from reports.page import page, report_files
from reports.readings import ReadingRows, effects_csv
from reports.swap2018.readings import READINGS, SwapReading, compare_readings
from reports.swap2018.tables import (
    INCEPTION,
    STAGGERED,
    SWAP,
    TABLE_I,
    Cell,
    line_of_table_1,
    table_1_cells,
    table_1_rows,
    throughput_cells,
    throughput_rows,
)
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.claims.check import ClaimCount, ClaimRow
from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.swap2018.runs import (
    NONE,
    VGG,
    Place,
    ServerRuns,
    first_row,
)
from vdnnsim.dnn.networks import build_network
from vdnnsim.report import markdown
from vdnnsim.report.picture import Picture
from vdnnsim.report.result_table import csv_text
from vdnnsim.scenario.experiment import run_scenario

_POLICIES = (NONE, SWAP, STAGGERED)
_MATRIX = ("s-5", "s-6", "s-7", "s-8", "s-9", "s-10.vgg16", "s-10.inception_v3", "s-11")
"""The ratios of the text, of which a reading is judged first."""
_DRAWN_BATCHES = {2: 120, 4: 110}
"""The first rows of Tables II and III, where nothing runs out of memory."""


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: ServerRuns,
    profiles: Sequence[Path],
    progress: Callable[[str], object] = str,
    readings: Sequence[SwapReading] = READINGS,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    tables = (*table_1_cells(runs), *throughput_cells(runs))
    compared = compare_readings(
        file.claims, runs, file.hardware, readings, lambda line: progress(f"other readings: {line}")
    )
    pictures = draw_report(runs)
    texts = {"readings.csv": effects_csv(compared, rows), "tables.csv": csv_text(Cell._fields, tables)}
    files = report_files(file, profiles, rows, texts) | {each.name: each.png for each in pictures}
    return files | {"README.md": readme(tables, rows, compared, [(each.description, each.name) for each in pictures])}


def readme(
    tables: Sequence[Cell],
    rows: Sequence[ClaimRow],
    compared: Sequence[ReadingRows[SwapReading]],
    pictures: Sequence[tuple[str, str]],
) -> bytes:
    """Return the page in Markdown, with titles and names of pictures."""
    none, swap, staggered = (each for each in tables if (each.table, each.batch_size) == ("Table II", 120))
    vgg = [each for each in tables if each.table == "Table I" and each.network == VGG]
    per_image_s, rest_s = line_of_table_1()
    vgg_weights, inception_weights = (build_network(name).parameters for name in (VGG, INCEPTION))
    shown = [row for row in rows if row.id in _MATRIX]
    lines = [("default", rows), *((markdown.code(each.reading.name), each.rows) for each in compared)]
    return page(
        "swap2018/page.md.j2",
        rows,
        unswapped=none,
        swap=swap,
        staggered=staggered,
        factors=[f"{each.batch_size / TABLE_I[each.network, each.policy][0]:.2f}" for each in vgg],
        per_image_ms=per_image_s * 1e3,
        rest_s=rest_s,
        inception_rest_s=line_of_table_1(INCEPTION)[1],
        inception_weights=inception_weights / vgg_weights,
        two_s=first_row("p100_x2"),
        four_s=first_row("p100_x4"),
        table_1=table_1_rows([each for each in tables if each.table == "Table I"]),
        speeds={name: throughput_rows(tables, name) for name in ("Table II", "Table III")},
        pictures=pictures,
        header=("reading", *(row.id for row in shown), "t-2 and t-3"),
        matrix=[
            ("paper", *(row.expected for row in shown), ""),
            *((name, *_line(each, shown)) for name, each in lines),
        ],
        readings=[(each.reading.name, each.reading.question) for each in compared],
    )


def _line(rows: Sequence[ClaimRow | None], shown: Sequence[ClaimRow]) -> list[str]:
    found = {row.id: row for row in rows if row is not None}
    count = ClaimCount.of(list(found.values()))
    return [*(_cell(found.get(each.id)) for each in shown), f"{count.met} of {count.numbers}"]


def _cell(row: ClaimRow | None) -> str:
    if row is None:
        return "-"
    return markdown.bold(row.simulated) if row.is_met else row.simulated


def draw_report(runs: ServerRuns) -> tuple[Picture, ...]:
    """Draw throughput against the number of GPUs, and both servers: all GPUs' streams, the load of each link."""
    from reports.swap2018.scaling import draw_scaling, scaling_title
    from vdnnsim.report.plots import draw_pictures

    scaled = [_result(runs, Place("p100_x4", gpus), _DRAWN_BATCHES[4]) for gpus in (1, 2, 4)]
    drawn = [Picture("scaling.png", scaling_title(scaled), draw_scaling(scaled))]
    for result in (_result(runs, Place("p100_x2", 2), _DRAWN_BATCHES[2]), scaled[-1]):
        drawn += [
            Picture(f"{result.gpus}gpus_{each.name.replace('_tensorflow', '')}", each.description, each.png)
            for each in draw_pictures(result)
            if each.name.startswith(("gpus_", "links_"))
        ]
    return tuple(drawn)


def _result(runs: ServerRuns, place: Place, batch_size: int) -> ScenarioResult:
    return run_scenario(runs.scenario(place, VGG, batch_size, _POLICIES))
