"""Labels of policies folded into columns, joined in lists, and in file names."""

import re
from collections.abc import Iterable, Iterator, Sequence

_LETTER = re.compile(r"(\w+)\(([mp])\)")
_BREAKS = (
    re.compile(r"(?<=, )(?![^(]*\))"),
    re.compile(r"(?<= )"),
    re.compile(r"(?<=[_=/])|(?<=\.)(?=[a-z])"),
    re.compile(r"(?=\()"),
)
"""Breakpoints, the best first: between labels, between options, within a word, before its options."""


def fold_label(label: str, width: int) -> str:
    """Return one label or several, separated by commas, in lines of at most `width` characters."""
    lines = [""]
    for piece in _pieces(label, width, _BREAKS):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _pieces(text: str, width: int, breaks: Sequence[re.Pattern[str]]) -> Iterator[str]:
    if len(text.rstrip()) <= width:
        yield text
    elif breaks:
        for piece in breaks[0].split(text):
            yield from _pieces(piece, width, breaks[1:])
    else:
        yield from (text[start : start + width] for start in range(0, len(text), width))


def joined_labels(labels: Iterable[str]) -> str:
    """Return labels separated by commas, (m) and (p) of one policy joined: `base(m, p), vdnn_dyn`."""
    letters: dict[str, list[str]] = {}
    for label in labels:
        found = _LETTER.fullmatch(label)
        letters.setdefault(found[1] if found else label, []).extend([found[2]] if found else [])
    return ", ".join(f"{name}({', '.join(each)})" if each else name for name, each in letters.items())


def file_names(what: str, labels: Iterable[str], suffix: str) -> tuple[str, ...]:
    """Return a unique file name for each label: `trace_vdnn_all_m.json`."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9.]+", "_", label).strip("_")
        name, number = f"{what}_{plain}{suffix}", 1
        while name in names:
            number += 1
            name = f"{what}_{plain}_{number}{suffix}"
        names.append(name)
    return tuple(names)
