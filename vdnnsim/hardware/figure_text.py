"""Figures and texts as the YAML of a profile: what is read back is what was stated."""

import json
import re
from collections.abc import Iterator
from typing import Final

from vdnnsim.entry import LONGEST_TEXT
from vdnnsim.hardware.server import Figure

_LONGEST_LINE: Final = 120
_QUANTITY = re.compile(r"[0-9][0-9.e+-]*( [A-Za-z/]+)?")


def figure_lines(indent: str, key: str, figure: Figure) -> Iterator[str]:
    """Yield a figure under its key, on one line where there is room."""
    # What does not read as a quantity reads back as it is stated only in quotes.
    value = figure.text if _QUANTITY.fullmatch(figure.text) else quoted(figure.text)
    members = (f"value: {value}", f"origin: {figure.origin.value}", f"source: {quoted(figure.source)}")
    line = f"{indent}{key}: {{{', '.join(members)}}}"
    if len(line) <= _LONGEST_LINE:
        yield line
    else:
        yield f"{indent}{key}:"
        yield from (f"{indent}  {member}" for member in members)


def quoted(text: str) -> str:
    """Return text in quotes; it must be a line that a profile may hold."""
    assert text.isprintable() and text.strip() == text and 0 < len(text) <= LONGEST_TEXT, f"{text!r} is no line"  # noqa: PT018  # one notion
    return json.dumps(text, ensure_ascii=False)
