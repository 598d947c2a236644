"""Recordings as files of JSON or pickled plain data, perhaps packed by gzip, read without executing anything in them.

Files may come from anybody: their kind is that of their first bytes, a limited size is unpacked, and only the
operations of pickle that build plain data are supported, none that imports or calls.
"""

import gzip
import io
import pickle
import struct
import zlib
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import LONGEST_SHOWN, file_name, one_line
from vdnnsim.files.regular import UnreadableError, opened_regular_file

Kind = TypeVar("Kind")

LARGEST_BYTES: Final = 2**30
"""Of an unpacked recording. A step of ResNet-50 takes 5 MB in a trace, with stacks 20."""
_MOST_CONTAINERS: Final = 20_000_000
"""Lists and dictionaries in a pickle; a snapshot has one for each event and for each frame of its stack."""
_DEEPEST: Final = 64

_GZIP: Final = b"\x1f\x8b"
_PICKLE: Final = b"\x80"
_JSON: Final = (b"{", b"[")
_PEEKED: Final = 64
_EXPECTED: Final = "expected a trace of PyTorch's profiler (.json, .json.gz) or a CUDA memory snapshot (.pickle)"
_PLAIN: Final = "expected plain lists, dictionaries, text and numbers; nothing of it was executed"


class RecordingKind(Enum):
    """Kinds of recordings."""

    TRACE = "trace"
    SNAPSHOT = "snapshot"


def kind_of(path: Path) -> RecordingKind:
    """Return the kind of a file by its first bytes.

    Raises:
        RecordingError: it cannot be read, or is of neither kind.
    """
    start = read_recording(path, _PEEKED, whole=False).lstrip()
    if start.startswith(_PICKLE):
        return RecordingKind.SNAPSHOT
    if start.startswith(_JSON):
        return RecordingKind.TRACE
    found = "is empty" if not start else "is neither JSON nor a pickle"
    raise RecordingError(f"{file_name(path)}: {found}, {_EXPECTED}")


def read_recording(path: Path, limit_bytes: int = LARGEST_BYTES, *, whole: bool = True) -> bytes:
    """Return the content of a file up to a limit, unpacked if gzip packed it.

    Raises:
        RecordingError: the file cannot be read, is cut off, or exceeds the limit and the whole is wanted.
    """
    name = file_name(path)
    try:
        with opened_regular_file(path, _EXPECTED) as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            try:
                data = (gzip.GzipFile(fileobj=file) if packed else file).read(limit_bytes + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                raise RecordingError(f"{name}: is truncated or damaged, expected a complete gzip file") from None
    except UnreadableError as failure:
        raise RecordingError(f"{name}: {failure}") from None
    if whole and len(data) > limit_bytes:
        raise RecordingError(f"{name}: holds more than {limit_bytes // 2**20} MiB, expected a recording of fewer steps")
    return data


def read_json(path: Path, kind: type[Kind], expected: str) -> Kind:
    """Return the content of a JSON file as a class of msgspec; messages say what was expected.

    Raises:
        RecordingError: the file cannot be read, exceeds 1 GiB unpacked, or is of another kind.
    """
    name = file_name(path)
    try:
        return msgspec.json.decode(read_recording(path), type=kind)
    except msgspec.ValidationError as failure:
        raise RecordingError(f"{name}: {mismatch(failure)}; {expected}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:
        reason = one_line(str(failure))[:LONGEST_SHOWN]
        raise RecordingError(f"{name}: is not complete JSON: {reason}; {expected}") from None


def read_plain_pickle(data: bytes, name: str) -> object:
    """Return the plain data of a pickle, or raise RecordingError where it is cut off, or holds anything else."""
    if data.count(b"]") + data.count(b"}") > _MOST_CONTAINERS:
        raise RecordingError(f"{name}: holds more than {_MOST_CONTAINERS} lists and dictionaries, {_PLAIN}")
    try:
        return _PlainUnpickler(io.BytesIO(data), name=name).load()
    except KeyError as unknown:
        raise RecordingError(f"{name}: holds operation {unknown.args[0]:#04x} of pickle, {_PLAIN}") from None
    except (EOFError, IndexError, struct.error, pickle.UnpicklingError):
        raise RecordingError(f"{name}: is truncated or damaged, expected a complete pickle") from None
    except (AttributeError, TypeError, ValueError) as failure:
        raise RecordingError(f"{name}: is damaged ({one_line(str(failure))[:LONGEST_SHOWN]}), {_PLAIN}") from None


_PYTHON: Final[Any] = pickle._Unpickler  # noqa: SLF001  # the one in C reserves memory for any index in a file


class _PlainUnpickler(pickle._Unpickler):  # noqa: SLF001
    """Python's unpickler without the operations that construct objects."""

    def __init__(self, file: io.BytesIO, *, name: str) -> None:
        super().__init__(file)
        self._name = name

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # as Python has it
        imported = f"{module}.{name}"[:LONGEST_SHOWN]
        raise RecordingError(f"{self._name}: wants to run code (imports {imported!r}), {_PLAIN}")

    def load_mark(self: Any) -> None:  # of members that have no types
        _PYTHON.load_mark(self)
        if len(self.metastack) > _DEEPEST:
            raise RecordingError(f"{self._name}: is nested deeper than {_DEEPEST} levels, {_PLAIN}")

    def load_setitem(self: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def load_setitems(self: Any) -> None:
        self._fill(self.pop_mark())

    def _fill(self: Any, items: list[object]) -> None:
        """Put alternating keys and values into the last dictionary."""
        keys = items[::2]
        # Hashes of text are salted, so that keys cannot be made to collide.
        if not all(type(key) is str for key in keys):
            raise RecordingError(f"{self._name}: has keys that are not text, expected dictionaries by text")
        if type(self.stack[-1]) is not dict:
            raise TypeError("items of what is no dictionary")
        self.stack[-1].update(zip(keys, items[1::2], strict=True))

    dispatch: ClassVar[dict[int, Any]] = {
        **{each: _PYTHON.dispatch[each] for each in b"hjKMJ\x8aea}]\x8cXqrN\x88\x89G)\x85\x86\x87t\x95\x80.\x94c\x93"},
        ord("("): load_mark,
        ord("s"): load_setitem,
        ord("u"): load_setitems,
    }


def mismatch(failure: msgspec.ValidationError) -> str:
    """Return a mismatch for a message: "expected `int`, got `str` - at `$.nodes[0].id`"."""
    reason = one_line(str(failure))[: 2 * LONGEST_SHOWN]
    return f"{reason[:1].lower()}{reason[1:]}"
