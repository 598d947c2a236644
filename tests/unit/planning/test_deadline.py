"""A deadline on clocks that show what they are set to."""

from math import inf

import pytest

from vdnnsim.errors import InputError
from vdnnsim.planning.deadline import CLOCKS, GRACE_S, NEVER, Deadline, TimeLimit


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_deadlines_count_down_and_can_be_divided_shifted_and_joined() -> None:
    """10 s from second 5 on: at 11 s 4 s are left, at 15 s none, at 18 s it is 3 s late."""
    clock = Clock()
    clock.now_s = 5.0
    deadline = Deadline.after(10.0, clock)
    clock.now_s = 11.0
    assert (deadline.remaining_s, deadline.is_over, deadline.late_s) == (4.0, False, 0.0)
    assert deadline.spent_since(10.0) == 6.0
    assert deadline.allows(4.0)
    assert not deadline.allows(4.1)
    clock.now_s = 15.0
    assert (deadline.remaining_s, deadline.is_over, deadline.late_s) == (0.0, True, 0.0)
    assert not deadline.allows(0.0)
    clock.now_s = 18.0
    assert (deadline.remaining_s, deadline.is_over, deadline.late_s) == (0.0, True, 3.0)
    # At 2 s of 10 s a quarter of 8 s ends at 4 s; 3 s earlier is 7 s; the grace ends half a second later.
    clock = Clock()
    deadline = Deadline.after(10.0, clock)
    clock.now_s = 2.0
    assert deadline.part(0.25).remaining_s == 2.0
    assert deadline.earlier(3.0).remaining_s == 5.0
    assert deadline.with_grace.remaining_s == 8.0 + GRACE_S
    clock.now_s = 12.0
    assert deadline.part(0.25).is_over
    # 4 s on a clock that stands still, 10 s on one that advances: the second is over first, at 10 s.
    still, going = Clock(), Clock()
    both = Deadline.after(4.0, still).sooner(Deadline.after(10.0, going))
    going.now_s = 9.0
    assert both.remaining_s == 1.0
    going.now_s = 10.0
    assert both.is_over


def test_without_a_limit_a_search_never_ends() -> None:
    assert Deadline.after(inf) == NEVER == NEVER.part(0.1) == NEVER.earlier(1.0) == NEVER.sooner(NEVER)
    assert (NEVER.remaining_s, NEVER.is_over, NEVER.late_s, NEVER.spent_since(inf)) == (inf, False, 0.0, 0.0)
    assert NEVER.sooner(Deadline.after(-1.0)).is_over


@pytest.mark.parametrize(
    ("text", "seconds", "clock"),
    [("20 s", 20.0, "cpu"), ("20 s cpu", 20.0, "cpu"), ("500ms wall", 0.5, "wall"), ("2 s  wall ", 2.0, "wall")],
)
def test_a_limit_names_its_clock_or_means_processor_time(text: str, seconds: float, clock: str) -> None:
    limit = TimeLimit.parse(text)
    assert limit == TimeLimit(seconds, clock)
    assert TimeLimit.parse(str(limit)) == limit
    ((read, _),) = limit.begin().ends
    assert read is CLOCKS[clock]


@pytest.mark.parametrize("text", ["soon", "20", "0 s", "-1 s", "20 s moon", "wall", "20 GiB", ""])
def test_wrong_limits_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="found"):
        TimeLimit.parse(text)
