"""Long labels in little room: broken where a reader expects it, behind a bracket, a comma, an underscore."""

import re

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
