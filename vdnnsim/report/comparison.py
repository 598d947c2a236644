"""The folder of a comparison: a table, a picture, and what they came from."""

import json
import re
from typing import Final

from vdnnsim.analysis.comparison import Comparison
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.folder import Writer
from vdnnsim.report.provenance import origin, source_commit
from vdnnsim.report.tables.comparison import COMPARED, comparison_rows

_MANIFEST: Final = "compare.json"
_TABLE: Final = "compare.csv"
_PICTURE: Final = "compare.png"
COMPARISON_FILES: Final = (_MANIFEST, _TABLE, _PICTURE)
"""None of which a run has, so that a scenario's comparison lies beside its results."""

COMPARISON_WRITER: Final = Writer(
    noun="comparison",
    manifest=_MANIFEST,
    wrote=lambda content: {"format_version", "compared", "files"} <= content.keys(),
    names=re.compile("|".join(map(re.escape, COMPARISON_FILES))),
)
FORMAT_VERSION: Final = 1
"""Of compare.json; raised when a key is renamed or removed."""


def comparison_files(comparison: Comparison) -> dict[str, bytes]:
    """Return the content of each file by its name."""
    # Matplotlib takes longer to import than most policies to replay.
    from vdnnsim.report.plots.front import draw_comparison

    result, rows = comparison.result, comparison_rows(comparison)
    manifest = {
        "format_version": FORMAT_VERSION,
        **origin(source_commit(), result.sources),
        "scenario": result.name,
        "hardware": result.server.name,
        "compared": [row[COMPARED.index("policy")] for row in rows],
        "files": sorted(COMPARISON_FILES),
    }
    return {
        _MANIFEST: (json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(),
        _TABLE: csv_text(COMPARED, rows).encode(),
        _PICTURE: draw_comparison(comparison),
    }
