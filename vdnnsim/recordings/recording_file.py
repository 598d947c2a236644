"""The bytes of a recording, packed by gzip or not, and which kind of recording they are.

A file may come from anybody: it is looked at by its first bytes and not by its name, and no more of it is unpacked
than its reader takes.
"""

import gzip
import stat
import zlib
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import LONGEST_SHOWN, file_name, one_line

Kind = TypeVar("Kind")

LARGEST_BYTES: Final = 2**30
"""Of a recording, unpacked. A step of ResNet-50 takes 5 MB in a trace, with stacks 20."""

_GZIP: Final = b"\x1f\x8b"
_PICKLE: Final = b"\x80"
_JSON: Final = (b"{", b"[")
_PEEKED: Final = 64
_EXPECTED: Final = "expected a trace of PyTorch's profiler (.json, .json.gz) or a CUDA memory snapshot (.pickle)"


class RecordingKind(Enum):
    """What was recorded."""

    TRACE = "trace"
    SNAPSHOT = "snapshot"


def kind_of(path: Path) -> RecordingKind:
    """Return what a file is by its first bytes.

    Raises:
        RecordingError: it cannot be read, or is neither.
    """
    start = read_recording(path, _PEEKED, whole=False).lstrip()
    if start.startswith(_PICKLE):
        return RecordingKind.SNAPSHOT
    if start.startswith(_JSON):
        return RecordingKind.TRACE
    found = "is empty" if not start else "is neither JSON nor a pickle"
    raise RecordingError(f"{file_name(path)}: {found}, {_EXPECTED}")


def read_recording(path: Path, limit_bytes: int = LARGEST_BYTES, *, whole: bool = True) -> bytes:
    """Return the content of a file, unpacked where gzip packed it.

    No more than the limit is read or unpacked; the whole of a file with more, or one that ends early, is refused.

    Raises:
        RecordingError: the file cannot be read, is cut off, or is too large.
    """
    name = file_name(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise RecordingError(f"{name}: is {'a folder' if stat.S_ISDIR(mode) else 'no regular file'}, {_EXPECTED}")
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            data = gzip.GzipFile(fileobj=file).read(limit_bytes + 1) if packed else file.read(limit_bytes + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise RecordingError(f"{name}: ends in the middle or is damaged, expected all that gzip packed") from None
    except OSError as failure:
        raise RecordingError(f"{name}: cannot be read: {(failure.strerror or 'unknown error').lower()}") from None
    except ValueError:
        raise RecordingError(f"{name}: cannot be read: no file can have this name") from None
    if whole and len(data) > limit_bytes:
        raise RecordingError(f"{name}: holds more than {limit_bytes // 2**20} MiB, expected a recording of fewer steps")
    return data


def read_json(path: Path, kind: type[Kind], expected: str) -> Kind:
    """Return the content of a file of JSON, of a class of msgspec; messages say what was expected.

    Raises:
        RecordingError: the file cannot be read, is larger than 1 GiB unpacked, or is of another kind.
    """
    name = file_name(path)
    try:
        return msgspec.json.decode(read_recording(path), type=kind)
    except msgspec.ValidationError as failure:
        raise RecordingError(f"{name}: {mismatch(failure)}; {expected}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:
        reason = one_line(str(failure))[:LONGEST_SHOWN]
        raise RecordingError(f"{name}: is not whole JSON: {reason}; {expected}") from None


def mismatch(failure: msgspec.ValidationError) -> str:
    """Return where content is of another kind, as messages say it: "expected `int`, got `str` - at `$.nodes[0].id`"."""
    reason = one_line(str(failure))[: 2 * LONGEST_SHOWN]
    return f"{reason[:1].lower()}{reason[1:]}"
