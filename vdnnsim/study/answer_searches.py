"""Searches of an answer: of the whole batch, and of larger micro-batches than those that fit in a plain loop."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from vdnnsim.analysis.answer import Change, Way
from vdnnsim.study.answer_notes import states_bytes
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.less_work import PLAIN
from vdnnsim.study.replay_budget import SEARCHED, STEPS

SEARCH: Final = "optimal"
STATES_ON_HOST: Final = "optimal(offload_optimizer=true)"


def search_whole(replays: AnswerReplays, done: Sequence[Way], *, most: int) -> Iterator[Way]:
    """Yield a search of a loop of the whole batch, unless the loop fits, that takes at most so many operations."""
    search = SEARCH if replays.can_fit else STATES_ON_HOST
    may_fit = replays.can_fit or replays.held_bytes - states_bytes(replays.workload.captured) <= replays.room_bytes
    label, plain = replays.named(search).label, replays.named(PLAIN).label
    same = [way for way in done if way.change is Change.POLICY and way.loop == replays.loop]
    if may_fit and not any(way.policy == label or (way.policy == plain and way.fits) for way in same):
        yield _compared(replays.tried(search, steps=STEPS * most, operations=SEARCHED), done)


def search_parts(replays: AnswerReplays, done: Sequence[Way], *, most: int) -> Iterator[Way]:
    """Yield a search of micro-batches twice as large as those that fit in the plain loop.

    Larger ones run faster, and a plan for them has less to offload and to recompute than one of the whole batch.
    """
    label = replays.named(PLAIN).label
    same = (way for way in done if way.change is Change.MICRO_BATCHES and way.loop == replays.loop)
    rounds = min((way.rounds for way in same if way.policy == label and way.fits), default=0)
    parts, odd = divmod(rounds, 2 * replays.workload.rounds)
    if parts > 1 and not odd:
        yield _compared(replays.divided(SEARCH, parts, steps=STEPS * most), done)


def _compared(found: Way, done: Sequence[Way]) -> Way:
    """Return what a search found, as not tried to the end where a policy that it would take is faster."""
    same = [way for way in done if way.fits and (way.loop, way.change) == (found.loop, found.change)]
    best = max(same, key=lambda way: way.samples_per_s, default=None)
    if found.untried or best is None or (found.fits and found.samples_per_s >= best.samples_per_s):
        return found
    reason = f"no faster plan than that of {best.policy} was found in time"
    return replace(found, iteration_s=0.0, held_bytes=0, in_pieces=False, reason=reason, untried=True)
