"""Files that are written whole or not at all: beside their place first, then renamed into it.

A name that is to be written never holds half a file, whatever interrupts the writing. What stood there stays until
the new content is complete.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from vdnnsim.errors import OutputError


def replace_file(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        OutputError: it cannot be written; nothing has changed then.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, expected the name of a file")
    replace_files(path.parent, {path.name: content})


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files by name into a folder, which is made if it is missing; other files in it stay as they are.

    Raises:
        OutputError: they cannot be written; up to the last moment, when all are complete, nothing has changed then.
    """
    try:
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        if not nearest.is_dir():
            raise OutputError(f"{nearest}: is a file, expected a folder to write to")
        if nearest == folder:
            _into_folder(folder, contents)
        else:
            _as_folder(folder, contents)
    except OSError as failure:
        raise OutputError(f"{folder}: cannot be written: {failure.strerror or failure}") from failure
    return tuple(folder / name for name in contents)


def _into_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name in contents:
        if (folder / name).is_dir():
            raise OutputError(f"{folder / name}: is a folder, expected a file or nothing")
    beside = Path(tempfile.mkdtemp(prefix=".vdnnsim-", dir=folder))
    try:
        _write_all(beside, contents)
        for name in contents:
            (beside / name).replace(folder / name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _as_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    made = [parent for parent in folder.parents if not parent.exists()]
    done = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            # mkdtemp lets in nobody else; the folder inside it gets the permissions that any new folder gets.
            inside = beside / folder.name
            inside.mkdir()
            _write_all(inside, contents)
            inside.rename(folder)
            done = True
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    finally:
        if not done:
            _remove_empty(made)


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, innermost first, that this module made and nobody else has used since."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
