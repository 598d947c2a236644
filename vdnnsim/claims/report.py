"""What the reports of all papers have: figures as a CSV and a slide each, and the content of run.json."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vdnnsim.analysis.columns import Row
from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.report.chart import Chart
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.provenance import versions
from vdnnsim.report.scale import Scale

PERCENT = Scale("%", 0.01, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A figure of a paper from simulation.

    Attributes:
        stem: the name of its files without their ending: `figure01`.
        header, rows: its CSV; numbers are SI, and a column says its unit.
    """

    stem: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    chart: Chart


def figure_files(figures: Iterable[Figure]) -> dict[str, bytes]:
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
        "command": f"vdnnsim claims --paper {file.paper} --report DIR",
        "versions": versions(),
        "inputs": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs},
        "seed": None,
        **chance,
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"
