"""Atomic writing of files: to a temporary file beside their place, then renamed.

No interruption leaves half a file: the old one stays until the new content is complete. Permissions are kept, of a link
the target is replaced, and devices and pipes are written through. A temporary file of a killed writer is removed when
the same file is written an hour later.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from time import monotonic, sleep, time
from typing import Final, TypeAlias

from vdnnsim.errors import OutputError

Content: TypeAlias = bytes | Iterable[bytes]
"""Of a file: all of it, or pieces."""
UNFINISHED: Final = "unfinished"
"""The key of a manifest that stands while the files of a folder are replaced."""
_LEFT_BEHIND_S = 3600.0
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
    standard = next((each for each in (1, 2) if _is_open_as(path, each)), None)
    if standard is None and (path.is_file() or not path.exists()):
        replace_files(path.parent, {path.name: content})
        return
    # Standard output is written from its position on; it may be a file that others write to.
    with _refusing(path), open(path if standard is None else os.dup(standard), "wb") as file:  # noqa: PTH123  # a number
        file.writelines([content] if isinstance(content, bytes) else content)


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
    complete: list[tuple[Path, Path]] = []
    try:
        with _refusing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in (*(meanwhile or {}).items(), *contents.items()):
                complete.append(_beside(folder / name))
                _write(*complete[-1], content)
            for temporary, place in complete:
                temporary.replace(place)
    finally:
        for temporary, _ in complete:
            with suppress(OSError):
                temporary.unlink()
        _remove_empty(made)
    return tuple(folder / name for name in contents)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Exclude other callers from creating a folder or writing into it, by the lock of its parent."""
    above = folder.absolute().parent
    made = [each for each in (above, *above.parents) if not each.exists()]
    try:
        above.mkdir(parents=True, exist_ok=True)
        lock = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # writing raises it
        yield
        return
    try:
        ends_s = monotonic() + _PATIENCE_S
        while not _locks(lock) and monotonic() < ends_s:
            sleep(_POLL_S)
        yield
    finally:
        os.close(lock)
        _remove_empty(made)


def _locks(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as failure:
        raise OutputError(f"{path}: cannot be written: {failure.strerror or failure}") from failure


def _is_open_as(path: Path, descriptor: int) -> bool:
    """Whether a path is the file of a descriptor, as /dev/stdout is."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


def _beside(place: Path) -> tuple[Path, Path]:
    """Return a new name beside a file, and the file: the target of a link."""
    with suppress(FileNotFoundError):
        place.stat()  # raises OSError for a circle of links, as resolve does not
    place = place.resolve()
    for left in place.parent.glob(f".{escape(place.name)}.*.vdnnsim"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < time() - _LEFT_BEHIND_S:
                left.unlink()
    return place.with_name(f".{place.name}.{token_hex(4)}.vdnnsim"), place


def _write(temporary: Path, place: Path, content: Content) -> None:
    """Write a file with the permissions of another, if that exists."""
    if isinstance(content, bytes):
        temporary.write_bytes(content)
    else:
        with temporary.open("wb") as file:
            file.writelines(content)
    with suppress(FileNotFoundError):
        temporary.chmod(S_IMODE(place.stat().st_mode))


def _remove_empty(folders: list[Path]) -> None:
    for each in folders:
        try:
            each.rmdir()
        except OSError:
            return
