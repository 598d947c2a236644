"""Labels of policies where there is little room: in a column, broken where a reader expects it, and in file names."""

import re
from collections.abc import Iterable

_PHRASE = re.compile(r"[^(, ]*[(, ]+|[^(, ]+")
_WORD = re.compile(r"[^(,_= ]*[(,_= ]+|[^(,_= ]+")


def fold_label(label: str, width: int) -> str:
    """Return a label in lines of at most `width` characters.

    It is broken behind brackets and commas; else behind underscores; within a word only if that alone is longer.
    """
    lines = [""]
    for phrase in _PHRASE.findall(label):
        for piece in [phrase] if len(phrase.rstrip()) <= width else _WORD.findall(phrase):
            if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
            while len(lines[-1].rstrip()) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line.rstrip() for line in lines)


def file_names(what: str, labels: Iterable[str], suffix: str) -> tuple[str, ...]:
    """Return a file name for each label: `trace_vdnn_all_m.json`; equal ones get a number."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9.]+", "_", label).strip("_")
        name, number = f"{what}_{plain}{suffix}", 1
        while name in names:
            number += 1
            name = f"{what}_{plain}_{number}{suffix}"
        names.append(name)
    return tuple(names)
