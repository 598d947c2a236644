"""Atomic writing of files: to a temporary folder beside their place, then renamed.

No interruption leaves half a file: the old one stays until the new content is complete. Permissions are kept, of a link
the target is replaced, and devices and pipes are written through. Temporary folders of a killed writer are removed by
the next.
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
"""Of a file: all of it, or pieces."""
UNFINISHED: Final = "unfinished"
"""The key of a manifest that stands while the files of a folder are replaced."""
_PREFIX: Final = ".vdnnsim-"
_DESCRIPTORS = Path("/proc/self/fd")
_PATIENCE_S = 5.0
"""Wait for the lock of a folder; writing takes less, and other programs may hold it for ever."""
_POLL_S = 0.01


def replace_file(path: Path, content: Content) -> None:
    """Write a file.

    Raises:
        OutputError: it cannot be written; nothing has changed.
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
    """Write files by name into a folder, which is created if missing; its other files stay.

    Those of `meanwhile` are written first, and stay if the writer is killed before the others are replaced.

    Raises:
        OutputError: they cannot be written; until all are complete nothing has changed.
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
    """Exclude other callers from creating a folder or writing into it, by the lock of its parent."""
    above = folder.absolute().parent
    made = [each for each in (above, *above.parents) if not each.exists()]
    with suppress(OSError):  # writing raises it
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
    """Put a complete file into its place, into the target of a link, or through a device or pipe."""
    if _is_special(place):
        with complete.open("rb") as file:
            _write_through(place, file)
    elif not place.is_symlink():
        _rename(complete, place)
    else:
        with suppress(FileNotFoundError):
            place.stat()  # raises OSError for a cycle of links, as resolve does not
        target = place.resolve()
        # Renaming takes one file system, so the content is copied beside the target first.
        with _folder_beside(target.parent) as beside:
            _rename(shutil.copyfile(complete, beside / place.name), target)


def _rename(complete: Path, place: Path) -> None:
    """Replace a file, and keep its permissions."""
    with suppress(FileNotFoundError):
        shutil.copymode(place, complete)
    complete.replace(place)


@contextmanager
def _folder_beside(folder: Path) -> Iterator[Path]:
    """Create a temporary folder in another.

    Writers share a lock of the folder, which the system releases when a process ends; a writer that gets it exclusively
    removes leftovers of killed ones, which stay while other programs, as flock, hold the lock.
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
    """Yield a function that tries to take the lock of a folder; None if the folder may not be read."""
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
    """Whether a path is neither file nor folder, but a device or a pipe."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def _descriptor(path: Path) -> int | None:
    """Return the descriptor of a path such as /dev/stdout; None for other paths."""
    beside = path.parent.resolve()
    for each in (beside / path.name, *([beside / path.readlink()] if path.is_symlink() else [])):
        if each.name.isdecimal() and each.parent.resolve() == _DESCRIPTORS.resolve():
            return int(each.name)
    return None


def _write_through(path: Path, content: Content) -> None:
    descriptor = _descriptor(path)
    # An open file is written from its position on, for others write to it as well.
    with open(path if descriptor is None else os.dup(descriptor), "wb") as file:  # noqa: PTH123  # Path opens no numbers
        file.writelines([content] if isinstance(content, bytes) else content)


def _remove_empty(folders: list[Path]) -> None:
    for each in folders:
        try:
            each.rmdir()
        except OSError:
            return
