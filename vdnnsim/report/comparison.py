"""The folder of a comparison: a table, a picture, a page for a browser, and what they came from."""

from typing import Final

from vdnnsim.analysis.comparison import Comparison
from vdnnsim.report.caveats import known
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.folder import Writer
from vdnnsim.report.provenance import manifest
from vdnnsim.report.tables.comparison import COMPARED, FRONT_NOTE, comparison_rows, comparison_title, ranked

_MANIFEST: Final = "compare.json"
_TABLE: Final = "compare.csv"
_PICTURE: Final = "compare.png"
_PAGE: Final = "compare.html"
COMPARISON_FILES: Final = (_MANIFEST, _TABLE, _PICTURE, _PAGE)
"""None of which a run has, so that a scenario's comparison lies beside its results."""

COMPARISON_WRITER: Final = Writer.of("comparison", COMPARISON_FILES, "format_version", "compared", "files")
FORMAT_VERSION: Final = 1
"""Of compare.json; raised when a key is renamed or removed."""


def comparison_files(comparison: Comparison) -> dict[str, bytes]:
    """Return the content of each file by its name."""
    # Matplotlib takes longer to import than most policies to replay.
    from vdnnsim.report.plots.front import draw_comparison

    result, rows = comparison.result, comparison_rows(comparison)
    files = {_TABLE: csv_text(COMPARED, rows).encode(), _PICTURE: draw_comparison(comparison)}
    if result.results:
        files[_PAGE] = _page(comparison).encode()
    compared = [row[COMPARED.index("policy")] for row in rows]
    said = {"scenario": result.name, "hardware": result.server.name, "compared": compared}
    return {_MANIFEST: manifest(FORMAT_VERSION, result.sources, said, (*files, _MANIFEST)), **files}


def _page(comparison: Comparison) -> str:
    from vdnnsim.report.run.browser import Shown, html_text

    standings = comparison.standings
    front = sum(len(each.policies) for each in standings if each.on_front)
    heading = f"{front} of {len(comparison.result.slowest)} are beaten by none in both time and memory"
    notes = *((FRONT_NOTE,) if standings else ()), *known(comparison.result)
    said, beside = (f"{comparison_title(comparison)}.",), f"{_TABLE} and {_MANIFEST} lie"
    return html_text(comparison.result, Shown(said, heading, ranked(comparison), notes, beside))
