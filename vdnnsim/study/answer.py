"""What makes a captured model fit: policies, other loops, micro-batches, a smaller batch, a larger card.

What is done first when memory runs out comes first: micro-batches; an update without temporaries where only these have
no room; checkpoints of each block with a fused optimizer and a loss in slices, in micro-batches too, which need
captures; checkpoints as they are applied, and other loops. Then what offloads or recomputes otherwise, other batches
and cards, and at last a search.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from dataclasses import replace as replace_in
from typing import Final

from msgspec.structs import replace

from vdnnsim.analysis.answer import Answer, Change, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_sizes import has_pairs
from vdnnsim.dnn.checkpointed_blocks import CheckpointedBlocks
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.training_loops import Loop, fits_but_for_update, lighter_loops, slices_of
from vdnnsim.errors import VdnnsimError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.pytorch import cached_casts_bytes
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer_notes import notes, states_bytes
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.less_work import MOST_TRIALS, PLAIN, estimated_bytes, larger_card, shorter_sequence, smaller_batch
from vdnnsim.study.replay_budget import STEPS, ReplayBudget

POLICIES: Final = ("checkpoint", "save_on_cpu")
"""That plan at once, of those that `apply` runs."""
MEMONGER: Final = "memonger(p)"
OF_CONVOLUTIONS: Final = ("vdnn_all(p)", MEMONGER, "vdnn_conv(p)", "swap(p)")
"""That are for convolutional networks; of others the one that recomputes is tried alone."""
RECOMPUTING: Final = POLICIES[0]
SEARCH: Final = "optimal"
STATES_ON_HOST: Final = "optimal(offload_optimizer=true)"
SEARCHED: Final = 15_000
"""Operations as which a search counts, the least for which there is one."""
_MARGIN: Final = 1.04
"""By how much more than estimated micro-batches take at the least: gaps, and a gradient that is being added."""
_GROWING: Final = 1.1
"""Memory that is held, over the card's, up to which segments that grow are tried for micro-batches."""


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

    def ways(self) -> Iterator[Way]:
        """Yield everything that is tried, from cheap to dear."""
        replays, result = self.replays, self.replays.result
        asked = {row.policy: row for row in result.slowest}
        for policy, row in asked.items():
            yield replays.way(Change.POLICY, policy, replays.scenario, row)
        for declined in result.declined:
            yield replays.way(Change.POLICY, declined.policy, replays.scenario, f"no plan: {declined.reason}")
        if replays.can_fit:
            yield from self._grown(replays)
            yield from self._micro_batches(replays, PLAIN)
        lighter = lighter_loops(replays.workload.captured, replays.room_bytes, replays.workload.rounds)
        loops = [each for each in lighter if each.is_exact or not self.is_of_card]
        step, room_bytes = replays.workload.captured, replays.room_bytes / _MARGIN
        is_of_update = bool(loops) and loops[0].is_of_update and fits_but_for_update(step, room_bytes)
        early = [*loops[:is_of_update], *(each for each in loops if each.checkpointing)]
        for loop in early:
            yield from self._in_loop(loop)
        if replays.can_fit:
            yield from self._policies(replays, asked, (RECOMPUTING,))
            yield from self._micro_batches(replays, RECOMPUTING)
        for loop in sorted(loops, key=lambda each: bool(each.in_backward)):
            if loop not in early:
                yield from self._in_loop(loop)
        if replays.can_fit:
            has_convolutions = any(each.kind is LayerKind.CONV for each in replays.workload.graph.layers)
            others = (each for each in POLICIES if each != RECOMPUTING)
            suited = OF_CONVOLUTIONS if has_convolutions else (MEMONGER,)
            yield from self._policies(replays, asked, (*others, *suited))
            for name in (PLAIN, RECOMPUTING):
                yield from self._micro_batches(replays, name, are_likely=False)
        for each in self.loops:
            yield from self._policies_in(each)
        if not self.is_of_card:
            yield from smaller_batch(replays, self.done)
            yield from shorter_sequence(replays, self.done)
            yield from larger_card(replays, self.done)
        yield from self._searched(asked)

    def _in_loop(self, loop: Loop) -> Iterator[Way]:
        """Yield another loop, in growing segments too if it lacks pieces; its parts if it checkpoints and none fits."""
        model = self.replays.scenario.captured
        assert model is not None, "the scenario is of a captured model"
        if not model.can_be_in_any_loop:
            self.lacking.append(loop)
            return
        if loop.checkpointing and self.replays.workload.part_size > 1:
            blocks = CheckpointedBlocks.of(self.replays.workload.captured)
            if blocks.least_bytes > self.replays.room_bytes:
                yield from self._in_parts(model, loop, blocks)
                return
        replays, budget = replace_in(self.replays, loop=loop), self.replays.budget
        asked = replays.untried(PLAIN, replays.scenario)
        if budget.lacks(asked, budget.capturing(replays.operations, loop) + replays.operations):
            yield asked
            return
        budget.loops.add(loop)
        other = model.in_loop(loop)
        if other is None:
            # A loss that is no cross entropy of the output layer cannot be cut.
            self.lacking.append(loop)
            whole = replace(loop, loss_chunks=None)
            if loop.loss_chunks and whole.changes and all(each.loop != whole for each in self.loops):
                yield from self._in_loop(whole)
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
        yield from self._grown(replays)
        # In place of an autocast another one has faster kernels.
        is_faster = loop.precision and self.replays.workload.captured.precision.autocast
        if (is_faster and not found.fits) or (loop.checkpointing and not any(way.fits for way in self.done)):
            yield from self._micro_batches(replays, PLAIN)

    def _in_parts(self, model: CapturedModel, loop: Loop, blocks: CheckpointedBlocks) -> Iterator[Way]:
        """Yield a loop with checkpoints that has no room for the whole batch, captured as a micro-batch, if none fits.

        It is the largest one with room by an estimate, or a single sample; its loss needs fewer slices.
        """
        replays, budget = self.replays, self.replays.budget
        size, step = replays.workload.part_size, replays.workload.captured
        # In bfloat16 half of what autocast holds.
        left_bytes = replays.room_bytes / _MARGIN - replays.held_bytes / (1 if loop.is_exact else 2)
        if left_bytes <= 0 or any(way.fits for way in self.done):
            return
        divisors = (each for each in range(2, size) if size % each == 0)
        parts = next((each for each in divisors if blocks.growing_bytes <= each * left_bytes), size)
        loop = replace(loop, loss_chunks=loop.loss_chunks and slices_of(step, replays.room_bytes, parts))
        asked = replace_in(replays, loop=loop).untried_parts(PLAIN, parts)
        if budget.lacks(asked, budget.capturing(replays.operations, loop) + 2 * replays.operations):
            yield asked
            return
        budget.loops.add(loop)
        for each in dict.fromkeys((loop, replace(loop, loss_chunks=None))):
            part = model.in_loop(each, size // parts)
            if part is not None:
                there = replace_in(replays, loop=each, scenario=replace_in(replays.scenario, captured=part))
                self.loops.append(there)
                found = there.without_limit.divided(PLAIN, parts)
                yield replace(found, has_fewer_pairs=has_pairs(step, part.base))
                return
            self.lacking.append(each)

    def _policies(self, replays: AnswerReplays, asked: Iterable[str], names: Iterable[str]) -> Iterator[Way]:
        """Yield policies that were not asked about."""
        for name in names:
            if replays.named(name).label not in asked:
                yield from self._tried(replays, name)

    def _policies_in(self, replays: AnswerReplays) -> Iterator[Way]:
        """Yield policies in another loop, unless that fits: what recomputes or offloads is slower than a plain one."""
        if replays.loop.checkpointing or any(way.fits for way in self._plain() if way.loop == replays.loop):
            return
        plain_loops = [each.loop for each in self.loops if not each.loop.checkpointing]
        for name in POLICIES:
            label = replays.named(name).label
            if name != RECOMPUTING and any(way.fits and way.policy == label for way in self.done):
                # Copies take its time, in any loop.
                continue
            ways = list(self._tried(replays, name))
            yield from ways
            if any(way.fits or way.untried for way in ways):
                return
            if name == RECOMPUTING and replays.loop == plain_loops[0] and replays.loop.is_exact:
                for are_likely in (True, False):
                    yield from self._micro_batches(replays, name, are_likely=are_likely)

    def _tried(self, replays: AnswerReplays, name: str) -> Iterator[Way]:
        """Yield a policy as it is applied, and in a plain loop with segments that grow where addresses fail."""
        way = replays.tried(name)
        yield way
        if way.in_pieces:
            yield replays.growing.plain(name)

    def _grown(self, replays: AnswerReplays) -> Iterator[Way]:
        """Yield a plain loop again where it lacks nothing but pieces, in segments that grow."""
        in_pieces = any(way.in_pieces for way in self._plain() if way.loop == replays.loop)
        if in_pieces and replays.scenario.memory_model is MemoryModel.PYTORCH:
            yield replays.growing.plain(PLAIN)

    def _micro_batches(self, replays: AnswerReplays, name: str, *, are_likely: bool = True) -> Iterator[Way]:
        """Yield the fewest micro-batches with which a policy fits; where none fits, the last ones that were tried.

        The last that nearly fit are also yielded in growing segments. Nothing where an estimate says otherwise than
        `are_likely` whether any fit.
        """
        size, label = replays.workload.part_size, replays.named(name).label
        known = [way.held_bytes for way in self.done if way.policy == label and way.loop == replays.loop]
        parts = [parts for parts in range(2, size + 1) if size % parts == 0]
        held_bytes = next(filter(None, known), 0)
        if not held_bytes or not parts:
            return
        cached_bytes = cached_casts_bytes(replays.workload) if name == RECOMPUTING else 0
        most = replays.room_bytes / _MARGIN - cached_bytes
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

    def _searched(self, asked: Iterable[str]) -> Iterator[Way]:
        """Yield a search in the loop whose plain step takes least, unless that fits, with all effort that is left."""
        replays = self._least()
        search = SEARCH if replays.can_fit else STATES_ON_HOST
        may_fit = replays.can_fit or replays.held_bytes - states_bytes(replays.workload.captured) <= replays.room_bytes
        is_known = replays.named(search).label in asked and not replays.loop.changes
        if not may_fit or is_known or any(way.fits for way in self._plain() if way.loop == replays.loop):
            return
        found = replays.tried(search, steps=STEPS * max(SEARCHED, replays.budget.operations), operations=SEARCHED)
        yield found if found.untried else self._compared(found)

    def _compared(self, found: Way) -> Way:
        """Return what a search found, as not tried to the end where a policy that it would take is faster."""
        same = [way for way in self.done if way.fits and (way.loop, way.change) == (found.loop, found.change)]
        best = max(same, key=lambda way: way.samples_per_s, default=None)
        if best is None or (found.fits and found.samples_per_s >= best.samples_per_s):
            return found
        reason = f"no faster plan than that of {best.policy} was found in time"
        return replace(found, iteration_s=0.0, held_bytes=0, in_pieces=False, reason=reason, untried=True)

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
