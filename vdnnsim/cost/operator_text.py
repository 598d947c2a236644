"""Operators as one line of text: `conv 64 3x3 stride 1x1 padding 1x1 bias`, `attention heads 12 key_value_heads 12`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from vdnnsim.dnn.convolutional import (
    Activation,
    BatchNormalization,
    Cast,
    Concat,
    Convolution,
    ElementwiseAdd,
    FullyConnected,
    Pooling,
    SoftmaxLoss,
)
from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.regularization import Dropout, LocalResponseNormalization
from vdnnsim.dnn.sequences import (
    Attention,
    ElementwiseProduct,
    Embedding,
    LayerNormalization,
    Linear,
    Lstm,
    SmoothActivation,
)
from vdnnsim.dnn.shapes import Size2

_PARAMETRIC: Final[tuple[type[Operator], ...]] = (
    Dropout,
    LocalResponseNormalization,
    Embedding,
    LayerNormalization,
    SmoothActivation,
    Linear,
    Attention,
    Lstm,
    Cast,
)
"""Operators whose text is their name, then each parameter by its own."""

_PLAIN: Final[Mapping[str, Operator]] = {
    each.name: each
    for each in (Activation(), BatchNormalization(), ElementwiseAdd(), Concat(), SoftmaxLoss(), ElementwiseProduct())
}
_NAMED: Final[Mapping[str, type[Operator]]] = {each.name: each for each in _PARAMETRIC}

OPERATOR_NAMES: Final = ("conv", "fc", "max_pool", "average_pool", *_PLAIN, *_NAMED)
"""The operators without their parameters."""

_NUMBER = r"[1-9][0-9]{0,8}"
_SIZE = rf"({_NUMBER})x({_NUMBER})"
_WINDOW = rf"{_SIZE} stride {_SIZE} padding ([0-9]{{1,9}})x([0-9]{{1,9}})"
_CONVOLUTION = re.compile(rf"conv ({_NUMBER}) {_WINDOW}( bias)?(?: groups ({_NUMBER}))?(?: steps ({_NUMBER}))?")
_POOLING = re.compile(rf"(max|average)_pool {_WINDOW}(?: steps ({_NUMBER}))?")
_FULLY_CONNECTED = re.compile(rf"fc ({_NUMBER}) bias")


def operator_text(operator: Operator) -> str:
    """Return an operator with its parameters on one line."""
    match operator:
        case Convolution(out_channels=channels, kernel=kernel, stride=stride, padding=padding, bias=bias):
            window = _window(kernel, stride, padding)
            more = _unless_one("groups", operator.groups) + _unless_one("steps", operator.steps)
            return f"conv {channels} {window}{' bias' if bias else ''}{more}"
        case Pooling(kernel=kernel, stride=stride, padding=padding, average=average, steps=steps):
            kind = "average" if average else "max"
            return f"{kind}_pool {_window(kernel, stride, padding)}{_unless_one('steps', steps)}"
        case FullyConnected(out_features=features):
            return f"fc {features} bias"
        case _:
            pass
    for kind, named in _NAMED.items():
        if isinstance(operator, named):
            return " ".join((kind, *(text for each in _parameters(named) if (text := each.text(operator)))))
    return next(text for text, plain in _PLAIN.items() if plain == operator)


def read_operator(text: str) -> Operator | None:
    """Return the operator that `operator_text` writes so; None if there is none, as of an optimizer."""
    if found := _CONVOLUTION.fullmatch(text):
        channels, r, s, down, across, top, left = map(int, found.groups()[:7])
        groups, steps = int(found[9] or 1), int(found[10] or 1)
        if steps > 1 and (r, s) != (1, 1):
            return None
        return Convolution(channels, (r, s), (down, across), (top, left), found[8] is not None, groups, steps)
    if found := _POOLING.fullmatch(text):
        r, s, down, across, top, left = map(int, found.groups()[1:7])
        return Pooling((r, s), (down, across), (top, left), found[1] == "average", int(found[8] or 1))
    if found := _FULLY_CONNECTED.fullmatch(text):
        return FullyConnected(int(found[1]))
    kind = text.partition(" ")[0]
    if kind in _NAMED:
        parameters = _parameters(_NAMED[kind])
        found = re.fullmatch(kind + "".join(each.pattern for each in parameters), text)
        if not found:
            return None
        return _NAMED[kind](*(each.value(word) for each, word in zip(parameters, found.groups(), strict=True)))
    return _PLAIN.get(text)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A field of an operator: its name and its type, one of int, bool and an enum; an int may be 0 if that is usual."""

    name: str
    type: type
    usually_zero: bool

    @property
    def pattern(self) -> str:
        """What its text looks like, with a blank before it; the group is empty where it is False."""
        if self.type is bool:
            return f"( {self.name})?"
        if issubclass(self.type, Enum):
            return f" ({'|'.join(str(each.value) for each in self.type)})"
        return f" {self.name} ({_NUMBER}{'|0' if self.usually_zero else ''})"

    def text(self, operator: Operator) -> str:
        """Return what is written of it, nothing where it is False."""
        value = getattr(operator, self.name)
        if self.type is bool:
            return self.name if value else ""
        return str(value.value) if issubclass(self.type, Enum) else f"{self.name} {value}"

    def value(self, word: str | None) -> Any:  # noqa: ANN401 - of the type of the field
        """Return the value that was written so."""
        if self.type is bool:
            return word is not None
        return self.type(word)


def _parameters(operator: type[Operator]) -> list[_Parameter]:
    return [_Parameter(each.name, each.type, each.default == 0) for each in fields(operator)]  # type: ignore[arg-type]


def _unless_one(name: str, number: int) -> str:
    return "" if number == 1 else f" {name} {number}"


def _window(kernel: Size2, stride: Size2, padding: Size2) -> str:
    sizes = (f"{height}x{width}" for height, width in (kernel, stride, padding))
    return "{} stride {} padding {}".format(*sizes)
