"""YAML files read strictly: a value in, or one line that says what is wrong and where.

A file is a tree of mappings, lists, text, numbers, true, false and null, and nothing else: anchors and aliases (which
can grow without bound), tags, merge keys, dates and repeated keys are refused, as is whatever is too large or too deep.
Plain words stay text: `no`, `on` and `12:30` mean what they say, only `true` and `false` are truth values. PyYAML
splits the text into events, and this module builds the values, so that no constructor of PyYAML ever runs.

`Entry` is one value and its place. Its methods state what a value must be and answer with an error that names file,
key path, what was found and what would be right.
"""

import difflib
import hashlib
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from vdnnsim.errors import InputError

if TYPE_CHECKING:
    import yaml

YamlValue: TypeAlias = "bool | int | float | str | list[YamlValue] | dict[str, YamlValue] | None"
Choice = TypeVar("Choice", bound=Enum)

LARGEST_FILE_BYTES: Final = 256 * 2**10
DEEPEST_NESTING: Final = 20
LONGEST_TEXT: Final = 1000
LONGEST_SHOWN: Final = 80
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE)
_WORDS: dict[str, YamlValue] = {"": None, "~": None, "null": None, "true": True, "false": False}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.()-]{1,40}")


class _RefusedError(Exception):
    """Text that is not YAML, or YAML that this module does not accept; the message lacks the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a YAML file.

    Attributes:
        file: name of the file as messages show it.
        path: key path as `policies[3].policy`; empty for the whole file.
        error: the exception that answers a wrong value.
    """

    file: str
    path: str
    value: YamlValue
    error: type[InputError]

    def wrong(self, message: str) -> InputError:
        """Return the error that says `message` of this entry."""
        return self.error(": ".join(part for part in (self.file, self.path, message) if part))

    def expected(self, what: str) -> InputError:
        """Return the error that says what was found here and that `what` would be right."""
        return self.wrong(f"found {describe(self.value)}, expected {what}")

    def members(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, "Entry"]:
        """Return the entries of a mapping that has all of the keys `required` and no others than `optional`."""
        allowed = (*required, *optional)
        if not isinstance(self.value, dict):
            raise self.expected(f"a mapping with the keys {', '.join(allowed)}")
        for key in self.value:
            if key not in allowed:
                raise self.wrong(not_one_of(key, allowed, "a key"))
        for key in required:
            if key not in self.value:
                raise self.wrong(f"{key!r} is missing; required are {', '.join(required)}")
        return self.named_members("keys")

    def check_schema_version(self, supported: int) -> None:
        """Check the version of a file; before its keys, for another version may have other keys."""
        if isinstance(self.value, dict) and "schema_version" in self.value:
            version = self.named_members("keys")["schema_version"]
            if type(version.value) is not int or version.value != supported:
                raise version.expected(f"{supported}, the version that this vdnnsim reads")

    def named_members(self, what: str) -> dict[str, "Entry"]:
        """Return the entries of a mapping whose keys are free names; messages call them `what`."""
        if not isinstance(self.value, dict):
            raise self.expected(f"a mapping of {what}")
        return {key: Entry(self.file, self._below(key), value, self.error) for key, value in self.value.items()}

    def items(self, what: str) -> tuple["Entry", ...]:
        """Return the entries of a list with at least one item; messages call it a list of `what`."""
        if not isinstance(self.value, list) or not self.value:
            raise self.expected(f"a list of {what}")
        places = (f"{self.path}[{index}]" for index in range(len(self.value)))
        return tuple(
            Entry(self.file, place, value, self.error) for place, value in zip(places, self.value, strict=True)
        )

    def text(self) -> str:
        """Return printable text that is not empty, without blanks around it."""
        if not isinstance(self.value, str):
            raise self.expected("text (put it into quotes if it looks like a number)")
        text = self.value.strip()
        if not text or not text.isprintable() or len(text) > LONGEST_TEXT:
            raise self.expected(f"one line of 1 to {LONGEST_TEXT} printable characters")
        return text

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not low <= self.value <= high:
            raise self.expected(f"an integer from {low} to {high}")
        return self.value

    def name(self, names: Sequence[str], what: str) -> str:
        """Return one of `names`; messages call it `what`, as "a network"."""
        if not isinstance(self.value, str):
            raise self.expected(f"{what}: {', '.join(names)}")
        if self.value not in names:
            raise self.wrong(not_one_of(self.value, names, what))
        return self.value

    def choice(self, choices: type[Choice], what: str) -> Choice:
        """Return the member of an enum whose value stands here; messages call it `what`."""
        return choices(self.name([str(choice.value) for choice in choices], what))

    def _below(self, key: str) -> str:
        shown = key if _PLAIN_KEY.fullmatch(key) else quote(key)
        return f"{self.path}.{shown}" if self.path else shown


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file that was read: its name as messages show it, the SHA-256 of its bytes, what it holds."""

    name: str
    sha256: str
    root: Entry


def read_yaml(path: Path, error: type[InputError]) -> YamlFile:
    """Read one YAML file of at most 256 KiB, which takes PyYAML some two seconds at worst.

    Raises:
        error: the file cannot be read, or is not YAML as this module accepts it.
    """
    name = file_name(path)
    try:
        data = _read_bytes(path)
        value = _parse(_decode(data))
    except _RefusedError as refused:
        raise error(f"{name}: {refused}") from None
    return YamlFile(name, hashlib.sha256(data).hexdigest(), Entry(name, "", value, error))


def file_name(path: Path) -> str:
    """Return a path as messages show it, on one line whatever characters it has."""
    name = str(path)
    return name if name.isprintable() else quote(name)


def quote(text: str) -> str:
    """Return text in quotes on one line, cut off where it is long."""
    cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return repr(cut)


def describe(value: object) -> str:
    """Return a value on one line as messages show it, in the words of YAML."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, str):
        return quote(value)
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    return one_line(repr(value))[:LONGEST_SHOWN]


