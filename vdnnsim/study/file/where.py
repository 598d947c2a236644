"""Conditions on the points of a study, which leave out combinations.

    where: policy == 'base(p)' or gpu.memory >= 24 GiB and not workload.network == vgg416

A comparison has the key of an axis on its left and a value on its right, as it would stand in the axis; text with more
than letters, digits and any of _.-+/ stands in quotes. `not` binds closer than `and`, and this closer than `or`.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from vdnnsim.entry import Entry, YamlValue
from vdnnsim.messages import not_one_of, quote
from vdnnsim.study.file.keys import Key
from vdnnsim.study.points.resolve import Value, shown
from vdnnsim.study.study import Condition
from vdnnsim.yaml_file import plain_value

_TOKEN = re.compile(r"\s*(?:(==|!=|<=|>=|<|>|\(|\))|'([^']*)'|\"([^\"]*)\"|([A-Za-z0-9_.+/-]+))")
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY: Final = ("==", "!=")
_WORDS: Final = ("and", "or", "not")
_DEEPEST: Final = 50


def read_condition(entry: Entry, keys: Mapping[str, Key]) -> Condition:
    """Return the condition on the keys of axes that stands in an entry.

    Raises:
        StudyError: it is no condition, or compares what is no axis.
    """
    return _Reader(entry, _tokens(entry), keys).read()


def comparisons(entry: Entry) -> int:
    """Return how many comparisons a condition makes at a point."""
    return sum(kind == "sign" and text in _COMPARISONS for kind, text in _tokens(entry))


def _tokens(entry: Entry) -> list[tuple[str, str]]:
    """Return the tokens as (kind, text); kinds are `sign`, `quoted`, `word`."""
    text, position, tokens = entry.text(), 0, list[tuple[str, str]]()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise entry.wrong(f"found {quote(text[position:].strip())}, expected a key, a comparison, or, and, not")
        sign, single, double, word = match.groups()
        if sign is not None:
            tokens.append(("sign", sign))
        elif word is not None:
            tokens.append(("word", word))
        else:
            tokens.append(("quoted", single if single is not None else double))
        position = match.end()
    return tokens


class _Reader:
    """Descends through the tokens: or, and, not, parentheses, comparisons."""

    def __init__(self, entry: Entry, tokens: Sequence[tuple[str, str]], keys: Mapping[str, Key]) -> None:
        self._entry = entry
        self._tokens = tokens
        self._keys = keys
        self._next = 0
        self._depth = 0

    def read(self) -> Condition:
        """Return the condition that all tokens make up."""
        condition = self._any()
        if self._next < len(self._tokens):
            raise self._entry.wrong(f"found {self._found()}, expected 'and', 'or' or the end")
        return condition

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._take("word", "or"):
            parts.append(self._all())
        return lambda points: reduce(operator.or_, (part(points) for part in parts))

    def _all(self) -> Condition:
        parts = [self._negation()]
        while self._take("word", "and"):
            parts.append(self._negation())
        return lambda points: reduce(operator.and_, (part(points) for part in parts))

    def _negation(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._entry.wrong(f"nested deeper than {_DEEPEST} levels")
        try:
            if self._take("word", "not"):
                negated = self._negation()
                return lambda points: ~negated(points)
            if self._take("sign", "("):
                inner = self._any()
                if not self._take("sign", ")"):
                    raise self._entry.wrong(f"found {self._found()}, expected ')'")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        kind, name = self._peek()
        if kind != "word" or name in _WORDS:
            raise self._entry.wrong(f"found {self._found()}, expected the key of an axis")
        if name not in self._keys:
            raise self._entry.wrong(not_one_of(name, self._keys, "an axis of this study"))
        self._next += 1
        key = self._keys[name]
        kind, sign = self._peek()
        if kind != "sign" or sign not in _COMPARISONS:
            raise self._entry.wrong(f"found {self._found()} after {name}, expected one of {', '.join(_COMPARISONS)}")
        if not key.is_number and sign not in _EQUALITY:
            raise self._entry.wrong(f"found {sign!r} after {name}, which has no order; expected == or !=")
        self._next += 1
        compare, right = _COMPARISONS[sign], shown(self._value(key))
        return lambda points: compare(points[name], right)

    def _value(self, key: Key) -> Value:
        kind, text = self._peek()
        if kind == "quoted":
            self._next += 1
            return self._read(key, text)
        words = []
        while self._peek()[0] == "word" and self._peek()[1] not in _WORDS:
            words.append(self._peek()[1])
            self._next += 1
        if not words:
            raise self._entry.wrong(f"found {self._found()}, expected a value of {key.name}")
        return self._read(key, plain_value(" ".join(words)))

    def _read(self, key: Key, value: YamlValue) -> Value:
        entry = self._entry
        return key.read(Entry(entry.file, f"{entry.path}: {key.name}", value, entry.error))

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._next] if self._next < len(self._tokens) else ("end", "")

    def _take(self, kind: str, text: str) -> bool:
        if self._peek() != (kind, text):
            return False
        self._next += 1
        return True

    def _found(self) -> str:
        kind, text = self._peek()
        return "the end" if kind == "end" else quote(text)
