"""Operators as one line of text: `conv 64 3x3 stride 1x1 padding 1x1 bias`, `attention heads 12 key_value_heads 12`.

The text is the name and then the fields in order: numbers and sizes after the name of the field, unless it is in
`Operator.bare`; numbers with the default 1 only if they differ; names of true fields; values of enums.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from enum import Enum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.shapes import Size2

_NUMBER: Final = r"[1-9][0-9]{0,8}"
_NUMBER_OR_ZERO: Final = rf"{_NUMBER}|0"


def operator_text(operator: Operator) -> str:
    return operator.name + "".join(each.text(operator) for each in _SPELLINGS[operator.name].parameters)


def read_operator(text: str) -> Operator | None:
    """Return the operator of a text by `operator_text`; None for others, as of an optimizer."""
    spelling = _SPELLINGS.get(text.partition(" ")[0])
    return spelling.read(text) if spelling else None


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A field of an operator; bare where its name is not written."""

    field: Field[Any]
    bare: bool

    @property
    def pattern(self) -> str:
        """Regular expression of its text, with a leading blank and one group."""
        kind, default = self.field.type, self.field.default
        name = "" if self.bare else f"{self.field.name} "
        if kind is bool:
            return f"( {self.field.name})" + "?" * self.field.init
        if kind == Size2:
            number = _NUMBER_OR_ZERO if default == (0, 0) else _NUMBER
            return f" {name}((?:{number})x(?:{number}))"
        if issubclass(kind, Enum):  # type: ignore[arg-type]
            return f" ({'|'.join(str(each.value) for each in kind)})"  # type: ignore[union-attr]
        if default == 1:
            return f"(?: {name}({_NUMBER}))?"
        return f" {name}({_NUMBER_OR_ZERO if default == 0 else _NUMBER})"

    def text(self, operator: Operator) -> str:
        """Return its text with a leading blank; empty if nothing is written."""
        value = getattr(operator, self.field.name)
        if value is False or (self.field.type is int and value == self.field.default == 1):
            return ""
        match value:
            case True:
                return f" {self.field.name}"
            case Enum():
                return f" {value.value}"
            case (height, width):
                value = f"{height}x{width}"
            case _:
                pass
        return f" {value}" if self.bare else f" {self.field.name} {value}"

    def value(self, word: str | None) -> Any:  # noqa: ANN401 - of the type of the field
        kind = self.field.type
        if kind is bool:
            return word is not None
        if word is None:
            return self.field.default
        if kind == Size2:
            height, width = map(int, word.split("x"))
            return height, width
        return kind(word)  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A name of an operator, the fields that it implies, and those that are written after it."""

    name: str
    operator: type[Operator]
    implied: Mapping[str, bool]
    parameters: tuple[_Parameter, ...]

    @classmethod
    def all_of(cls, operator: type[Operator]) -> "Iterator[_Spelling]":
        for name, implied in (operator.spellings or {operator.name: {}}).items():
            written = (each for each in fields(operator) if each.name not in implied)  # type: ignore[arg-type]
            yield cls(name, operator, implied, tuple(_Parameter(each, each.name in operator.bare) for each in written))

    def read(self, text: str) -> Operator | None:
        """Return the operator of a text that begins with the name; None if the parameters do not match."""
        found = re.fullmatch(self.name + "".join(each.pattern for each in self.parameters), text)
        if not found:
            return None
        words = zip(self.parameters, found.groups(), strict=True)
        values = {each.field.name: each.value(word) for each, word in words if each.field.init}
        try:
            return self.operator(**values, **self.implied)
        except ValueError:
            return None


def _operators() -> Iterator[type[Operator]]:
    """Yield the named operators that the modules of `vdnnsim.dnn` define."""
    package = Operator.__module__.rpartition(".")[0]
    for found in iter_modules(import_module(package).__path__, f"{package}."):
        for each in vars(import_module(found.name)).values():
            is_operator = isinstance(each, type) and issubclass(each, Operator) and each.__module__ == found.name
            if is_operator and (hasattr(each, "name") or each.spellings):
                yield each


_SPELLINGS: Final[Mapping[str, _Spelling]] = {
    spelling.name: spelling for operator in _operators() for spelling in _Spelling.all_of(operator)
}

OPERATOR_NAMES: Final = tuple(_SPELLINGS)
"""The operators without their parameters."""
