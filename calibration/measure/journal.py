"""Journal of finished measurements in a file, from which the same command resumes after a crash.

One JSON object a line: first settings, device and software, then one line for each finished measurement. A last line
that a crash cut off is dropped; a damaged line is measured again.
"""

import fcntl
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from vdnnsim.errors import OutputError

Value = TypeVar("Value")
Line = TypeVar("Line")
FORMAT: Final = 1
_LARGEST_BYTES: Final = 256 * 2**20
"""A million measurements."""


class _Line(msgspec.Struct):
    key: str
    value: Any


class _Header(msgspec.Struct):
    format: int
    identity: dict[str, str]


class Journal:
    """A file of finished measurements.

    Args:
        path: of the file; its folder is created.
        identity: settings, device and software, by name; measurements under others are discarded.

    Attributes:
        kept: number of measurements of an earlier run.
        begun_anew: why those of an earlier run were discarded; None if they were not.

    Raises:
        OutputError: it cannot be written, or another process writes it.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self.path = path
        self._known: dict[str, Any] = {}
        self.begun_anew: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file() and not path.is_dir():
                raise OutputError(f"{path}: is not a regular file, expected a journal or nothing")
            # A symbolic link would be followed.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(path, flags, 0o666), "a+b")
        except OSError as failure:
            raise self._unwritable(failure) from None
        try:
            self._begin(dict(identity))
        except OSError as failure:
            self._file.close()
            raise self._unwritable(failure) from None
        except BaseException:
            self._file.close()
            raise
        self.kept = len(self._known)

    def recall(self, key: str, kind: type[Value]) -> Value | None:
        """Return the measurement of a key; None if there is none, or its value is not of this type."""
        if key not in self._known:
            return None
        try:
            return msgspec.convert(self._known[key], kind)
        except msgspec.ValidationError:
            # The last line of a key counts.
            del self._known[key]
            return None

    def keep(self, key: str, value: object) -> None:
        assert key not in self._known, f"{key} is measured twice"
        plain = msgspec.to_builtins(value)
        try:
            self._write(_Line(key, plain))
        except OSError as failure:
            raise self._unwritable(failure) from None
        self._known[key] = plain

    def __len__(self) -> int:
        return len(self._known)

    def remove(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A failed write has raised already; closing would repeat it.
        with suppress(OSError):
            self._file.close()

    def _begin(self, identity: dict[str, str]) -> None:
        """Lock the file until the process ends, and read it."""
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{self.path}: another process measures into it, expected one at a time") from None
        good_bytes = self._read(identity)
        self._file.truncate(good_bytes)
        if not good_bytes:
            self._write(_Header(FORMAT, identity))

    def _read(self, identity: dict[str, str]) -> int:
        """Read the measurements of the file; return the length of its valid part."""
        self._file.seek(0)
        *lines, _cut_off = self._file.read(_LARGEST_BYTES).split(b"\n")
        if not lines:
            return 0
        header = _decoded(lines[0], _Header)
        if header is None:
            self.begun_anew = f"{self.path} is damaged"
            return 0
        if header.format != FORMAT:
            self.begun_anew = f"{self.path} was written by another version of vdnnsim"
            return 0
        for name in dict.fromkeys((*identity, *header.identity)):
            was, now = header.identity.get(name, "unknown"), identity.get(name, "unknown")
            if was != now:
                self.begun_anew = f"{name} was {was} and is {now}"
                return 0
        records = (_decoded(line, _Line) for line in lines[1:])
        self._known = {record.key: record.value for record in records if record is not None}
        return sum(len(line) + 1 for line in lines)

    def _write(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def _unwritable(self, failure: OSError) -> OutputError:
        # Without a file the folder is at fault.
        at_fault = self.path if self._is_there() else self.path.parent
        return OutputError(f"{at_fault}: cannot be written: {(failure.strerror or 'unknown error').lower()}")

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError:  # a folder that may not be entered
            return False


def _decoded(line: bytes, kind: type[Line]) -> Line | None:
    """Decode a line; None where it is damaged."""
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
