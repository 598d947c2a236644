"""Long labels in little room: broken where a reader expects it, behind a bracket, a comma, an underscore."""

import re

_PIECE = re.compile(r"[^(,_= ]*[(,_= ]+|[^(,_= ]+")


def fold_label(label: str, width: int) -> str:
    """Return a label in lines of at most `width` characters; a word is broken only if it alone is longer."""
    lines = [""]
    for piece in _PIECE.findall(label):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return "\n".join(line.rstrip() for line in lines)
