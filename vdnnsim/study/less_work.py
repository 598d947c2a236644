"""What is left where a card does not hold the whole batch: parts of it, fewer samples or tokens, or a larger card."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from vdnnsim.analysis.answer import Change, Way
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import card_words, shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.placement import Placement
from vdnnsim.policies.interface import is_search
from vdnnsim.policies.pytorch import cached_casts_bytes
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.edge import Need, find_edge
from vdnnsim.study.replay_budget import SEARCHED, STEPS

PLAIN: Final = "pytorch"
RECOMPUTING: Final = "checkpoint"
POLICIES: Final = (RECOMPUTING, "save_on_cpu")
"""That plan at once, of those that `apply` runs."""
MEMONGER: Final = "memonger(p)"
OF_CONVOLUTIONS: Final = ("vdnn_all(p)", MEMONGER, "vdnn_conv(p)", "swap(p)")
"""That are for convolutional networks; of others the one that recomputes is tried alone."""
MARGIN: Final = 1.04
"""By how much more than estimated micro-batches take at the least: gaps, and a gradient that is being added."""
_GROWING: Final = 1.1
"""Memory that is held, over the card's, up to which segments that grow are tried for micro-batches."""
_SOLD_BY: Final = 4 * 10**9
"""Bytes by which cards of one size may differ."""
MOST_TRIALS: Final = 3
"""Numbers of micro-batches, or of halvings of a sequence, that are tried from the estimated one on."""


def micro_batches(replays: AnswerReplays, done: Sequence[Way], name: str, *, are_likely: bool = True) -> Iterator[Way]:
    """Yield the fewest micro-batches with which a policy fits; where none fits, the last ones that were tried.

    The last that nearly fit are also yielded in growing segments. Nothing where an estimate says otherwise than
    `are_likely` whether any fit, and where backward updates parameters, which the next micro-batch needs as they were.
    """
    if replays.workload.captured.in_backward:
        return
    size, label = replays.workload.part_size, replays.named(name).label
    known = [way.held_bytes for way in done if way.policy == label and way.loop == replays.loop]
    parts = [parts for parts in range(2, size + 1) if size % parts == 0]
    held_bytes = next(filter(None, known), 0)
    if not held_bytes or not parts:
        return
    cached_bytes = cached_casts_bytes(replays.workload) if name == RECOMPUTING else 0
    most = replays.room_bytes / MARGIN - cached_bytes
    likely = [each for each in parts if estimated_bytes(replays, held_bytes, size // each) <= most]
    if bool(likely) is not are_likely:
        return
    likely, nearly = (likely or parts[-1:])[:MOST_TRIALS], 0
    for each in likely:
        way = replays.divided(name, each)
        if not way.fits and 0 < way.held_bytes <= _GROWING * way.memory_bytes:
            nearly = each
        if way.fits or not way.iteration_s or each == likely[-1]:
            yield way
            break
    if nearly and replays.scenario.memory_model is MemoryModel.PYTORCH:
        yield replays.growing.divided(name, nearly)


def smaller_batch(replays: AnswerReplays, done: Sequence[Way]) -> Iterator[Way]:
    """Yield the largest batch that fits in a plain loop."""
    searching = replays.without_limit
    whole = replays.workload.part_size
    tried: dict[int, Way] = {}

    def need(batch_size: int) -> Need | None:
        way = searching.of_batch(PLAIN, batch_size)
        if way is None:
            return None
        tried[batch_size] = way
        return Need(way.fits, way.held_bytes / certain_bytes(way.memory_bytes)) if way.iteration_s else None

    label = replays.named(PLAIN).label
    known = [way.held_bytes for way in done if way.policy == label and way.held_bytes and not way.loop.changes]
    if whole == 1 or not known or not replays.can_fit:
        return
    smaller, room_bytes = range(whole - 1, 0, -1), replays.room_bytes
    guess = next((each for each in smaller if estimated_bytes(replays, known[0], each) <= room_bytes), 1)
    asked = replace(replays.untried(PLAIN, replays.scenario, Change.BATCH), batch_size=guess)
    if replays.budget.lacks(asked, MOST_TRIALS * replays.operations):
        yield asked
        return
    found, _ = find_edge(need, guess, whole - 1)
    if tried:
        yield tried[found or min(tried)]


def shorter_sequence(replays: AnswerReplays, done: Sequence[Way]) -> Iterator[Way]:
    """Yield half of the tokens, or a quarter and so on, of one sequence for which nothing else was found."""
    model = replays.scenario.captured
    assert model is not None, "the scenario is of a captured model"
    is_last = replays.workload.part_size == 1 and not any(way.fits and way.loop.is_exact for way in done)
    if not is_last or not model.can_be_of_any_length or not replays.can_fit:
        return
    way = None
    for halvings in range(1, MOST_TRIALS + 1):
        found = replays.of_tokens(PLAIN, max(1, model.tokens >> halvings))
        way = found or way
        if found is None or found.fits or found.untried:
            break
    if way is not None:
        yield way


def larger_card(replays: AnswerReplays, done: Sequence[Way]) -> Iterator[Way]:
    """Yield the smallest shipped card on which the first policy fits; of those of one size the slowest."""
    rows = replays.result.slowest
    server = _smallest_that_holds(replays, rows[0]) if rows else None
    if server is not None:
        # One replay, which an answer without anything that fits is better with.
        trying, policy = replays if any(way.fits for way in done) else replays.without_limit, rows[0].policy
        searched = SEARCHED if is_search(replays.named(policy)) else 0
        yield trying.tried(policy, replays.on(server), Change.CARD, steps=STEPS * searched, operations=searched)


def _smallest_that_holds(replays: AnswerReplays, row: PolicyResult) -> Server | None:
    own = replays.scenario.server.gpu.memory_bytes
    servers = sorted(_machines(replays), key=lambda each: len(each.gpu.flop_per_s))
    cards = {card_words(each.gpu.name): each for each in servers}
    for server in sorted(cards.values(), key=_size_and_speed):
        gpu = server.gpu
        most = certain_bytes(gpu.memory_bytes)
        is_small = gpu.memory_bytes <= own or row.metrics.allocated_bytes + gpu.context_bytes > most
        if is_small or not server.computes_in(replays.workload.element_type):
            continue
        placed = simulator_of(replays.on(server)).place(row.trace.plan)
        if isinstance(placed, Placement) and placed.pool_bytes + gpu.context_bytes <= most:
            return server
    return None


def _size_and_speed(server: Server) -> tuple[int, float]:
    """Return what a card is sold by: what drivers leave of 80 GB differs by 0.2 GiB."""
    return round(server.gpu.memory_bytes / _SOLD_BY), max(server.gpu.flop_per_s.values())


def _machines(replays: AnswerReplays) -> Iterator[Server]:
    """Yield shipped machines that have a GPU for each rank."""
    for profile in reversed(shipped_profiles()):
        with suppress(ProfileError):
            yield machine_of_rank(profile.server.name, profile.server, replays.workload.captured)


def estimated_bytes(replays: AnswerReplays, held_bytes: int, batch_size: int) -> int:
    """Return the bytes of a batch if what is not held throughout grew with it."""
    growing = max(0, held_bytes - replays.scenario.server.gpu.context_bytes - replays.held_bytes)
    return replays.held_bytes + growing * batch_size // replays.workload.part_size
