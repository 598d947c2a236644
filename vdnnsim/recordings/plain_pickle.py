"""Pickles of plain data, read by a reader of our own that knows nothing else: no code in a file can run.

Python's own unpickler imports and calls what a file names. This one knows the operations that build lists, dictionaries
by text, tuples, text, numbers, truth values and None, which is all that a CUDA memory snapshot has, and refuses the
first other one by name. So there is nothing to import, to call or to construct.

Source: the operations of protocols 2 to 5 as Python's `pickletools` documents them.
"""

import struct
from typing import Final

from vdnnsim.errors import RecordingError

_MOST_CONTAINERS: Final = 20_000_000
"""Lists and dictionaries of a file. A snapshot has one for each event and for each frame of its stack."""
_DEEPEST: Final = 64
_LAST_PROTOCOL: Final = 5
_EXPECTED: Final = "expected plain lists, dictionaries, text and numbers; nothing of it was executed"
_IMPORTS: Final = frozenset(b"ci\x93\x82\x83\x84")
_BININT: Final = struct.Struct("<i")
_UINT4: Final = struct.Struct("<I")
_BINFLOAT: Final = struct.Struct(">d")


def read_plain_pickle(data: bytes, name: str) -> object:
    """Return what a pickle holds.

    Raises:
        RecordingError: it is cut off, or holds anything but plain data.
    """
    try:
        return _Reader(data).read()
    except _RefusedError as refused:
        raise RecordingError(f"{name}: {refused}") from None
    except (IndexError, struct.error):
        raise RecordingError(f"{name}: ends in the middle or is damaged, expected a whole pickle") from None
    except (AttributeError, TypeError, KeyError, ValueError):
        raise RecordingError(f"{name}: is damaged, {_EXPECTED}") from None


class _RefusedError(Exception):
    """What a file holds that is not plain data; the message lacks the file."""


class _Reader:
    """The machine that pickles are programs of: a stack, marks on it, and a memory of values to refer to."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._containers = 0

    def read(self) -> object:  # noqa: C901, PLR0912, PLR0915  # one case for each operation, the most frequent first
        data = self._data
        stack: list[object] = []
        marks: list[int] = []
        memory: dict[int, object] = {}
        position = 0
        while True:
            operation = data[position]
            position += 1
            match operation:
                case 0x68:  # BINGET
                    stack.append(memory[data[position]])
                    position += 1
                case 0x94:  # MEMOIZE
                    memory[len(memory)] = stack[-1]
                case 0x6A:  # LONG_BINGET
                    stack.append(memory[_UINT4.unpack_from(data, position)[0]])
                    position += 4
                case 0x4B:  # BININT1
                    stack.append(data[position])
                    position += 1
                case 0x4D:  # BININT2
                    stack.append(data[position] | data[position + 1] << 8)
                    position += 2
                case 0x4A:  # BININT
                    stack.append(_BININT.unpack_from(data, position)[0])
                    position += 4
                case 0x8A:  # LONG1
                    end = position + 1 + data[position]
                    stack.append(int.from_bytes(self._taken(position + 1, end), "little", signed=True))
                    position = end
                case 0x28:  # MARK
                    marks.append(len(stack))
                    if len(marks) > _DEEPEST:
                        raise _RefusedError(f"is nested deeper than {_DEEPEST} levels, {_EXPECTED}")
                case 0x75:  # SETITEMS
                    mark = marks.pop()
                    _fill(stack[mark - 1], stack[mark:])
                    del stack[mark:]
                case 0x73:  # SETITEM
                    _fill(stack[-3], stack[-2:])
                    del stack[-2:]
                case 0x65:  # APPENDS
                    mark = marks.pop()
                    _list(stack[mark - 1]).extend(stack[mark:])
                    del stack[mark:]
                case 0x61:  # APPEND
                    _list(stack[-2]).append(stack[-1])
                    del stack[-1]
                case 0x7D:  # EMPTY_DICT
                    self._count()
                    stack.append({})
                case 0x5D:  # EMPTY_LIST
                    self._count()
                    stack.append([])
                case 0x8C:  # SHORT_BINUNICODE
                    end = position + 1 + data[position]
                    stack.append(self._taken(position + 1, end).decode("utf-8", "surrogatepass"))
                    position = end
                case 0x58:  # BINUNICODE
                    end = position + 4 + _UINT4.unpack_from(data, position)[0]
                    stack.append(self._taken(position + 4, end).decode("utf-8", "surrogatepass"))
                    position = end
                case 0x71:  # BINPUT
                    memory[data[position]] = stack[-1]
                    position += 1
                case 0x72:  # LONG_BINPUT
                    memory[_UINT4.unpack_from(data, position)[0]] = stack[-1]
                    position += 4
                case 0x4E:  # NONE
                    stack.append(None)
                case 0x88 | 0x89:  # NEWTRUE, NEWFALSE
                    stack.append(operation == 0x88)
                case 0x47:  # BINFLOAT
                    stack.append(_BINFLOAT.unpack_from(data, position)[0])
                    position += 8
                case 0x29:  # EMPTY_TUPLE
                    stack.append(())
                case 0x85 | 0x86 | 0x87:  # TUPLE1, TUPLE2, TUPLE3
                    length = operation - 0x84
                    if len(stack) < length:
                        raise IndexError
                    stack[-length:] = [tuple(stack[-length:])]
                case 0x74:  # TUPLE
                    mark = marks.pop()
                    stack[mark:] = [tuple(stack[mark:])]
                case 0x95:  # FRAME
                    position += 8
                case 0x80:  # PROTO
                    if data[position] > _LAST_PROTOCOL:
                        raise _RefusedError(f"is a pickle of protocol {data[position]}, expected 2 to {_LAST_PROTOCOL}")
                    position += 1
                case 0x2E:  # STOP
                    return stack.pop()
                case _:
                    raise _RefusedError(self._refusal(operation, position, stack))

    def _taken(self, start: int, end: int) -> bytes:
        if end > len(self._data):
            raise IndexError
        return self._data[start:end]

    def _count(self) -> None:
        self._containers += 1
        if self._containers > _MOST_CONTAINERS:
            raise _RefusedError(f"holds more than {_MOST_CONTAINERS} lists and dictionaries, {_EXPECTED}")

    def _refusal(self, operation: int, position: int, stack: list[object]) -> str:
        """Return what an operation would have done."""
        if operation not in _IMPORTS:
            return f"holds what no snapshot has (operation {operation:#04x} of pickle), {_EXPECTED}"
        words = [each for each in stack[-2:] if isinstance(each, str)]
        if operation != 0x93:
            words = [each.decode("ascii", "replace") for each in self._data[position : position + 200].split(b"\n")[:2]]
        named = ".".join(words)
        shown = f" {named[:80]!r}" if named and operation not in b"\x82\x83\x84" else ""
        return f"wants to run code (imports{shown}), {_EXPECTED}"


def _list(value: object) -> list[object]:
    if type(value) is not list:
        raise TypeError
    return value


def _fill(value: object, pairs: list[object]) -> None:
    """Put keys and values, in turn, into a dictionary."""
    if type(value) is not dict or len(pairs) % 2:
        raise TypeError
    keys = pairs[::2]
    for key in keys:
        # Of text alone nobody can make keys whose hashes collide.
        if type(key) is not str:
            raise _RefusedError("has keys that are not text, expected dictionaries by text")
    value.update(zip(keys, pairs[1::2], strict=True))
