"""The smallest loop or script that is in the same trouble as a drawn one."""

import time
from typing import Final

from tests.apply.generated.drawn import Drawn
from tests.apply.generated.drawn_scripts import DrawnScript
from tests.apply.generated.judging import judge

_LONGEST_S: Final = 120


def shrunk(drawn: Drawn | DrawnScript, trouble: str) -> Drawn | DrawnScript:
    """Return what is left of it when nothing more can be taken away without its kind of trouble."""
    kind, tried, end_s = kind_of(trouble), {drawn}, time.monotonic() + _LONGEST_S
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for each in drawn.smaller():
            if time.monotonic() > end_s:
                return drawn
            if each not in tried:
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
