"""What makes a captured model fit: policies, other loops, micro-batches, a smaller batch, a larger card.

What is done first when memory runs out comes first: micro-batches, then an update without temporaries where only these
have no room, checkpoints of each block, checkpoints as they are applied. While nothing fits, what holds least follows,
then other loops, what offloads or recomputes otherwise, other batches and cards, and at last a search.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_in

from msgspec.structs import replace

from vdnnsim.analysis.answer import Answer, Change, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_sizes import has_pairs
from vdnnsim.dnn.checkpointed_blocks import CheckpointedBlocks
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.training_loops import Loop, fits_but_for_update, kept_bytes, lighter_loops, slices_of
from vdnnsim.errors import VdnnsimError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer_notes import notes
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.answer_searches import search_parts, search_whole
from vdnnsim.study.less_work import (
    MARGIN,
    MEMONGER,
    OF_CONVOLUTIONS,
    PLAIN,
    POLICIES,
    RECOMPUTING,
    larger_card,
    micro_batches,
    shorter_sequence,
    smaller_batch,
)
from vdnnsim.study.replay_budget import SEARCHED, ReplayBudget


def answer(
    scenario: Scenario,
    result: ScenarioResult,
    types: PolicyTypes,
    found: Callable[[Way], object] = lambda _: None,
    budget: ReplayBudget | None = None,
) -> Answer:
    """Return what was tried so that a captured model fits.

    Args:
        scenario: of a captured model.
        result: of the scenario.
        types: all known policies.
        found: gets each way as soon as it was tried.
        budget: that may be spent, with what is known already; it gets what was tried. What was not tried is a way with
            that reason.
    """
    asking = _Asking(AnswerReplays.begin(scenario, result, types, budget or ReplayBudget()))
    for way in asking.ways():
        asking.done.append(way)
        found(way)
    return Answer(tuple(asking.done), tuple(notes(asking.replays, PLAIN, asking.lacking, has_loops=bool(asking.loops))))


def ways_here(replays: AnswerReplays) -> Iterator[Way]:
    """Yield what computes the same step with the whole batch on the card, as soon as it was tried."""
    asking = _Asking(replays, is_of_card=True)
    for way in asking.ways():
        asking.done.append(way)
        yield way


@dataclass
class _Asking:
    replays: AnswerReplays
    is_of_card: bool = False
    done: list[Way] = field(default_factory=list)
    loops: list[AnswerReplays] = field(default_factory=list)
    lacking: list[Loop] = field(default_factory=list)
    searched: set[Loop] = field(default_factory=set)

    @property
    def _model(self) -> CapturedModel:
        model = self.replays.scenario.captured
        assert model is not None, "the scenario is of a captured model"
        return model

    def ways(self) -> Iterator[Way]:
        """Yield everything that is tried, from cheap to dear."""
        replays = self.replays
        yield from replays.asked()
        if replays.can_fit:
            yield from self._grown(replays)
            yield from micro_batches(replays, self.done, PLAIN)
        lighter = lighter_loops(replays.workload.captured, replays.room_bytes, replays.workload.rounds)
        loops = [each for each in lighter if each.is_exact or not self.is_of_card]
        step, room_bytes = replays.workload.captured, replays.room_bytes / MARGIN
        is_of_update = bool(loops) and loops[0].is_of_update and fits_but_for_update(step, room_bytes)
        early = [*loops[:is_of_update], *(each for each in loops if each.checkpointing)]
        for loop in early:
            yield from self._in_loop(loop)
        if replays.can_fit and not replays.is_sharded:
            yield from self._policies(replays, (RECOMPUTING,))
            yield from micro_batches(replays, self.done, RECOMPUTING)
        if kept_bytes(step) > replays.room_bytes and not any(way.fits for way in self.done):
            yield from self._leanest(loops)
        known = [*early, *(each.loop for each in self.loops)]
        for loop in sorted(loops, key=lambda each: bool(each.in_backward)):
            if loop not in known:
                yield from self._in_loop(loop)
        if replays.can_fit:
            has_convolutions = any(each.kind is LayerKind.CONV for each in replays.workload.graph.layers)
            others = (each for each in POLICIES if each != RECOMPUTING)
            suited = OF_CONVOLUTIONS if has_convolutions else (MEMONGER,)
            yield from self._policies(replays, (*others, *(() if replays.is_sharded else suited)))
            for name in (PLAIN,) if replays.is_sharded else (PLAIN, RECOMPUTING):
                yield from micro_batches(replays, self.done, name, are_likely=False)
        for each in self.loops:
            if each.loop not in self.searched and not each.loop.checkpointing:
                yield from self._policies_in(each)
        if not self.is_of_card:
            yield from smaller_batch(replays, self.done)
            yield from shorter_sequence(replays, self.done)
            yield from larger_card(replays, self.done)
        yield from self._searched()
        if not (self.is_of_card or replays.is_sharded):
            yield from search_parts(replays, self.done, most=self._most)

    def _leanest(self, loops: Sequence[Loop]) -> Iterator[Way]:
        """Yield what holds least, where no loop that keeps all activations of the batch has room.

        The last exact loop and the last other one with each block checkpointed, with policies in it, and a search.
        """
        exact = [each for each in loops if each.is_exact and not each.checkpointing]
        narrow = [each for each in loops if not (each.is_exact or each.checkpointing or each.precision)]
        if any(each.checkpointing for each in loops) and self._model.can_be_in_any_loop:
            for loop in (*exact[-1:], *narrow[-1:]):
                yield from self._with_policies(replace(loop, checkpointing="full"), self._captured)
        for loop in exact[-1:]:
            yield from self._with_policies(loop, self._in_loop)
            yield from self._searched()

    def _with_policies(self, loop: Loop, tried: Callable[[Loop], Iterator[Way]]) -> Iterator[Way]:
        """Yield a loop, unless it was tried as a whole, and policies in it."""
        known, is_new = len(self.loops), all(way.loop != loop for way in self._plain())
        if is_new:
            yield from tried(loop)
        for each in self.loops[known:] if is_new else [each for each in self.loops if each.loop == loop]:
            yield from self._policies_in(each)
            self.searched.add(each.loop)

    def _in_loop(self, loop: Loop) -> Iterator[Way]:
        """Yield another loop, in growing segments too if it lacks pieces; its parts if it checkpoints and none fits."""
        if not self._model.can_be_in_any_loop:
            self.lacking.append(loop)
            return
        if loop.checkpointing and self.replays.workload.part_size > 1:
            blocks = CheckpointedBlocks.of(self.replays.workload.captured)
            if blocks.least_bytes > self.replays.room_bytes:
                yield from self._in_parts(loop, blocks)
                return
        yield from self._captured(loop)

    def _captured(self, loop: Loop) -> Iterator[Way]:
        """Yield another loop of the whole batch, which is captured; in micro-batches where only these may fit."""
        replays, budget = replace_in(self.replays, loop=loop), self.replays.budget
        asked = replays.untried(PLAIN, replays.scenario)
        if budget.lacks(asked, budget.capturing(replays.operations, loop) + replays.operations):
            yield asked
            return
        budget.captures(replays.operations, loop)
        other = self._model.in_loop(loop)
        if other is None:
            # A loss that is no cross entropy of the output layer cannot be cut.
            self.lacking.append(loop)
            whole = replace(loop, loss_chunks=None)
            if loop.loss_chunks and whole.changes and all(each.loop != whole for each in self.loops):
                yield from self._captured(whole)
            return
        try:
            replays = self.replays.of(other, loop)
        except VdnnsimError:
            return
        if not replays.can_fit:
            return
        self.loops.append(replays)
        found = replays.without_limit.plain(PLAIN)
        yield found
        yield from self._grown(replays if any(way.fits for way in self.done) else replays.without_limit)
        # Faster kernels are worth a second capture.
        fastest = max((way.samples_per_s for way in self.done if way.fits), default=0.0)
        is_last = loop.checkpointing and not loop.in_backward and not fastest
        if is_last or (loop.precision and not found.fits and found.samples_per_s > fastest):
            yield from micro_batches(replays, self.done, PLAIN)

    def _in_parts(self, loop: Loop, blocks: CheckpointedBlocks) -> Iterator[Way]:
        """Yield a loop with checkpoints that has no room for the whole batch, captured as a micro-batch, if none fits.

        It is the largest one with room by an estimate, or a single sample; its loss needs fewer slices.
        """
        replays, budget = self.replays, self.replays.budget
        size, step = replays.workload.part_size, replays.workload.captured
        # In bfloat16 half of what autocast holds.
        left_bytes = replays.room_bytes / MARGIN - replays.held_bytes / (1 if loop.is_exact else 2)
        if left_bytes <= 0 or any(way.fits for way in self.done):
            return
        parts = blocks.fewest_parts(size, left_bytes)
        loop = replace(loop, loss_chunks=loop.loss_chunks and slices_of(step, replays.room_bytes, parts))
        asked = replace_in(replays, loop=loop).untried_parts(PLAIN, parts)
        if budget.lacks(asked, budget.capturing(replays.operations, loop) + 2 * replays.operations):
            yield asked
            return
        budget.captures(replays.operations, loop)
        for each in dict.fromkeys((loop, replace(loop, loss_chunks=None))):
            part = self._model.in_loop(each, size // parts)
            if part is not None:
                there = replace_in(replays, loop=each, scenario=replace_in(replays.scenario, captured=part))
                self.loops.append(there)
                fewer = has_pairs(step, part.base)
                found = there.without_limit.divided(PLAIN, parts)
                yield replace(found, has_fewer_pairs=fewer)
                if found.in_pieces and there.scenario.memory_model is MemoryModel.PYTORCH:
                    yield replace(there.growing.divided(PLAIN, parts), has_fewer_pairs=fewer)
                return
            self.lacking.append(each)

    def _policies(self, replays: AnswerReplays, names: Iterable[str]) -> Iterator[Way]:
        """Yield policies that were not asked about."""
        for name in names:
            if all(row.policy != replays.named(name).label for row in replays.result.slowest):
                yield from self._tried(replays, name)

    def _policies_in(self, replays: AnswerReplays) -> Iterator[Way]:
        """Yield policies in another loop, unless that fits: what recomputes or offloads is slower than a plain one."""
        if any(way.fits for way in self._plain() if way.loop == replays.loop):
            return
        plain_loops = [each.loop for each in self.loops if not (each.loop.checkpointing or each.loop.in_backward)]
        for name in POLICIES:
            if replays.is_sharded and name == RECOMPUTING:
                # It would keep what forward gathered; a loop with checkpoints does not.
                continue
            label = replays.named(name).label
            if name != RECOMPUTING and any(way.fits and way.policy == label for way in self.done):
                # Copies take its time, in any loop.
                continue
            ways = list(self._tried(replays, name))
            yield from ways
            if any(way.fits or way.untried for way in ways):
                return
            if name == RECOMPUTING and replays.loop in plain_loops[:1] and replays.loop.is_exact:
                for are_likely in (True, False):
                    yield from micro_batches(replays, self.done, name, are_likely=are_likely)

    def _tried(self, replays: AnswerReplays, name: str) -> Iterator[Way]:
        """Yield a policy as it is applied, and in a plain loop with segments that grow where addresses fail."""
        way = replays.tried(name, replays.scenario if replays.is_sharded else None)
        yield way
        if way.in_pieces:
            yield replays.growing.plain(name)

    def _grown(self, replays: AnswerReplays) -> Iterator[Way]:
        """Yield a plain loop again where it lacks nothing but pieces, in segments that grow."""
        in_pieces = any(way.in_pieces for way in self._plain() if way.loop == replays.loop)
        if in_pieces and replays.scenario.memory_model is MemoryModel.PYTORCH:
            yield replays.growing.plain(PLAIN)

    def _searched(self) -> Iterator[Way]:
        """Yield a search in the loop whose plain step takes least; for a run by all that is left."""
        if not self.replays.is_sharded:
            yield from search_whole(self._least(), self.done, most=self._most)

    @property
    def _most(self) -> int:
        """The operations as which a search may count, for a run all that are left."""
        return SEARCHED if self.is_of_card else max(SEARCHED, self.replays.budget.operations)

    def _least(self) -> AnswerReplays:
        held = {way.loop: way.held_bytes for way in self._plain() if way.held_bytes}
        # A search recomputes what it likes.
        whole = (each for each in (self.replays, *self.loops) if not each.loop.checkpointing)
        exact = [each for each in whole if each.loop in held and each.loop.is_exact]
        return min(exact, key=lambda each: held[each.loop], default=self.replays)

    def _plain(self) -> Iterator[Way]:
        """Yield the plain loops that were tried, of the whole batch on the card."""
        label = self.replays.named(PLAIN).label
        yield from (way for way in self.done if way.change is Change.POLICY and way.policy == label)
