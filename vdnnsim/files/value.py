"""One value of a file with its place, and methods that check it; errors name file, key path and what was expected."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from vdnnsim.errors import InputError
from vdnnsim.files.messages import describe, not_one_of, quote

YamlValue: TypeAlias = "bool | int | float | str | list[YamlValue] | dict[str, YamlValue] | None"
Choice = TypeVar("Choice", bound=Enum)

LONGEST_TEXT: Final = 1000
"""Characters of a line of text in a file."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.()-]{1,40}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of a YAML file; its path is as `policies[3].policy`, empty for the whole file."""

    file: str
    path: str
    value: YamlValue
    error: type[InputError]

    def wrong(self, message: str) -> InputError:
        """Return the error with `message` for this entry."""
        return self.error(": ".join(part for part in (self.file, self.path, message) if part))

    def expected(self, what: str) -> InputError:
        """Return the error with the found value and what was expected."""
        return self.wrong(f"found {describe(self.value)}, expected {what}")

    def members(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, "Entry"]:
        """Return the entries of a mapping with all keys of `required` and no others than `optional`."""
        allowed = (*required, *optional)
        if not isinstance(self.value, dict):
            raise self.expected(f"a mapping with the keys {', '.join(allowed)}")
        for key in self.value:
            if key not in allowed:
                raise self.wrong(not_one_of(key, allowed, "a key"))
        for key in required:
            if key not in self.value:
                raise self.wrong(f"{key!r} is missing; required are {', '.join(required)}")
        return self.named_members("keys")

    def check_schema_version(self, supported: int) -> None:
        """Check the version of a file, before its keys, which may depend on it."""
        if isinstance(self.value, dict) and "schema_version" in self.value:
            version = self.named_members("keys")["schema_version"]
            if type(version.value) is not int or version.value != supported:
                raise version.expected(f"{supported}, the version that this vdnnsim reads")

    def named_members(self, what: str) -> dict[str, "Entry"]:
        """Return the entries of a mapping with any keys; messages call them `what`."""
        if not isinstance(self.value, dict):
            raise self.expected(f"a mapping of {what}")
        return {key: Entry(self.file, self._below(key), value, self.error) for key, value in self.value.items()}

    def items(self, what: str) -> tuple["Entry", ...]:
        """Return the entries of a list with at least one item; messages call it a list of `what`."""
        if not isinstance(self.value, list) or not self.value:
            raise self.expected(f"a list of {what}")
        places = (f"{self.path}[{index}]" for index in range(len(self.value)))
        return tuple(
            Entry(self.file, place, value, self.error) for place, value in zip(places, self.value, strict=True)
        )

    def text(self) -> str:
        """Return printable text, stripped and not empty."""
        if not isinstance(self.value, str):
            raise self.expected("text (put it into quotes if it looks like a number)")
        text = self.value.strip()
        if not text or not text.isprintable() or len(text) > LONGEST_TEXT:
            raise self.expected(f"one line of 1 to {LONGEST_TEXT} printable characters")
        return text

    def boolean(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.expected("true or false")
        return self.value

    def integer(self, low: int, high: int) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not low <= self.value <= high:
            raise self.expected(f"an integer from {low} to {high}")
        return self.value

    def number(self, low: float, high: float, what: str) -> float:
        """Return a number without a unit from `low` to `high`; messages call it `what`."""
        if not isinstance(self.value, int | float) or isinstance(self.value, bool) or not low <= self.value <= high:
            raise self.expected(what)
        return float(self.value)

    def name(self, names: Sequence[str], what: str) -> str:
        """Return one of `names`; messages call it `what`, as "a network"."""
        if not isinstance(self.value, str):
            raise self.expected(f"{what}: {', '.join(names)}")
        if self.value not in names:
            raise self.wrong(not_one_of(self.value, names, what))
        return self.value

    def choice(self, choices: type[Choice], what: str) -> Choice:
        """Return the member of an enum by its value, or by a name that the enum knows; messages call it `what`."""
        if isinstance(self.value, str):
            with suppress(ValueError):
                return choices(self.value)
        names = [str(choice.value) for choice in choices]
        return choices(self.name([*names, *getattr(choices, "short_names", list)()], what))

    def _below(self, key: str) -> str:
        shown = key if _PLAIN_KEY.fullmatch(key) else quote(key)
        return f"{self.path}.{shown}" if self.path else shown
