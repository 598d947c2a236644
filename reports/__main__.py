"""Checks the claims of a paper and draws its page anew: `python -m reports PAPER [--out DIR]`, from a clone."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from reports.page import page_writer
from vdnnsim.claims.check import summary
from vdnnsim.claims.claim import PAPERS, PUBLIC, read_claims
from vdnnsim.claims.paper import open_paper
from vdnnsim.cli import run_command
from vdnnsim.cli.claims import CAPTURING, capture
from vdnnsim.cli.options import FilePath
from vdnnsim.cli.output import report_folder
from vdnnsim.report.folder import write_folder
from vdnnsim.report.progress import SearchLine

_HERE: Final = Path(__file__).parent


@click.command()
@click.argument("paper", type=click.Choice(PAPERS))
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; reports/PAPER unless given.")
def redraw(paper: str, out: Path | None) -> None:
    """Draw the page on a paper: README.md, claims.csv, its figures and tables, run.json. Equal input, equal bytes."""
    captured = capture()
    if paper == PUBLIC and captured is None:
        raise click.UsageError(f"{paper} captures networks with {', '.join(CAPTURING)}, expected all of them installed")
    folder, writer = out or _HERE / paper, page_writer(paper)
    report_folder(folder, paper, writer)
    opened = open_paper(read_claims(paper), Path(), captured)
    paper_report: Callable[..., Mapping[str, bytes]] = import_module(f"reports.{paper}.report").paper_report
    with SearchLine() as line:
        rows = opened.check(line.show)
        line.show("figures and tables")
        files = paper_report(opened.file, rows, opened.runs, opened.profiles, line.show)
    written = write_folder(folder, files, writer).files
    click.echo(f"{summary(rows)}\nwrote {len(written)} files to {folder}/; read {folder / 'README.md'} first", err=True)


if __name__ == "__main__":
    run_command(redraw)
