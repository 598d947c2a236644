"""The folder of a validation: its files computed first, then written together, whole or not at all."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.folder import Writer, write_folder
from vdnnsim.report.provenance import origin, source_commit
from vdnnsim.validation.report.page import page_text
from vdnnsim.validation.report.pictures import draw_validation
from vdnnsim.validation.report.tables import cells, column_names
from vdnnsim.validation.row import Row
from vdnnsim.validation.validate import Validation
from vdnnsim.validation.verdict import requirements

FORMAT_VERSION = 1
"""Of run.json; raised when a key is renamed or removed."""

VALIDATION_WRITER: Final = Writer(
    noun="validation",
    manifest="run.json",
    wrote=lambda content: {"method", "requirements", "files"} <= content.keys(),
    names=re.compile(r"README\.md|validation\.csv|run\.json|\w+\.png"),
)


def write_validation(validation: Validation, warnings: Sequence[str], folder: Path) -> tuple[Path, ...]:
    """Write page, table, pictures and manifest of a validation; return the paths of all files.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier validation.
    """
    return write_folder(folder, validation_files(validation, warnings), VALIDATION_WRITER).files


def validation_files(validation: Validation, warnings: Sequence[str]) -> dict[str, bytes]:
    """Return the content of every file by its name."""
    pictures = draw_validation(validation)
    texts = {
        "README.md": page_text(validation, {each.name: each.description for each in pictures}, warnings),
        "validation.csv": csv_text(column_names(), [cells(row) for row in validation.rows]),
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    return files | {"run.json": _manifest(validation, warnings, (*files, "run.json")).encode()}


def _manifest(validation: Validation, warnings: Sequence[str], files: Sequence[str]) -> str:
    method = validation.method
    content = {
        "format_version": FORMAT_VERSION,
        **origin(source_commit(), validation.sources),
        "device": {"name": validation.device, **dict(validation.provenance)},
        "profile": {"name": validation.server.name, **dict(validation.server.provenance)},
        "warnings": list(warnings),
        "method": {
            "pacing": None if method.pacing is None else asdict(method.pacing),
            "free_runs": method.free_runs,
            "tolerance": asdict(method.tolerance),
        },
        "requirements": [
            {"name": each.name, "required": each.required, "found": each.found, "holds": each.holds}
            for each in requirements(validation.rows, method.tolerance)
        ],
        "rows": [_row(row) for row in validation.rows],
        "files": sorted(files),
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row) -> dict[str, Any]:
    """Return the cells of a row, the duration of each run, and the trials of a policy that decides by them."""
    named = dict(zip(column_names(), cells(row), strict=True))
    passes = row.simulated.trace.plan.passes if row.simulated else ()
    return {
        **{name: None if value == "" else value for name, value in named.items()},
        "runs_s": list(row.runs_s),
        "passes": [{"name": one.name, "fits": one.fits, "cost_s": one.cost_s} for one in passes],
    }
