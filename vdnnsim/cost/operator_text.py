"""Operators as one line of text: `conv 64 3x3 stride 1x1 padding 1x1 bias`, `attention heads 12 key_value_heads 12`.

An operator is its name, then its fields in their order: a number or a size behind the name of its field, unless the
operator says that it stands bare; a number that is usually 1 only where it is another; the name of what is true; the
word of an enum. So the class of an operator is all that its text needs.
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
    """Return an operator with its parameters on one line."""
    return operator.name + "".join(each.text(operator) for each in _SPELLINGS[operator.name].parameters)


def read_operator(text: str) -> Operator | None:
    """Return the operator that `operator_text` writes so; None if there is none, as of an optimizer."""
    spelling = _SPELLINGS.get(text.partition(" ")[0])
    return spelling.read(text) if spelling else None


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A field of an operator; bare where its name is not written."""

    field: Field[Any]
    bare: bool

    @property
    def pattern(self) -> str:
        """What its text looks like, with a blank before it; one group, empty where nothing is written."""
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
        """Return what is written of it, with a blank before it unless that is nothing."""
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
        """Return the value that was written so."""
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
    """A name for an operator, the fields that it implies, and those that are written behind it."""

    name: str
    operator: type[Operator]
    implied: Mapping[str, bool]
    parameters: tuple[_Parameter, ...]

    @classmethod
    def all_of(cls, operator: type[Operator]) -> "Iterator[_Spelling]":
        """Yield those of an operator, most of which have one."""
        for name, implied in (operator.spellings or {operator.name: {}}).items():
            written = (each for each in fields(operator) if each.name not in implied)  # type: ignore[arg-type]
            yield cls(name, operator, implied, tuple(_Parameter(each, each.name in operator.bare) for each in written))

    def read(self, text: str) -> Operator | None:
        """Return the operator of a text that begins with the name; None where what follows is not its parameters."""
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
    """Yield the operators that the modules of `vdnnsim.dnn` define and that have a name of their own."""
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
