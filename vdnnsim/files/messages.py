"""How messages show what was found and name what would be right: always on one line, whatever was found."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

LONGEST_SHOWN: Final = 80
"""Characters of what was found that a message shows."""

_LONGEST_LIST: Final = 500
"""Characters of the names that would be right."""

_NEAR: Final = 0.51
"""Share of the characters of both names that near ones have in common: more than half, or bert would be overfeat."""


_NOT_PLAIN = re.compile(r"[^a-z0-9]")
_WORDS = re.compile(r"[a-z]+|[0-9]+")
_LEAST_BEGUN: Final = 3
"""Characters from which on the beginning of a name stands for it."""


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


def describe_exception(error: Exception) -> str:
    """Return an exception that is none of ours on one line: its class and what it says."""
    return f"{type(error).__name__}: {one_line(str(error))}".removesuffix(": ")


def one_line(text: str) -> str:
    """Return a foreign message on one line, with escapes for what cannot be printed."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return text with escapes for what cannot be printed: the name of a file may hold line ends and bytes."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def plain(name: str) -> str:
    """Return a name as it is compared, in small letters and digits: `RTX 4090` and `rtx_4090` are `rtx4090`."""
    return _NOT_PLAIN.sub("", name.lower())


def spelled_as(found: str, names: Iterable[str]) -> str | None:
    """Return the one of the names that is spelled alike, whatever stands between its words, and in which order."""
    words = sorted(_WORDS.findall(found.lower()))
    alike = [name for name in names if sorted(_WORDS.findall(name.lower())) == words] if words else []
    return found if found in alike else alike[0] if len(alike) == 1 else None


def _nearest(found: str, names: Sequence[str]) -> str | None:
    """Return the name that is most likely meant: spelled alike, then begun alike, then with most letters in common."""
    if alike := spelled_as(found, names):
        return alike
    asked = plain(found)
    begun = [name for name in names if len(asked) >= _LEAST_BEGUN and plain(name).startswith(asked)]
    if begun:
        return begun[0]
    by_plain = {plain(name): name for name in reversed(names)}
    near = difflib.get_close_matches(asked, by_plain, n=1, cutoff=_NEAR)
    return by_plain[near[0]] if near else None


def not_one_of(found: str, names: Iterable[str], what: str) -> str:
    """Return the message that `found` is not `what`, with the nearest of `names`, if one is near, and all of them."""
    known = list(names)
    start, everything = f"{quote(found)} is not {what}", ", ".join(known)
    near = _nearest(found[:LONGEST_SHOWN], known)
    if len(everything) > _LONGEST_LIST:
        shown = everything[:_LONGEST_LIST].rpartition(", ")[0]
        everything = f"{shown} and {len(known) - shown.count(', ') - 1} more"
    if near:
        return f"{start}; did you mean {near!r}?{f' ({everything})' if len(known) > 1 else ''}"
    return f"{start}; expected {'one of ' if len(known) > 1 else ''}{everything or 'none'}"
