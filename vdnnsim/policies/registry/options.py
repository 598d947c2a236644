"""Options of policies: what each of them may be, from YAML or in one line, and how they are told.

In one line a policy stands as results print it: `vdnn_all(m)`, `swap(p, interval=2, stagger=True)`.
"""

import re
from enum import Enum

import msgspec
from msgspec.structs import FieldInfo

from vdnnsim.errors import PolicyError
from vdnnsim.messages import describe, not_one_of, one_line
from vdnnsim.policies.port import Policy

_PLAIN_TYPES: dict[object, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
}
"""Of the types of options that are plain values: the types of right values, and what messages call them."""

_SHORT_FORM = re.compile(r"(\w+)\s*(?:\(([^()]*)\))?")
_OPENING, _CLOSING = "({[", ")}]"
_TRUTH = {"true": True, "false": False}


def describe_options(policy: type[Policy]) -> str:
    """Return the options of a policy with their values, the default first: `algorithms: p | m | tensorflow`."""
    return ", ".join(f"{field.name}: {_values(field)}" for field in msgspec.structs.fields(policy))


def parse_short_form(text: str) -> tuple[str, dict[str, str]] | None:
    """Return the name of a policy and the texts of its options; None of what has another form.

    What stands first in the brackets, without a name, are the algorithms.
    """
    match = _SHORT_FORM.fullmatch(text.strip())
    if match is None:
        return None
    options: dict[str, str] = {}
    for number, option in enumerate([] if match[2] is None else match[2].split(",")):
        key, equals, value = (part.strip() for part in option.partition("="))
        if not equals:
            key, value = "algorithms", key
        if key in options or (not equals and number):
            return None
        options[key] = value
    return match[1], options


def split_policies(text: str) -> list[str]:
    """Return what commas part that stand outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def option_value(text: str, kind: object) -> object:
    """Return the value that a text states of an option of this type; where it states none, the text."""
    if kind is str or _is_enum(kind):
        return text
    if kind is bool:
        return _TRUTH.get(text.lower(), text)
    for number in (int,) if kind is int else (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def check_option(where: str, value: object, field: FieldInfo) -> None:
    """Refuse what an option cannot be with a message that says what would be right, which msgspec's does not.

    Raises:
        PolicyError: `value` is none that the option may have; the message begins with `where`.
    """
    if _is_enum(field.type):
        names = tuple(str(choice.value) for choice in field.type)
        if not isinstance(value, str):
            raise PolicyError(f"{where}: found {describe(value)}, expected one of {', '.join(names)}")
        if value not in names:
            raise PolicyError(f"{where}: {not_one_of(value, names, 'one of its choices')}")
    elif field.type in _PLAIN_TYPES:
        right, what = _PLAIN_TYPES[field.type]
        if not isinstance(value, right) or (isinstance(value, bool) and field.type is not bool):
            example = "" if field.default is msgspec.NODEFAULT else f", as {describe(field.default)}"
            raise PolicyError(f"{where}: found {describe(value)}, expected {what}{example}")


def _values(field: FieldInfo) -> str:
    if not _is_enum(field.type):
        return "..." if field.default is msgspec.NODEFAULT else _shown(field.default)
    values = [str(choice.value) for choice in field.type]
    if isinstance(field.default, Enum):
        values.sort(key=lambda value: value != str(field.default.value))
    return " | ".join(values)


def _is_enum(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _shown(default: object) -> str:
    return one_line(default) if isinstance(default, str) else describe(default)
