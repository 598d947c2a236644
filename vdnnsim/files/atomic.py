"""Files that are written whole or not at all: beside their place first, then renamed into it.

A name that is to be written never holds half a file, whatever interrupts the writing. What stood there stays until
the new content is complete, and who may read it may read what comes. A link stays one: what it leads to is replaced. A
device or a pipe is written through. What a writer leaves that was killed, the next in its folder removes.
"""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeAlias

from vdnnsim.errors import OutputError

Content: TypeAlias = bytes | Iterable[bytes]
"""Of a file: all of it, or its pieces one after the other, for what memory should not hold at once."""

UNFINISHED: Final = "unfinished"
"""The key of what stands while files are replaced that belong together."""

_PREFIX: Final = ".vdnnsim-"
"""Of folders in which files become complete."""

_APPEARED = (errno.ENOTEMPTY, errno.EEXIST)
"""What renaming a folder says when another run has made one of that name meanwhile."""

_DESCRIPTORS = Path("/proc/self/fd")

_PATIENCE_S = 5.0
"""How long the lock of a folder is waited for; writing takes less, and others may hold it for ever."""
_GLANCE_S = 0.01


def replace_file(path: Path, content: Content) -> None:
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


def replace_files(
    folder: Path, contents: Mapping[str, Content], meanwhile: Mapping[str, bytes] | None = None
) -> tuple[Path, ...]:
    """Write files by name into a folder, which is made if it is missing; other files in it stay as they are.

    Args:
        folder: where they go.
        contents: by name.
        meanwhile: in a folder that is there, the files that stand from the moment before the first of the others is
            replaced, and so are what a writer leaves that is killed among them.

    Raises:
        OutputError: they cannot be written; up to the last moment, when all are complete, nothing has changed then.
    """
    try:
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        if not nearest.is_dir():
            raise OutputError(f"{nearest}: is a file, expected a folder to write to")
        if nearest == folder:
            _into_folder(folder, contents, meanwhile or {})
        else:
            _as_folder(folder, contents)
    except OSError as failure:
        raise OutputError(f"{folder}: cannot be written: {failure.strerror or failure}") from failure
    return tuple(folder / name for name in contents)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let nobody else who asks for the same make a folder meanwhile, or write into it: hold the one above it."""
    above = folder.absolute().parent
    made = [each for each in (above, *above.parents) if not each.exists()]
    with suppress(OSError):  # who writes is told
        above.mkdir(parents=True, exist_ok=True)
    try:
        with _opened(above) as lock:
            ends_s = monotonic() + _PATIENCE_S
            while not (held := _locked(lock, fcntl.LOCK_EX)) and lock is not None and monotonic() < ends_s:
                sleep(_GLANCE_S)
            if held:
                _remove_left(above)
            yield
    finally:
        if not folder.exists():
            _remove_empty(made)


def _into_folder(folder: Path, contents: Mapping[str, Content], meanwhile: Mapping[str, bytes]) -> None:
    for name in contents:
        if (folder / name).is_dir():
            raise OutputError(f"{folder / name}: is a folder, expected a file or nothing")
    with _folder_beside(folder) as beside:
        complete = []
        for stage, files in (("first", meanwhile), ("then", contents)):
            (beside / stage).mkdir()
            _write_all(beside / stage, files)
            complete += [beside / stage / name for name in files]
        for each in complete:
            _put(each, folder / each.name)


def _put(complete: Path, place: Path) -> None:
    """Put a complete file where it belongs: into its place, into the file that a link there leads to, or through it."""
    if _is_special(place):
        with complete.open("rb") as file:
            _write_through(place, file)
    elif not place.is_symlink():
        _rename(complete, place)
    else:
        with suppress(FileNotFoundError):
            place.stat()  # says of links in a circle what resolve has no OSError for
        target = place.resolve()
        # Renaming works within one file system only, so the content goes beside the target first.
        with _folder_beside(target.parent) as beside:
            _rename(shutil.copyfile(complete, beside / place.name), target)


def _rename(complete: Path, place: Path) -> None:
    """Put a file into the place of another, whose permissions it gets."""
    with suppress(FileNotFoundError):
        shutil.copymode(place, complete)
    complete.replace(place)


@contextmanager
def _folder_beside(folder: Path) -> Iterator[Path]:
    """Make a folder in another for files that become complete; it is gone in the end.

    Those that killed writers left go as well. Who writes shares a lock of the folder, which the system gives back
    however a process ends. Where others hold it for their own ends, as the program flock does, or a folder has no
    locks, what is left stays.
    """
    with _opened(folder) as lock:
        if _locked(lock, fcntl.LOCK_EX):
            _remove_left(folder)
        _locked(lock, fcntl.LOCK_SH)
        beside = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        try:
            yield beside
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _remove_left(folder: Path) -> None:
    """Remove what killed writers left; whoever has the lock of the folder alone knows that they are gone."""
    for each in list(folder.glob(f"{_PREFIX}*")):
        shutil.rmtree(each, ignore_errors=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int | None]:
    """Open a folder for its lock; None where it may not be read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int | None, how: int) -> bool:
    """Say whether a lock could be had at once."""
    try:
        fcntl.flock(-1 if descriptor is None else descriptor, how | fcntl.LOCK_NB)
    except (OSError, ValueError):
        return False
    return True


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


def _write_through(path: Path, content: Content) -> None:
    descriptor = _descriptor(path)
    # An open file is written on from where it is, for others write to it as well.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as file:  # noqa: PTH123  # Path opens no numbers
        file.writelines([content] if isinstance(content, bytes) else content)


def _as_folder(folder: Path, contents: Mapping[str, Content]) -> None:
    made = [parent for parent in folder.parents if not parent.exists()]
    done = False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _folder_beside(folder.parent) as beside:
            # mkdtemp lets in nobody else; the folder inside it gets the permissions that any new folder gets.
            inside = beside / folder.name
            inside.mkdir()
            _write_all(inside, contents)
            try:
                inside.rename(folder)
            except OSError as failure:
                if failure.errno not in _APPEARED:
                    raise
                for name in contents:
                    _put(inside / name, folder / name)
            done = True
    finally:
        if not done:
            _remove_empty(made)


def _write_all(folder: Path, contents: Mapping[str, Content]) -> None:
    for name, content in contents.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            with (folder / name).open("wb") as file:
                file.writelines(content)


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, innermost first, that this module made and nobody else has used since."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