def one_line(text: str) -> str:
    """Return a message of somebody else on one line, with escapes for what cannot be printed."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return text with escapes for what cannot be printed: the name of a file may hold line ends and bytes."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def not_one_of(found: str, names: Iterable[str], what: str) -> str:
    """Return the message that `found` is not `what`, with the nearest of `names`, if one is near, and all of them."""
    known = list(names)
    start, everything = f"{quote(found)} is not {what}", ", ".join(known)
    if near := difflib.get_close_matches(found[:LONGEST_SHOWN], known, n=1, cutoff=0.5):
        return f"{start}; did you mean {near[0]!r}?{f' ({everything})' if len(known) > 1 else ''}"
    return f"{start}; expected {'one of ' if len(known) > 1 else ''}{everything or 'none'}"


def _read_bytes(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _RefusedError("is a folder, expected a file" if stat.S_ISDIR(mode) else "is not a regular file")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as failure:
        raise _RefusedError(f"cannot be read: {(failure.strerror or 'unknown error').lower()}") from None
    except ValueError:
        raise _RefusedError("cannot be read: no file can have this name") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise _RefusedError(f"is larger than {LARGEST_FILE_BYTES // 2**10} KiB, expected a short YAML file")
    return data


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise _RefusedError(f"byte {failure.start} is not UTF-8, expected a YAML file in UTF-8") from None
    if found := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _RefusedError(f"line {line}: found the character {found[0]!r}, expected text")
    return text


def _parse(text: str) -> YamlValue:
    import yaml  # not at the top: half of the time in which `vdnnsim --help` must answer

    events = yaml.parse(text, Loader=yaml.SafeLoader)
    try:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            raise _RefusedError("the file is empty")
        value = _value(events, next(events), 0)
        next(events)
        if not isinstance(extra := next(events), yaml.StreamEndEvent):
            raise _refused(extra, "found a second document (after ---), expected one")
    except yaml.MarkedYAMLError as failure:
        problem = one_line(f"{failure.context or ''} {failure.problem or ''}")[: 2 * LONGEST_SHOWN]
        mark = failure.problem_mark or failure.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _RefusedError(f"{place}is not YAML: {problem}") from None
    except (ValueError, OverflowError):
        # PyYAML lets the errors of chr() and int() through: "\UFFFFFFFF", %YAML with 5000 digits.
        raise _RefusedError("is not YAML: found a character code or a version that is out of range") from None
    return value


def _value(events: "Iterator[yaml.Event]", event: "yaml.Event", depth: int) -> YamlValue:
    """Build the value that begins with `event`; calls itself at most DEEPEST_NESTING times."""
    import yaml

    if isinstance(event, yaml.AliasEvent):
        alias = quote(str(event.anchor))
        raise _refused(event, f"found alias {alias}, expected the value itself; aliases are not allowed")
    assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
    if event.anchor is not None:
        raise _refused(event, f"found anchor {quote(event.anchor)}, expected the value alone; anchors are not allowed")
    if event.tag is not None:
        raise _refused(event, f"found tag {quote(event.tag)}, expected the value alone; tags are not allowed")
    if isinstance(event, yaml.ScalarEvent):
        text = str(event.value)
        if found := _UNPRINTABLE.search(text):
            raise _refused(event, f"found the character {found[0]!r}, expected text")
        return _plain(text) if event.implicit[0] else text
    if depth == DEEPEST_NESTING:
        raise _refused(event, f"nested deeper than {DEEPEST_NESTING} levels")
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_value(events, event, depth + 1))
        return items
    members: dict[str, YamlValue] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            raise _refused(event, "a key must be plain text")
        if event.value in members:
            raise _refused(event, f"key {quote(event.value)} is given twice")
        members[event.value] = _value(events, next(events), depth + 1)
    return members


def _plain(text: str) -> YamlValue:
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= LONGEST_SHOWN and _INTEGER.fullmatch(text):
        return int(text)
    if len(text) <= LONGEST_SHOWN and _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _refused(event: "yaml.Event", message: str) -> _RefusedError:
    assert event.start_mark is not None, "PyYAML marks every event that it reads from text"
    return _RefusedError(f"line {event.start_mark.line + 1}: {message}")
