"""Atomic writing of files: complete in a temporary folder beside their place first, then renamed into it.

Whatever interrupts the writing, no name holds half a file: what stood there stays until the new content is complete.
New content gets the permissions of the old. A link stays one: its target is replaced. A device or a pipe is written
through. Temporary folders of a killed writer are removed by the next.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
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
"""Of temporary folders."""
_DESCRIPTORS = Path("/proc/self/fd")
_PATIENCE_S = 5.0
"""How long the lock of a folder is waited for; writing takes less, and others may hold it for ever."""
_POLL_S = 0.01


def replace_file(path: Path, content: Content) -> None:
    """Write a file.

    Raises:
        OutputError: it cannot be written; nothing has changed then.
    """
    if path.is_dir():
        raise OutputError(f"{path}: is a folder, expected the name of a file")
    if _is_special(path):
        with _refusing(path):
            _write_through(path, content)
    else:
        replace_files(path.parent, {path.name: content})


def replace_files(
    folder: Path, contents: Mapping[str, Content], meanwhile: Mapping[str, bytes] | None = None
) -> tuple[Path, ...]:
    """Write files by name into a folder, which is made if it is missing; other files in it stay as they are.

    Args:
        folder: where they go.
        contents: by name.
        meanwhile: the files that stand from the moment before the first of the others is replaced, and still stand when
            a writer is killed among them.

    Raises:
        OutputError: they cannot be written; up to the last moment, when all are complete, nothing has changed then.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    nearest = made[-1].parent if made else folder
    if not nearest.is_dir():
        raise OutputError(f"{nearest}: is a file, expected a folder to write to")
    for name in contents:
        if (folder / name).is_dir():
            raise OutputError(f"{folder / name}: is a folder, expected a file or nothing")
    try:
        with _refusing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with _folder_beside(folder) as beside:
                complete = []
                for stage, files in (("first", meanwhile or {}), ("then", contents)):
                    (beside / stage).mkdir()
                    for name, content in files.items():
                        complete.append(beside / stage / name)
                        _write(complete[-1], content)
                for each in complete:
                    _put(each, folder / each.name)
    finally:
        _remove_empty(made)
    return tuple(folder / name for name in contents)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Exclude others who ask for the same from making a folder, or writing into it, by the lock of the one above it."""
    above = folder.absolute().parent
    made = [each for each in (above, *above.parents) if not each.exists()]
    with suppress(OSError):  # the writer is told
        above.mkdir(parents=True, exist_ok=True)
    try:
        with _lock_of(above) as lock:
            ends_s = monotonic() + _PATIENCE_S
            while lock is not None and not lock(fcntl.LOCK_EX) and monotonic() < ends_s:
                sleep(_POLL_S)
            yield
    finally:
        _remove_empty(made)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise OutputError(f"{path}: cannot be written: {failure.strerror or failure}") from failure


def _write(path: Path, content: Content) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with path.open("wb") as file:
            file.writelines(content)


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
    """Make a temporary folder in another.

    Writers share a lock of the folder, which the system releases however a process ends; who gets it alone removes what
    killed writers left. Where others hold it for their own ends, as the program flock does, what is left stays.
    """
    with _lock_of(folder) as lock:
        if lock is not None:
            if lock(fcntl.LOCK_EX):
                for left in list(folder.glob(f"{_PREFIX}*")):
                    shutil.rmtree(left, ignore_errors=True)
            lock(fcntl.LOCK_SH)
        beside = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        try:
            yield beside
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _lock_of(folder: Path) -> Iterator[Callable[[int], bool] | None]:
    """Return what takes the lock of a folder and says whether it got it at once; None where it may not be read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return

    def take(mode: int) -> bool:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    try:
        yield take
    finally:
        os.close(descriptor)


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


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders that are empty, innermost first."""
    for each in folders:
        try:
            each.rmdir()
        except OSError:
            return
