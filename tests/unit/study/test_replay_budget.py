"""What an answer may still spend, and what it knows already."""

import msgspec

from tests.answers import MIB
from vdnnsim.analysis.answer import Change, Way
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.planning.deadline import Deadline
from vdnnsim.study.replay_budget import ReplayBudget


def _way(memory_bytes: int) -> Way:
    return Way(change=Change.POLICY, policy="x", batch_size=1, hardware="x", memory_bytes=memory_bytes, untried=True)


def test_what_allocates_too_much_on_a_larger_card_is_not_replayed_on_a_smaller_one() -> None:
    """All maps of 20,000 images take over 1 MiB, which no card of half of one holds, and costs nothing to say."""
    budget = ReplayBudget(100)
    found = {"iteration_s": 1.0, "allocated_bytes": MIB, "held_bytes": MIB, "untried": False}
    way = msgspec.structs.replace(_way(memory_bytes=2 * MIB), **found)
    budget.once(_way(memory_bytes=2 * MIB), 10, lambda: way)
    small = budget.once(_way(memory_bytes=MIB // 2), 10, lambda: way)
    assert (small.fits, small.untried, small.memory_bytes, budget.operations) == (False, False, MIB // 2, 90)
    # Nine tenths of a MiB may be all that it allocates on a card with less workspace: it counts a quarter.
    assert budget.once(_way(memory_bytes=MIB), 10, lambda: way) is way
    assert budget.operations == 88


def test_cards_share_what_a_capture_counts() -> None:
    """Of 8 operations it counts 24, of four cards 6 for each, and nothing in a loop that is known."""
    loop = Loop(checkpointing="full")
    assert ReplayBudget().capturing(8) == 24
    budget = ReplayBudget(cards=4, loops={loop})
    assert (budget.capturing(8), budget.capturing(8, loop), budget.capturing(8, Loop())) == (6, 0, 6)


def test_what_would_end_behind_the_deadline_is_not_begun() -> None:
    """Of 4000 operations a second 40,000 take ten, and a capture, which counts threefold, three of 4000.

    What was tried until after the deadline is kept for the same question alone.
    """
    now_s = [0.0]
    budget = ReplayBudget(100_000, deadline=Deadline(((lambda: now_s[0], 12.5),)))
    first, second, last = map(_way, (1, 2, 3))
    assert not budget.lacks(first, 40_000)
    budget.captures(4000, Loop())
    assert budget.lacks(_way(4), 40_000)
    assert budget.once(second, 38_000, lambda: second) is second
    now_s[0] = 9.0

    def tried() -> Way:
        now_s[0] = 10.0
        return last

    assert budget.once(last, 2000, tried) is last
    assert (list(budget.kept), list(budget.known)) == ([(second, 0)], [second, last])
