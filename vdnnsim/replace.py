"""Files that are written whole or not at all: beside their place first, then renamed into it.

A name that is to be written never holds half a file, whatever interrupts the writing. What stood there stays until
the new content is complete. A link stays one: what it leads to is replaced. A device or a pipe is written through.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from vdnnsim.errors import OutputError

_APPEARED = (errno.ENOTEMPTY, errno.EEXIST)
"""What renaming a folder says when another run has made one of that name meanwhile."""

_DESCRIPTORS = Path("/proc/self/fd")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file.

    Raises:
        OutputError: it cannot be written; nothing has changed then.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, expected the name of a file")
    if _is_special(path):
        try:
            _write_through(path, content)
        except OSError as failure:
            raise OutputError(f"{path}: cannot be written: {failure.strerror or failure}") from failure
        return
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
        for name, content in contents.items():
            _put(beside / name, folder / name, content)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put(complete: Path, place: Path, content: bytes) -> None:
    """Put a complete file where it belongs: into its place, into the file that a link there leads to, or through it."""
    if _is_special(place):
        _write_through(place, content)
    elif not place.is_symlink():
        complete.replace(place)
    else:
        with suppress(FileNotFoundError):
            place.stat()  # says of links in a circle what resolve has no OSError for
        target = place.resolve()
        # Renaming works within one file system only, so the content goes beside the target first.
        beside = Path(tempfile.mkdtemp(prefix=".vdnnsim-", dir=target.parent))
        try:
            (beside / place.name).write_bytes(content)
            (beside / place.name).replace(target)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _is_special(path: Path) -> bool:
    """Whether something stands there that is neither file nor folder, such as a device or a pipe."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def _descriptor(path: Path) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout leads to; None for other paths."""
    beside = path.parent.resolve()
    for each in (beside / path.name, *([beside / path.readlink()] if path.is_symlink() else [])):
        if each.name.isdecimal() and each.parent.resolve() == _DESCRIPTORS.resolve():
            return int(each.name)
    return None


def _write_through(path: Path, content: bytes) -> None:
    descriptor = _descriptor(path)
    # An open file is written on from where it is, for others write to it as well.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as file:  # noqa: PTH123  # Path opens no numbers
        file.write(content)


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
            try:
                inside.rename(folder)
            except OSError as failure:
                if failure.errno not in _APPEARED:
                    raise
                _into_folder(folder, contents)
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
