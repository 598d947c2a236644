"""What commands print: results on standard output, talk on standard error; and whether their files can be written."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import EISDIR
from io import StringIO
from os import strerror
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import click

from vdnnsim.errors import OutputError

if TYPE_CHECKING:
    from rich.console import RenderableType


def print_list(
    header: Sequence[str], rows: Sequence[Sequence[str]], csv_file: Path | None, left_out_first: Sequence[str] = ()
) -> None:
    """Print a table of text, on a narrow terminal without some of its columns; write it to a file if one is given."""
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.document import plain_table

    if csv_file is not None:
        write_csv(csv_file, header, rows)
    print_result(plain_table(header, rows, has_all(csv_file), left_out_first))


def has_all(csv_file: Path | None) -> str:
    """Say where a table is that has no room on a terminal."""
    return "--csv FILE writes all" if csv_file is None else f"{csv_file} has all"


def print_result(renderable: "RenderableType", *talk: str, piped_width: int = 120) -> None:
    """Print a result; then the talk, also where nobody reads the result to its end."""
    from rich.console import Console

    text, terminal = StringIO(), sys.stdout is not None and sys.stdout.isatty()
    # A pipe has no width of its own.
    Console(file=text, force_terminal=terminal, width=None if terminal else piped_width, highlight=False).print(
        renderable
    )
    try:
        write_result(text.getvalue())
    finally:
        for line in talk:
            click.echo(line, err=True)


def write_result(text: str) -> None:
    """Write a result to standard output; end quietly, with exit status 1, when its reader has gone."""
    if sys.stdout is None:
        raise OutputError("standard output is closed; results go there")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        sys.exit(1)
    except OSError as failure:
        forget_output()
        raise OutputError(
            f"standard output: cannot be written: {(failure.strerror or 'unknown error').lower()}"
        ) from None


def forget_output() -> None:
    """Lead standard output nowhere, or Python writes what is left in its buffer when it ends, and fails again."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
