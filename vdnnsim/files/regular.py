"""Reading of regular files up to a limit; devices and pipes, which may never end, are refused."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_MIB: Final = 2**20


class UnreadableError(Exception):
    """A file that cannot be read; the message lacks its name. Raised from an OSError of the system, if any."""


@contextmanager
def opened_regular_file(path: Path, expected: str) -> Iterator[BinaryIO]:
    """Open a file, perhaps behind a link.

    Raises:
        UnreadableError: it is not a regular file, or cannot be read; the message has what was expected.
    """
    try:
        # Non-blocking, for a pipe without a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise UnreadableError(f"is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}, {expected}")
            with open(descriptor, "rb", closefd=False) as file:  # Path opens no numbers
                yield file
        finally:
            os.close(descriptor)
    except OSError as failure:
        raise UnreadableError(f"cannot be read: {(failure.strerror or 'unknown error').lower()}") from failure
    except ValueError:
        raise UnreadableError("cannot be read: no file can have this name") from None


def read_regular_file(path: Path, largest_bytes: int, expected: str) -> bytes:
    """Return the content of a file with a limit of bytes.

    Raises:
        UnreadableError: it is not a regular file, is larger, or cannot be read.
    """
    with opened_regular_file(path, expected) as file:
        data = file.read(largest_bytes + 1)
    if len(data) > largest_bytes:
        number, unit = (largest_bytes >> 10, "KiB") if largest_bytes < _MIB else (largest_bytes >> 20, "MiB")
        raise UnreadableError(f"is larger than {number} {unit}, {expected}")
    return data
