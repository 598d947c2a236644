"""The command `claims`."""

import sys
from pathlib import Path

import click

from vdnnsim.cli.options import CSV, FilePath
from vdnnsim.cli.output import has_all, print_result

_LEFT_OUT_FIRST = ("reason", "where", "error", "metric", "expected", "simulated")


@click.command()
@click.option("--paper", default="vdnn2016", show_default=True, metavar="PAPER", help="Whose claims to check.")
@click.option("--report", metavar="DIR", type=FilePath(), help="Also write the paper's figures and tables to DIR.")
@CSV
def claims(paper: str, report: Path | None, csv_file: Path | None) -> None:
    """Hold every number that a paper states against the replay; exit with 3 when a reproduced one no longer is."""
    from vdnnsim.claims.claim import read_claims
    from vdnnsim.claims.papers import open_paper
    from vdnnsim.claims.row import Verdict
    from vdnnsim.claims.table import COLUMNS, cells, summary
    from vdnnsim.replace import replace_files
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.tables.fitted import plain_table

    opened = open_paper(read_claims(paper), Path())
    rows = opened.check()
    if csv_file is not None:
        write_csv(csv_file, COLUMNS, [cells(row) for row in rows])
    talk = [summary(rows)]
    if report is not None:
        written = replace_files(report, opened.report(rows))
        talk.append(f"wrote {len(written)} files to {report}/; read {report / 'README.md'} first")
    shown = [cells(row)[:-1] for row in rows]
    print_result(plain_table(COLUMNS[:-1], shown, has_all(csv_file), _LEFT_OUT_FIRST), *talk, piped_width=200)
    if any(row.recorded is Verdict.REPRODUCED and row.verdict is not Verdict.REPRODUCED for row in rows):
        sys.exit(3)
