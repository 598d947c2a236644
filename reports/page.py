"""Parts of the pages on papers: checked claims, a CSV and a slide of each figure, run.json, templates in Markdown."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reports.charts import Chart
from vdnnsim.analysis.columns import Row, Value
from vdnnsim.claims.check import COLUMNS, ClaimCount, ClaimRow
from vdnnsim.claims.claim import ClaimsFile, Verdict, read_claims
from vdnnsim.report import markdown
from vdnnsim.report.folder import Writer, versions
from vdnnsim.report.result_table import csv_text
from vdnnsim.report.scale import Scale, percent
from vdnnsim.units import format_bytes, format_seconds


def page_writer(paper: str) -> Writer:
    """Return the writer of a paper's folder."""
    return Writer(
        noun=f"report on {paper}",
        files=("README.md", "run.json"),
        wrote=lambda content: content.get("command") == _command(paper),
        others=r"\w+\.(csv|png)",
    )


def _command(paper: str) -> str:
    return f"python -m reports {paper}"


PERCENT = Scale("%", 0.01, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedFigure:
    """A figure of a paper from simulation.

    Attributes:
        stem: the name of its files without their ending: `figure01`.
        columns: those of its CSV; numbers are SI, and the name of a column says its unit.
        facts: numbers and words for the page, by their names in the template.
    """

    stem: str
    columns: Mapping[str, Sequence[Value]]
    chart: Chart
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Its numbers, row by row."""
        return tuple(zip(*self.columns.values(), strict=True))


def stated(paper: str, *ids: str) -> tuple[float, ...]:
    """Return the expected numbers of claims, in their units; shares between 0 and 1."""
    expected = {claim.id: claim.expected for claim in read_claims(paper).claims}
    return tuple(float(expected[each] or 0.0) for each in ids)


def figure_files(figures: Iterable[SimulatedFigure]) -> dict[str, bytes]:
    """Return the CSV and the picture of each figure by file name."""
    from reports.bars import draw_bars

    files: dict[str, bytes] = {}
    for figure in figures:
        files[f"{figure.stem}.csv"] = csv_text(tuple(figure.columns), figure.rows).encode()
        files[f"{figure.stem}.png"] = draw_bars(figure.chart)
    return files


def manifest(file: ClaimsFile, profiles: Iterable[Path], **chance: int) -> str:
    """Return command, versions, hashes of the profiles, and seed and draws of random numbers."""
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


def report_files(
    file: ClaimsFile, profiles: Iterable[Path], rows: Sequence[ClaimRow], texts: Mapping[str, str], **chance: int
) -> dict[str, bytes]:
    """Return the text files of a report: checked claims, manifest, its own."""
    checked = csv_text(COLUMNS, [row.cells for row in rows])
    every = {"claims.csv": checked, **texts, "run.json": manifest(file, profiles, **chance)}
    return {name: text.encode() for name, text in every.items()}


def page(template: str, rows: Sequence[ClaimRow], **values: object) -> bytes:
    """Return a page in Markdown, from a template in the folder of its paper.

    Args:
        template: path from this folder: `vdnn2016/page.md.j2`.
        rows: checked claims, of which the template has `claims`, the table, `reasons` and `count`.
        values: other names of the template.
    """
    reasons = [(row.id, _verdict(row.verdict), markdown.escape(row.reason)) for row in rows if row.reason]
    claims = markdown.table(
        ("claim", "where", "metric", "paper", "replay", "error", "verdict"),
        [(*row.cells[:6], _verdict(row.verdict)) for row in rows],
    )
    text = (
        _templates()
        .get_template(template)
        .render(rows=rows, count=ClaimCount.of(rows), claims=claims, reasons=reasons, **values)
    )
    return re.sub(r"\n{3,}", "\n\n", f"{text.strip()}\n").encode()


@cache
def _templates() -> Environment:
    made = Environment(  # noqa: S701  # Markdown, which `markdown.escape` escapes
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"percent": percent, "duration": format_seconds, "bytes": format_bytes, "escape": markdown.escape}
    made.filters["number"] = lambda value, form: "" if value is None else format(value, form)
    made.filters["table"] = lambda rows, *header, left=None: markdown.table(header, rows, left)
    return made


def _verdict(verdict: Verdict) -> str:
    return markdown.bold("not reproduced") if verdict is Verdict.NOT_REPRODUCED else verdict.value
