"""YAML files read strictly: a value, or an error of one line with its place.

A file consists of mappings, lists, text, numbers, true, false and null. Anchors and aliases (which can grow without
bound), tags, merge keys, dates and repeated keys are refused, as are large and deep files. Plain words as `no`, `on`
and `12:30` are text; only `true` and `false` are truth values. PyYAML parses events, and values are built here, so that
no constructor of PyYAML runs.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vdnnsim.errors import InputError
from vdnnsim.files.messages import LONGEST_SHOWN, file_name, one_line, quote
from vdnnsim.files.regular import UnreadableError, read_regular_file
from vdnnsim.files.value import Entry, YamlValue

if TYPE_CHECKING:
    import yaml

LARGEST_FILE_BYTES: Final = 256 * 2**10
DEEPEST_NESTING: Final = 20
MOST_VALUES: Final = 50_000
"""PyYAML reads some 25,000 a second."""
_OTHER_SUFFIX: Final = {".yml": ".yaml", ".yaml": ".yml"}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.IGNORECASE)
_WORDS: dict[str, YamlValue] = {"": None, "~": None, "null": None, "true": True, "false": False}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class FileKind(Enum):
    """A kind of file by its name in messages."""

    SCENARIO = "a scenario"
    STUDY = "a study"
    PROFILE = "a hardware profile"


_USES = {
    FileKind.SCENARIO: "vdnnsim run replays it",
    FileKind.STUDY: "vdnnsim sweep computes it",
    FileKind.PROFILE: "a scenario names it as its hardware",
}


def kind_of(root: Entry) -> FileKind | None:
    """Return the kind of a file by a key that no other kind has; None without such a key."""
    keys = root.value if isinstance(root.value, dict) else {}
    if "axes" in keys:
        return FileKind.STUDY
    if "workload" in keys:
        return FileKind.SCENARIO
    if "scenario" in keys:
        return FileKind.STUDY
    return FileKind.PROFILE if keys.keys() & {"gpu", "extends"} else None


class _RefusedError(Exception):
    """Text that is not YAML, or YAML that is refused; the message lacks the file."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file with its name in messages and the SHA-256 of its bytes.

    Attributes:
        lines: of each key by its key path, as `gpu.memory`.
    """

    name: str
    sha256: str
    root: Entry
    lines: Mapping[str, int]


def read_yaml(path: Path, error: type[InputError], kind: FileKind | None = None) -> YamlFile:
    """Read a YAML file of at most 256 KiB and 50,000 values, which takes PyYAML some two seconds at worst.

    Raises:
        error: the file cannot be read, is refused, or is of another kind than `kind`.
    """
    name = file_name(path)
    try:
        data = read_regular_file(path, LARGEST_FILE_BYTES, "expected a short YAML file")
        lines: dict[str, int] = {}
        value = _parse(_decode(data), lines)
    except (UnreadableError, _RefusedError) as refused:
        other = path.with_suffix(_OTHER_SUFFIX.get(path.suffix, path.suffix))
        is_beside = isinstance(refused.__cause__, FileNotFoundError) and other.is_file()
        raise error(f"{name}: {refused}{f'; did you mean {file_name(other)}?' if is_beside else ''}") from refused
    root = Entry(name, "", value, error)
    if kind is FileKind.SCENARIO and isinstance(value, dict) and "model_type" in value:
        raise root.wrong(f"this is the configuration of a model, expected {kind.value}, or --model {name}")
    found = kind_of(root)
    if kind is not None and found is not None and found is not kind:
        raise root.wrong(f"this is {found.value}, expected {kind.value}; {_USES[found]}")
    return YamlFile(name, hashlib.sha256(data).hexdigest(), root, lines)


def read_yaml_text(text: str, name: str, error: type[InputError]) -> Entry:
    """Read YAML text from elsewhere than a file; messages call it `name`.

    Raises:
        error: it is refused.
    """
    try:
        return Entry(name, "", _parse(_decode(text.encode()), {}), error)
    except _RefusedError as refused:
        raise error(f"{name}: {refused}") from None


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise _RefusedError(f"byte {failure.start} is not UTF-8, expected a YAML file in UTF-8") from None
    if found := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise _RefusedError(f"line {line}: found the character {found[0]!r}, expected text")
    return text


def _parse(text: str, lines: dict[str, int]) -> YamlValue:
    import yaml  # not at the top: half of the time in which `vdnnsim --help` must answer

    quick = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        return _document(yaml.parse(text, Loader=quick), lines)
    except (yaml.YAMLError, ValueError, OverflowError):
        lines.clear()  # parsed again for PyYAML's message: LibYAML, five times as fast, has other ones
    try:
        return _document(yaml.parse(text, Loader=yaml.SafeLoader), lines)
    except yaml.MarkedYAMLError as failure:
        problem = one_line(f"{failure.context or ''} {failure.problem or ''}")[: 2 * LONGEST_SHOWN]
        mark = failure.problem_mark or failure.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _RefusedError(f"{place}is not YAML: {problem}") from None
    except (ValueError, OverflowError):
        # Of chr() and int() in PyYAML: "\UFFFFFFFF", %YAML with 5000 digits.
        raise _RefusedError("is not YAML: found a character code or a version that is out of range") from None


def _document(parsed: "Iterator[yaml.Event]", lines: dict[str, int]) -> YamlValue:
    """Build the value of the only document of `parsed`."""
    import yaml

    events = _counted(parsed)
    next(events)
    if isinstance(next(events), yaml.StreamEndEvent):
        raise _RefusedError("the file is empty")
    value = _value(events, next(events), (), lines)
    next(events)
    if not isinstance(extra := next(events), yaml.StreamEndEvent):
        raise _refused(extra, "found a second document (after ---), expected one")
    return value


def _counted(events: "Iterator[yaml.Event]") -> "Iterator[yaml.Event]":
    for count, event in enumerate(events):
        if count > MOST_VALUES:
            raise _refused(event, f"found more than {MOST_VALUES} values, expected a short YAML file")
        yield event


def _value(
    events: "Iterator[yaml.Event]", event: "yaml.Event", path: tuple[str, ...], lines: dict[str, int]
) -> YamlValue:
    """Build the value that begins with `event`; recursion ends at DEEPEST_NESTING."""
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
        return plain_value(text) if event.implicit[0] else text
    if len(path) == DEEPEST_NESTING:
        raise _refused(event, f"nested deeper than {DEEPEST_NESTING} levels")
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[YamlValue] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(_value(events, event, (*path, str(len(items))), lines))
        return items
    members: dict[str, YamlValue] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            raise _refused(event, "a key must be plain text")
        if event.value in members:
            raise _refused(event, f"key {quote(event.value)} is given twice")
        below = (*path, event.value)
        if event.start_mark is not None:
            lines[".".join(below)] = event.start_mark.line + 1
        members[event.value] = _value(events, next(events), below, lines)
    return members


def plain_value(text: str) -> YamlValue:
    """Return the value of unquoted text: a number, true, false, nothing, or itself."""
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
