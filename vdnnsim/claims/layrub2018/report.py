"""The report on Jin et al. (2018): Tables 1, 5 to 8 and Figures 9 to 14 beside simulation. One command makes it all.

Files: README.md, table1.csv, table5.csv to table8.csv, claims.csv, readings.csv, figureNN.png and .csv, run.json. Equal
input gives equal bytes.
"""

from collections.abc import Sequence
from pathlib import Path

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.layrub2018.figures import draw_figures, paper_figures
from vdnnsim.claims.layrub2018.pace import deeper_networks
from vdnnsim.claims.layrub2018.page import Others, page_text
from vdnnsim.claims.layrub2018.readings import COLUMNS as READING_COLUMNS
from vdnnsim.claims.layrub2018.readings import compare_readings
from vdnnsim.claims.layrub2018.runs import LayrubRuns
from vdnnsim.claims.layrub2018.runtime_readings import mxnet_without_memonger
from vdnnsim.claims.layrub2018.sizes import COLUMNS as SIZE_COLUMNS
from vdnnsim.claims.layrub2018.sizes import table_1
from vdnnsim.claims.layrub2018.tables import HEADERS, table_5, table_6, table_7, table_8
from vdnnsim.claims.manifest import manifest
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.table import COLUMNS, cells
from vdnnsim.report.csv_file import csv_text


def paper_report(
    file: ClaimsFile, rows: Sequence[ClaimRow], runs: LayrubRuns, profiles: Sequence[Path]
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` are the files of its machines."""
    tables = {
        "table1": table_1(runs),
        "table5": table_5(runs),
        "table6": table_6(runs),
        "table7": table_7(runs),
        "table8": table_8(runs),
    }
    readings = compare_readings(runs)
    figures = paper_figures(runs, tables["table5"])
    titles = [(each.stem, each.chart.title) for each in figures]
    others = Others(mxnet_without_memonger(runs), deeper_networks(runs))
    headers = {"table1": SIZE_COLUMNS, **HEADERS}
    texts = {f"{name}.csv": csv_text(headers[name], table) for name, table in tables.items()} | {
        "README.md": page_text(tables, rows, readings, titles, others),
        "claims.csv": csv_text(COLUMNS, [cells(row) for row in rows]),
        "readings.csv": csv_text(READING_COLUMNS, [each.cells for each in readings]),
        "run.json": manifest(file, profiles),
    }
    return {name: text.encode() for name, text in texts.items()} | draw_figures(figures)
