"""Output of commands: results to standard output, notices to standard error, and checks of output paths."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EISDIR
from io import StringIO
from itertools import chain, count
from os import strerror
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.errors import InputError, OutputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vdnnsim.analysis.columns import Row
    from vdnnsim.report.document import Document, Table
    from vdnnsim.report.folder import Writer
    from vdnnsim.report.result_table import ResultTable

_STANDARD_OUTPUT: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Output:
    """Destination of the table of a command, by `--csv`, where `-` is standard output, and `--json`."""

    csv_file: Path | None
    as_json: bool

    @property
    def has_all(self) -> str:
        return "--csv FILE writes all" if self.csv_file is None else f"{self.csv_file} has all"

    @property
    def is_for_programs(self) -> bool:
        return self.as_json or self.csv_file == _STANDARD_OUTPUT

    def check(self) -> None:
        """Raise InputError for CSV and JSON on standard output, OutputError for a file that cannot be written."""
        if self.csv_file == _STANDARD_OUTPUT:
            if self.as_json:
                raise InputError("--json: found beside --csv -, expected one of the two on standard output")
        elif self.csv_file is not None:
            check_file(self.csv_file)

    def show(self, table: "ResultTable", *notices: str, piped_width: int = 120) -> None:
        """Write the CSV file, and print the table, CSV or JSON."""
        from vdnnsim.report.result_table import write_csv

        if self.csv_file is not None and self.csv_file != _STANDARD_OUTPUT:
            write_csv(self.csv_file, table.columns, table.cells)
        if not self.is_for_programs:
            print_result(table.shown, *notices, piped_width=piped_width)
        else:
            _write_with_notices(table.to_json() if self.as_json else table.to_csv(), notices)

    def show_list(self, header: Sequence[str], rows: "Sequence[Row]", left_out_first: Sequence[str] = ()) -> None:
        """Print a list; a narrow terminal drops `left_out_first` columns first."""
        from vdnnsim.report.document import plain_table
        from vdnnsim.report.result_table import ResultTable

        cells = [[str(cell) for cell in row] for row in rows]
        self.show(ResultTable(header, rows, plain_table(header, cells, self.has_all, left_out_first)))


def print_result(shown: "Document | Table | RenderableType", *notices: str, piped_width: int = 120) -> None:
    """Print a result, then notices, even if standard output is closed."""
    from rich.console import Console

    from vdnnsim.report.terminal import rendered, unpadded

    text, terminal = StringIO(), sys.stdout is not None and sys.stdout.isatty()
    # A pipe has no width of its own, but for the one that was asked for.
    columns = os.environ.get("COLUMNS", "")
    width = None if terminal else int(columns) if columns.isdecimal() and int(columns) else piped_width
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    # Commands to copy may be longer than a line.
    console.print(rendered(shown), crop=False)
    printed = text.getvalue()
    _write_with_notices(printed if terminal else unpadded(printed), notices)


def _write_with_notices(text: str, notices: Sequence[str]) -> None:
    try:
        write_result(text)
    finally:
        for line in notices:
            click.echo(line, err=True)


def write_result(text: str) -> None:
    if sys.stdout is None:
        raise OutputError("standard output is closed; results go there")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        sys.exit(1)
    except OSError as failure:
        discard_output()
        reason = (failure.strerror or "unknown error").lower()
        raise OutputError(f"standard output: cannot be written: {reason}") from None


def discard_output() -> None:
    """Redirect standard output to /dev/null, or Python would fail again when it flushes at exit."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_folder(out: Path | None, name: str, writer: "Writer", question: str = "") -> Path:
    """Return the folder of a report, by default below `reports/`.

    Of a question by default the first of `NAME`, `NAME-2` and so on that has no report on another one.

    Raises:
        OutputError: it cannot be written, or has files that are not from an earlier run.
    """
    from vdnnsim.report.folder import question_in, refuse_foreign

    folder = Path("reports") / name if out is None else out
    if out is None and question:
        numbered = (folder.with_name(f"{name}-{number}") for number in count(2))
        others = (each for each in chain((folder,), numbered) if question_in(each, writer) in ("", question))
        folder = next(others)
    check_folder(folder)
    refuse_foreign(folder, writer.files, writer)
    return folder


def check_folder(folder: Path) -> None:
    """Raise OutputError for a folder that cannot be written or made."""
    _try(folder, folder)


def check_file(file: Path) -> None:
    if file.is_dir():
        raise OutputError(f"{file}: cannot be written: {strerror(EISDIR)}")
    _try(file, file.absolute().parent)


def _try(target: Path, folder: Path) -> None:
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        TemporaryFile(dir=nearest).close()
    except OSError as failure:
        raise OutputError(f"{target}: cannot be written: {failure.strerror or failure}") from None
