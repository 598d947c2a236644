"""Whether results can be written, asked before the minutes of work that they take."""

from errno import EISDIR
from os import strerror
from pathlib import Path
from tempfile import TemporaryFile

from vdnnsim.errors import OutputError


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
