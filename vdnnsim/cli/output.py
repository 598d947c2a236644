"""Output of commands: results on standard output, notices on standard error; and checks that files can be written."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EISDIR
from io import StringIO
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
    """Where the table of a command goes: for people to standard output, as numbers to a file, or there in its place.

    Attributes:
        csv_file: None without `--csv`; `-` is standard output.
        as_json: whether `--json` is given.
    """

    csv_file: Path | None
    as_json: bool

    @property
    def has_all(self) -> str:
        """Where a table is that has no room on a terminal."""
        return "--csv FILE writes all" if self.csv_file is None else f"{self.csv_file} has all"

    @property
    def is_for_programs(self) -> bool:
        """Whether standard output gets numbers, and no table for people."""
        return self.as_json or self.csv_file == _STANDARD_OUTPUT

    def check(self) -> None:
        """Refuse, before anything is computed, what cannot be done.

        Raises:
            InputError: both CSV and JSON would go to standard output.
            OutputError: the file cannot be written.
        """
        if self.csv_file == _STANDARD_OUTPUT:
            if self.as_json:
                raise InputError("--json: found beside --csv -, expected one of the two on standard output")
        elif self.csv_file is not None:
            check_file(self.csv_file)

    def show(self, table: "ResultTable", *notices: str, piped_width: int = 120) -> None:
        """Write the numbers where they are asked for, and print the table for people, or what stands in its place."""
        from vdnnsim.report.result_table import write_csv

        if self.csv_file is not None and self.csv_file != _STANDARD_OUTPUT:
            write_csv(self.csv_file, table.columns, table.cells)
        if not self.is_for_programs:
            print_result(table.shown, *notices, piped_width=piped_width)
        else:
            _write_with_notices(table.to_json() if self.as_json else table.to_csv(), notices)

    def show_list(self, header: Sequence[str], rows: "Sequence[Row]", left_out_first: Sequence[str] = ()) -> None:
        """Print a list as it is, on a narrow terminal without some of its columns."""
        from vdnnsim.report.document import plain_table
        from vdnnsim.report.result_table import ResultTable

        cells = [[str(cell) for cell in row] for row in rows]
        self.show(ResultTable(header, rows, plain_table(header, cells, self.has_all, left_out_first)))


def print_result(shown: "Document | Table | RenderableType", *notices: str, piped_width: int = 120) -> None:
    """Print a result; then the notices, also where the reader of the result has closed it."""
    from rich.console import Console

    from vdnnsim.report.terminal import rendered

    text, terminal = StringIO(), sys.stdout is not None and sys.stdout.isatty()
    # A pipe has no width of its own.
    Console(file=text, force_terminal=terminal, width=None if terminal else piped_width, highlight=False).print(
        rendered(shown)
    )
    _write_with_notices(text.getvalue(), notices)


def _write_with_notices(text: str, notices: Sequence[str]) -> None:
    try:
        write_result(text)
    finally:
        for line in notices:
            click.echo(line, err=True)


def write_result(text: str) -> None:
    """Write a result to standard output; end quietly, with exit status 1, when its reader has gone."""
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
        raise OutputError(
            f"standard output: cannot be written: {(failure.strerror or 'unknown error').lower()}"
        ) from None


def discard_output() -> None:
    """Redirect standard output to nowhere, or Python writes the rest of its buffer when it ends, and fails again."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def report_folder(out: Path | None, name: str, files: Sequence[str], writer: "Writer") -> Path:
    """Return where a report goes, by default below `reports/`.

    Raises:
        OutputError: the folder cannot be written to, or what would be replaced there is not from an earlier run.
    """
    from vdnnsim.report.folder import refuse_foreign

    folder = Path("reports") / name if out is None else out
    check_folder(folder)
    refuse_foreign(folder, files, writer)
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written to, or made.

    Raises:
        OutputError: it cannot.
    """
    _try(folder, folder)


def check_file(file: Path) -> None:
    """Refuse a file that cannot be written.

    Raises:
        OutputError: it cannot.
    """
    if file.is_dir():
        raise OutputError(f"{file}: cannot be written: {strerror(EISDIR)}")
    _try(file, file.absolute().parent)


def _try(target: Path, folder: Path) -> None:
    nearest = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        TemporaryFile(dir=nearest).close()
    except OSError as failure:
        raise OutputError(f"{target}: cannot be written: {failure.strerror or failure}") from None
