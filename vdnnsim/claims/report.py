"""What the reports of all papers have: checked claims, a CSV and a slide of each figure, and what run.json says."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdnnsim.analysis.columns import Row
from vdnnsim.claims.claim import ClaimsFile, Verdict
from vdnnsim.claims.row import ClaimRow
from vdnnsim.report import markdown
from vdnnsim.report.chart import Chart
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.folder import Writer
from vdnnsim.report.provenance import versions
from vdnnsim.report.scale import Scale


def claims_writer(paper: str) -> Writer:
    """Return who writes the folder of a paper, by the paper's name."""
    return Writer(
        noun=f"report on {paper}",
        manifest="run.json",
        wrote=lambda content: content.get("command") == _command(paper),
        names=re.compile(r"README\.md|run\.json|\w+\.(csv|png)"),
    )


def _command(paper: str) -> str:
    return f"vdnnsim claims --paper {paper} --report DIR"


PERCENT = Scale("%", 0.01, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedFigure:
    """A figure of a paper from simulation.

    Attributes:
        stem: the name of its files without their ending: `figure01`.
        header, rows: its CSV; numbers are SI, and a column says its unit.
    """

    stem: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    chart: Chart


def figure_files(figures: Iterable[SimulatedFigure]) -> dict[str, bytes]:
    """Return the CSV and the picture of each figure by file name."""
    # Matplotlib takes longer to import than a network to simulate.
    from vdnnsim.report.plots.bars import draw_bars

    files: dict[str, bytes] = {}
    for figure in figures:
        files[f"{figure.stem}.csv"] = csv_text(figure.header, figure.rows).encode()
        files[f"{figure.stem}.png"] = draw_bars(figure.chart)
    return files


def manifest(file: ClaimsFile, profiles: Iterable[Path], **chance: int) -> str:
    """Return the command, the versions, the files that were read and, where something was drawn, seed and draws.

    Args:
        file: the claims.
        profiles: the files of the machines; what their parameters were fitted to lies beside them.
        chance: seed and draws.
    """
    inputs = [each for path in profiles for each in (path, path.with_suffix(".fit.csv")) if each.exists()]
    content = {
        "paper": file.title,
        "command": _command(file.paper),
        "versions": versions(),
        "inputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs},
        "seed": None,
        **chance,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def claims_table(rows: Sequence[ClaimRow]) -> str:
    """Return every row in Markdown: what the paper states, what the replay shows, the verdict."""
    return markdown.table(
        ("claim", "where", "metric", "paper", "replay", "error", "verdict"),
        (
            (row.id, row.where, row.metric, row.expected, row.simulated, row.error, _verdict(row.verdict))
            for row in rows
        ),
    )


def reasons(rows: Sequence[ClaimRow]) -> tuple[str, ...]:
    """Return a section with the reason of each row that has one; nothing where none has."""
    lines = [
        markdown.Ready(f"{markdown.code(row.id)} ({_verdict(row.verdict)}): {markdown.escape(row.reason)}")
        for row in rows
        if row.reason
    ]
    return markdown.section("Why, and what to know of them", lines, level=3)


def _verdict(verdict: Verdict) -> str:
    return markdown.bold("not reproduced") if verdict is Verdict.NOT_REPRODUCED else verdict.value
