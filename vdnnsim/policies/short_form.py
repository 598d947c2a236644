"""Policies in one line, as results print them: `vdnn_all(m)`, `swap(p, interval=2, stagger=True)`."""

import re

_SHORT_FORM = re.compile(r"(\w+)\s*(?:\(([^()]*)\))?")
_OPENING, _CLOSING = "({[", ")}]"


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
