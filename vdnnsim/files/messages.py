"""Parts of messages on one line: file names, found values, lists of names, the nearest name."""

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

LONGEST_SHOWN: Final = 80
"""Characters of a found value in a message."""
_LONGEST_LIST: Final = 500
"""Characters of a list of names."""
_NEAR: Final = 0.51
"""Share of common characters of near names; with less, bert would be overfeat."""
_NOT_PLAIN = re.compile(r"[^a-z0-9]")
_WORDS = re.compile(r"[a-z]+|[0-9]+")
_LEAST_BEGUN: Final = 3
"""Least characters of a prefix that stands for a name."""


def file_name(path: Path) -> str:
    """Return a path on one line."""
    name = str(path)
    return name if name.isprintable() else quote(name)


def quote(text: str) -> str:
    """Return quoted text on one line, cut off if it is long."""
    cut = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
    return repr(cut)


def describe(value: object) -> str:
    """Return a value on one line, in the words of YAML."""
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, str):
        return quote(value)
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    return one_line(repr(value))[:LONGEST_SHOWN]


def describe_exception(error: Exception) -> str:
    """Return class and message of a foreign exception on one line."""
    return f"{type(error).__name__}: {one_line(str(error))}".removesuffix(": ")


def one_line(text: str) -> str:
    """Return a foreign message on one line, with unprintable characters escaped."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return text with unprintable characters escaped, as line ends and bytes in file names."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def listed(names: Sequence[str]) -> str:
    """Join names for a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def options_text(values: Mapping[str, object]) -> str:
    """Return options of a command to copy, by their names in Python; those of None and False are not in it."""
    words = list[str]()
    for name, value in values.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def plain(name: str) -> str:
    """Return a name in small letters and digits: `RTX 4090` and `rtx_4090` are `rtx4090`."""
    return _NOT_PLAIN.sub("", name.lower())


def spelled_as(found: str, names: Iterable[str]) -> str | None:
    """Return the only name with the same words, in any order and with any separators."""
    words = sorted(_WORDS.findall(found.lower()))
    alike = [name for name in names if sorted(_WORDS.findall(name.lower())) == words] if words else []
    return found if found in alike else alike[0] if len(alike) == 1 else None


def _nearest(found: str, names: Sequence[str]) -> str | None:
    """Return the most likely name: with the same words, then with this prefix, then with most letters in common."""
    if alike := spelled_as(found, names):
        return alike
    asked = plain(found)
    begun = [name for name in names if len(asked) >= _LEAST_BEGUN and plain(name).startswith(asked)]
    if begun:
        return begun[0]
    by_plain = {plain(name): name for name in reversed(names)}
    near = difflib.get_close_matches(asked, by_plain, n=1, cutoff=_NEAR)
    return by_plain[near[0]] if near else None


def not_one_of(found: str, names: Iterable[str], what: str, all_of_them: str = "") -> str:
    """Return the message that `found` is not `what`, with the nearest of `names` and all, or where these are."""
    known = list(names)
    start, everything = f"{quote(found)} is not {what}", all_of_them or ", ".join(known)
    near = _nearest(found[:LONGEST_SHOWN], known)
    if len(everything) > _LONGEST_LIST:
        shown = everything[:_LONGEST_LIST].rpartition(", ")[0]
        everything = f"{shown} and {len(known) - shown.count(', ') - 1} more"
    if near:
        return f"{start}; did you mean {near!r}?{f' ({everything})' if len(known) > 1 else ''}"
    if all_of_them:
        return f"{start}; {all_of_them}"
    return f"{start}; expected {'one of ' if len(known) > 1 else ''}{everything or 'none'}"
