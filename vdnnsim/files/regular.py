"""The bytes of a file that somebody gives: of no device, no pipe that never ends, and no more than its reader takes."""

import os
import stat
from pathlib import Path
from typing import Final

_MIB: Final = 2**20


class UnreadableError(Exception):
    """A file that cannot be read; the message lacks its name. Raised from an OSError where the system says so."""


def read_regular_file(path: Path, largest_bytes: int, expected: str) -> bytes:
    """Return the content of a file.

    Args:
        path: of the file, or of a link to it.
        largest_bytes: no more is read.
        expected: what would be right, as messages say it.

    Raises:
        UnreadableError: it is no regular file, is larger, or cannot be read.
    """
    try:
        # A pipe that is opened so answers at once, whether or not anybody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise UnreadableError(f"is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}, {expected}")
            with open(descriptor, "rb", closefd=False) as file:  # Path opens no numbers
                data = file.read(largest_bytes + 1)
        finally:
            os.close(descriptor)
    except OSError as failure:
        raise UnreadableError(f"cannot be read: {(failure.strerror or 'unknown error').lower()}") from failure
    except ValueError:
        raise UnreadableError("cannot be read: no file can have this name") from None
    if len(data) > largest_bytes:
        number, unit = (largest_bytes >> 10, "KiB") if largest_bytes < _MIB else (largest_bytes >> 20, "MiB")
        raise UnreadableError(f"is larger than {number} {unit}, {expected}")
    return data
