"""The race check of streams, on histories by hand."""

import pytest

from tests.pretend.stream_races import (
    HOST,
    Allocated,
    Freed,
    HandedOn,
    Happening,
    Hazard,
    Lend,
    Record,
    Synchronize,
    Touch,
    Wait,
    Work,
    find_hazards,
)

MAIN, SIDE, COPIES = 1, 2, 3


def reads(stream: int, start: int = 0) -> Work:
    return Work(stream, [Touch(start, start + 10, writes=False)])


def writes(stream: int, start: int = 0) -> Work:
    return Work(stream, [Touch(start, start + 10, writes=True)])


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        pytest.param([writes(MAIN), reads(MAIN)], [], id="one stream is in order"),
        pytest.param([reads(MAIN), reads(SIDE)], [], id="two that read"),
        pytest.param([writes(MAIN), reads(SIDE, 10)], [], id="other bytes"),
        pytest.param([writes(MAIN), reads(SIDE)], [Hazard("access", 0, 1)], id="no order"),
        pytest.param([writes(MAIN), Record(0, MAIN), Wait(0, SIDE), reads(SIDE)], [], id="waited for"),
        pytest.param(
            [Record(0, MAIN), writes(MAIN), Wait(0, SIDE), reads(SIDE)], [Hazard("access", 1, 3)], id="recorded before"
        ),
        pytest.param(
            [writes(MAIN), Record(0, MAIN), Wait(0, SIDE), reads(COPIES)], [Hazard("access", 0, 3)], id="by another one"
        ),
        pytest.param(
            [writes(MAIN), Record(0, MAIN), Wait(0, SIDE), Record(1, SIDE), Wait(1, COPIES), reads(COPIES)],
            [],
            id="by way of another",
        ),
        pytest.param([writes(COPIES), reads(HOST)], [Hazard("access", 0, 1)], id="the host reads what is copied"),
        pytest.param([writes(COPIES), Record(0, COPIES), Wait(0, HOST), reads(HOST)], [], id="once it has waited"),
        pytest.param([writes(COPIES), Synchronize(COPIES), reads(HOST)], [], id="once it is synchronized"),
        pytest.param([writes(COPIES), Synchronize(None), writes(HOST), reads(MAIN)], [], id="all of it"),
        pytest.param([writes(HOST), reads(COPIES)], [], id="what is issued follows what the host did"),
    ],
)
def test_accesses(happened: list[Happening], expected: list[Hazard]) -> None:
    assert find_hazards(happened) == expected


def test_blocks_that_are_reused_while_they_are_copied() -> None:
    """Allocated and freed on main, copied on another: main waits in time, not at all, or too late."""
    begin: list[Happening] = [Allocated(0, 10, MAIN), writes(MAIN), Record(0, MAIN), Wait(0, COPIES), reads(COPIES)]
    known: list[Happening] = [Record(1, COPIES), Wait(1, MAIN)]
    end: list[Happening] = [Freed(0, 10, MAIN), HandedOn(0), Allocated(0, 10, MAIN)]
    assert find_hazards([*begin, *known, *end], {COPIES}) == []
    assert find_hazards([*begin, *end], {COPIES}) == [Hazard("free", 4, 5), Hazard("reuse", 4, 7)]
    late = [*begin, *end[:2], *known, end[2]]
    assert find_hazards(late, {COPIES}) == [Hazard("free", 4, 5)]
    assert find_hazards(late) == []
    # Of the side stream's pool, copied behind main, which waits for the copy; side waits for none unless it is lent.
    # The allocator waits for main before it reuses a block that was lent to it.
    begin = [Allocated(0, 10, SIDE), writes(SIDE), Record(0, SIDE), Wait(0, MAIN), reads(MAIN)]
    copied: list[Happening] = [Record(1, MAIN), Wait(1, COPIES), reads(COPIES), Record(2, COPIES), Wait(2, MAIN)]
    end = [Freed(0, 10, SIDE), HandedOn(0), Allocated(0, 10, SIDE), writes(SIDE)]
    found = find_hazards([*begin, *copied, *end], {COPIES})
    assert found == [Hazard("free", 4, 10), Hazard("free", 7, 10), Hazard("reuse", 7, 12)]
    assert Hazard("reuse", 4, 12) in find_hazards([*begin, *copied, *end])
    assert find_hazards([*begin, *copied, Lend(0, MAIN), *end]) == []
    assert find_hazards([*begin, *copied, Lend(0, MAIN), *end], {COPIES}) == []
    # Main reads a block and frees it; a copy fills it without and with a wait for main.
    begin = [Allocated(0, 10, MAIN), reads(MAIN), Freed(0, 10, MAIN), HandedOn(0)]
    taken = Allocated(0, 10, MAIN)
    assert find_hazards([*begin, taken, writes(COPIES)], {COPIES}) == [Hazard("access", 1, 5)]
    assert find_hazards([*begin, taken, Record(0, MAIN), Wait(0, COPIES), writes(COPIES)], {COPIES}) == []
