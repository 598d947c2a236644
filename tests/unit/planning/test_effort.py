"""Effort in steps, beside deadlines on clocks that show what they are set to."""

from math import inf

from vdnnsim.planning.deadline import GRACE_S, NEVER, Deadline
from vdnnsim.planning.effort import GRACE, UNLIMITED, Effort


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_parts_are_spent_from_the_whole() -> None:
    """After 20 of 100 steps a quarter of 80 is 20, and 30 less than all are left to a search before what follows."""
    whole = Effort(100.0)
    whole.spend(20)
    part, before = whole.part(0.25), whole.but(30)
    assert (whole.left, part.left, before.left) == (80, 20, 50)
    assert part.allows(20)
    assert not part.allows(21)
    part.spend(20)
    assert (whole.spent, whole.left, part.left, before.left) == (40, 60, 0, 30)
    assert (part.is_over, whole.is_over, part.with_grace.left) == (True, False, GRACE)
    whole.spend(60)
    assert (whole.is_over, whole.is_cut) == (True, False)


def test_a_deadline_ends_an_effort_and_all_that_it_is_part_of_remember_it() -> None:
    """10 s on a clock on which 10 steps took 2 s: 40 more end in time, 41 do not; with the grace it ends later."""
    clock = Clock()
    whole = Effort.until(Deadline.after(10.0, clock))
    whole.spend(10)
    clock.now_s = 2.0
    assert (whole.allows(40), whole.but(30).allows(10), whole.is_cut) == (True, True, False)
    assert (whole.part(0.5).but(30).allows(11), whole.is_cut) == (False, True)
    clock.now_s = 10.0
    assert (whole.is_over, whole.with_grace.is_over) == (True, False)
    clock.now_s = 10.0 + GRACE_S
    assert whole.with_grace.allows(0) is False


def test_fewer_steps_than_a_search_takes_cut_it() -> None:
    """10 of 20 end it as a deadline does, whatever part ends first; at most 20 of 20 are those of the search."""
    for most, is_cut in ((10, True), (20, False)):
        whole = Effort.until(NEVER, 20.0, most)
        assert (whole.left, whole.is_over, whole.is_cut) == (most, False, False)
        assert (whole.part(0.5).allows(most), whole.is_cut) == (False, is_cut)


def test_without_a_limit_it_never_ends() -> None:
    assert (UNLIMITED.left, UNLIMITED.part(0.1).left, UNLIMITED.but(5).left) == (inf, inf, inf)
    assert not UNLIMITED.is_over
    assert Effort.until(Deadline.after(-1.0)).is_over


def test_so_many_steps_are_left_at_least() -> None:
    """Of 10 steps 4 are spent: 3 are left in any case, 8 beyond its end."""
    effort = Effort(10)
    effort.spend(4)
    assert [effort.at_least(each).left for each in (3, 8)] == [6, 8]
