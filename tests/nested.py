"""Copies that differ in a part of a part."""

from dataclasses import replace
from typing import Any, TypeVar

Whole = TypeVar("Whole")


def changed(whole: Whole, part: str, **fields: Any) -> Whole:  # noqa: ANN401
    """Return a copy with other fields in a part: `changed(scenario, "server.gpu", memory_bytes=100)`."""
    first, _, rest = part.partition(".")
    inner = getattr(whole, first)
    other = changed(inner, rest, **fields) if rest else replace(inner, **fields)
    return replace(whole, **{first: other})  # type: ignore[type-var]  # each is a dataclass
