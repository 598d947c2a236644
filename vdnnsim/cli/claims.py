"""The command `claims`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.captures import captured_with_notice
from vdnnsim.cli.options import prints_table
from vdnnsim.cli.output import Output

if TYPE_CHECKING:
    from vdnnsim.claims.public2026.measurements import Setup
    from vdnnsim.claims.public2026.replays import Capture
    from vdnnsim.dnn.captured_step import CapturedStep

CAPTURING: Final = ("torch", "timm", "torchvision", "transformers")
"""Packages to capture networks of public measurements that are not built here."""
_LEFT_OUT_FIRST = ("reason", "where", "error", "metric", "expected", "simulated")


@click.command()
@click.option("--paper", default="vdnn2016", show_default=True, metavar="PAPER", help="Whose claims to check.")
@prints_table
def claims(paper: str, output: Output) -> None:
    """Check every number that a paper states against the replay.

    Exits with 3 when one that is recorded as reproduced no longer is.
    """
    from vdnnsim.claims.check import COLUMNS, summary
    from vdnnsim.claims.claim import Verdict, read_claims
    from vdnnsim.claims.paper import open_paper
    from vdnnsim.report.document import plain_table
    from vdnnsim.report.progress import SearchLine
    from vdnnsim.report.result_table import ResultTable

    opened = open_paper(read_claims(paper), Path(), capture())
    with SearchLine() as line:
        rows = opened.check(line.show)
    shown = [row.cells[:-1] for row in rows]
    table = plain_table(COLUMNS[:-1], shown, output.has_all, _LEFT_OUT_FIRST)
    output.show(ResultTable(COLUMNS, [row.cells for row in rows], table), summary(rows), piped_width=200)
    if any(row.recorded is Verdict.REPRODUCED and row.verdict is not Verdict.REPRODUCED for row in rows):
        sys.exit(3)


def capture() -> "Capture | None":
    """Return the function that captures networks; None where a package is missing."""
    return _captured if all(find_spec(each) for each in CAPTURING) else None


def _captured(setup: "Setup", batch_size: int) -> "CapturedStep":
    from calibration.capture.request import Request
    from vdnnsim.dnn.workload import Mode

    request = Request(
        model=setup.network,
        batch_size=batch_size,
        image=None if setup.image is None else (3, setup.image, setup.image),
        mode=setup.mode,
        precision=setup.precision,
        optimizer=setup.optimizer if setup.mode is Mode.TRAINING else "none",
        channels_last=setup.channels_last,
        tokens=setup.tokens,
        holds_output=setup.holds_output,
        compiled=setup.compiled,
        compute_capability=setup.compute_capability,
    )
    (step,) = captured_with_notice((request,))
    return step
