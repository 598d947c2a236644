"""Conditions on the points of a study, which leave out combinations.

    where: policy == 'base(p)' or gpu.memory >= 24 GiB and not workload.network == vgg416

A comparison has the key of an axis on its left and a value on its right, as it would stand in the axis; text with more
than letters, digits and any of _.-+/ stands in quotes. What is between comparisons is Python's.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from vdnnsim.files.messages import not_one_of, quote
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import plain_value
from vdnnsim.study.file.keys import Key
from vdnnsim.study.points.resolve import shown
from vdnnsim.study.study import Condition

_WORD: Final = r"(?<![\w.+/-])(?!(?:and|or|not)(?![\w.+/-]))[\w.+/-]+"
_COMPARISON: Final = re.compile(
    rf"({_WORD})\s*(==|!=|<=|>=|<|>)\s*(?:'([^']*)'|\"([^\"]*)\"|({_WORD}(?:\s+{_WORD})*))", re.ASCII
)
_BETWEEN: Final = re.compile(r"(?:\s|[()]|\b(?:and|or|not)\b)*")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXPECTED: Final = "comparisons as `gpu.memory >= 24 GiB` with and, or, not and parentheses"


def read_condition(entry: Entry, keys: Mapping[str, Key]) -> Condition:
    """Return the condition on the keys of axes that stands in an entry.

    Raises:
        StudyError: it is no condition, or compares what is no axis.
    """
    text, end, python = entry.text(), 0, ""
    compared: list[Condition] = []
    for match in _COMPARISON.finditer(text):
        python += f"{_between(entry, text[end : match.start()])} _{len(compared)} "
        compared.append(_comparison(entry, match, keys))
        end = match.end()
    python += _between(entry, text[end:])
    try:
        return _condition(ast.parse(python.strip(), mode="eval").body, compared)
    except (SyntaxError, TypeError):
        raise entry.expected(_EXPECTED) from None


def comparisons(entry: Entry) -> int:
    """Return how many comparisons a condition makes at a point."""
    return len(_COMPARISON.findall(entry.text()))


def _between(entry: Entry, text: str) -> str:
    """Return what stands between comparisons, or refuse it."""
    match = _BETWEEN.match(text)
    assert match is not None, "it may be empty"
    if odd := text[match.end() :].strip():
        raise entry.wrong(f"found {quote(odd)}, expected {_EXPECTED}")
    return text


def _comparison(entry: Entry, match: re.Match[str], keys: Mapping[str, Key]) -> Condition:
    name, sign, single, double, plain = match.groups()
    if name not in keys:
        raise entry.wrong(not_one_of(name, keys, "an axis of this study"))
    key = keys[name]
    if not key.is_number and sign not in {"==", "!="}:
        raise entry.wrong(f"found {sign!r} after {name}, which has no order; expected == or !=")
    value = plain_value(plain) if plain else single or double or ""
    right = shown(key.read(Entry(entry.file, f"{entry.path}: {name}", value, entry.error)))
    compare = _COMPARE[sign]
    return lambda points: compare(points[name], right)


def _condition(node: ast.expr, compared: Sequence[Condition]) -> Condition:
    """Return the condition of an expression, in which the comparisons are the names `_0`, `_1` and so on.

    Raises:
        TypeError: it is another kind of expression, as `_0(_1)` is a call.
    """
    match node:
        case ast.Name(name):
            return compared[int(name[1:])]
        case ast.UnaryOp(ast.Not(), operand):
            negated = _condition(operand, compared)
            return lambda points: ~negated(points)
        case ast.BoolOp(join, values):
            parts = [_condition(each, compared) for each in values]
            joined = operator.and_ if isinstance(join, ast.And) else operator.or_
            return lambda points: reduce(joined, (part(points) for part in parts))
        case _:
            raise TypeError
