"""The smallest loop that is in the same trouble as a drawn one."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.apply.generated.drawn import Drawn
from tests.apply.generated.judging import judge
from tests.apply.generated.loops import smaller

_LONGEST_S: Final = 120


def shrunk(drawn: Drawn, trouble: str) -> Drawn:
    """Return what is left of a loop when nothing more can be taken away without its kind of trouble."""
    kind, tried, end_s = kind_of(trouble), {drawn}, time.monotonic() + _LONGEST_S
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for each in _smaller(drawn):
            if time.monotonic() > end_s:
                return drawn
            if each.acts and each not in tried:
                tried.add(each)
                if kind_of(judge(each).trouble) == kind:
                    drawn, is_smaller = each, True
                    break
    return drawn


def kind_of(trouble: str) -> str:
    """Return of a trouble what stays while a loop shrinks."""
    if trouble.startswith("act "):
        return "differs" if "differ" in trouble else "refused"
    last = trouble.strip().splitlines()[-1:]
    return last[0].partition(":")[0] if last else ""


def _smaller(drawn: Drawn) -> Iterator[Drawn]:
    """Yield loops with fewer acts first, for another model has to be captured."""
    yield from (replace(drawn, acts=tuple(acts)) for acts in smaller(drawn.acts))
    yield replace(drawn, apart=False)
    yield replace(drawn, narrow=False)
    yield from (replace(drawn, tree=tree) for tree in drawn.tree.smaller())
