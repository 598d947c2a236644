"""One loop, of a seed: with a plan it must be what it is without, to the bit, and leave nothing behind."""

import contextlib
import gc
import io
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from random import Random
from typing import Final, TypeAlias

import torch
from torch import nn

from calibration.apply.loop import Loop
from calibration.apply.loop_state import LoopState, StepLog
from calibration.apply.saved_storage import SavedStorage
from calibration.apply.step_hooks import StepHooks
from tests.apply.generated.drawn import Drawn, drawn_by
from tests.apply.generated.drawn_scripts import DrawnScript, difference
from tests.apply.generated.loops import WRITE, Act
from tests.apply.generated.node_order import number_nodes_apart
from tests.apply.generated.plans import Captured
from tests.apply.generated.running import REFUSED, REFUSED_TO_RECOMPUTE, Found, Running
from tests.apply.generated.trees import Tree
from tests.apply.training import alike, without
from vdnnsim.errors import InputError

Watching: TypeAlias = Callable[[Callable[[], None], Sequence[Loop]], str]
"""Runs a loop of some plans; returns what was not in order, empty where all was."""


@dataclass
class Outcome:
    """What came of a loop: `trouble` is what must not be, `refused` why there was no plan or why it went no further.

    Where it is `unrepeated`, how it differed from itself without a plan, nothing can be said of it.
    """

    trouble: str = ""
    refused: str = ""
    steps: int = 0
    departed: int = 0
    moved_bytes: int = 0
    remade: int = 0
    has_states: bool = False
    unrepeated: str = ""
    reasons: list[str] = field(default_factory=list)

    def count(self, logs: Sequence[StepLog]) -> None:
        """Count what steps did."""
        self.steps = len(logs)
        self.reasons = [each.departure for each in logs if each.departure]
        self.departed = len(self.reasons)
        self.moved_bytes = sum(each.fetched_bytes for each in logs)
        self.remade = sum(what == "recompute" for each in logs for what, _ in each.order)

    @property
    def counts(self) -> Counter[str]:
        """What it adds to a table of many."""
        if self.trouble:
            came = "loops in trouble"
        elif self.unrepeated:
            came = "loops that PyTorch does not repeat"
        else:
            came = "loops refused" if self.refused else "loops the same to the bit"
        found = Counter({came: 1, "steps": self.steps, "steps that left the plan": self.departed})
        found["loops that moved something"] = bool(self.moved_bytes)
        found["loops that recomputed something"] = bool(self.remade)
        found["loops with states on the host"] = self.has_states
        return found


class Noted(StepHooks):
    """A step that can be counted while it lives."""

    steps: Final = weakref.WeakSet[StepHooks]()
    storages: Final = weakref.WeakSet[SavedStorage]()

    def __init__(self, loop: LoopState, model: nn.Module) -> None:
        super().__init__(loop, model)
        self.steps.add(self)

    def _new(self, number: int, live: torch.UntypedStorage) -> SavedStorage:
        held = super()._new(number, live)
        self.storages.add(held)
        return held


def judged(seeds: Sequence[int]) -> list[tuple[int, Outcome]]:
    """Judge the loops of seeds, which share models."""
    torch.set_num_threads(1)
    return [(seed, judge(drawn_by(seed))) for seed in seeds]


def _unwatched(work: Callable[[], None], _: Sequence[Loop]) -> str:
    work()
    return ""


def judge(drawn: Drawn | DrawnScript, watching: Watching = _unwatched) -> Outcome:
    """Run a loop or a script with its plan and without."""
    outcome = Outcome()
    try:
        with contextlib.redirect_stderr(io.StringIO()), _without_collector():
            if isinstance(drawn, DrawnScript):
                _judge_script(drawn, outcome)
            else:
                _judge(drawn, outcome, watching)
    except InputError as error:
        outcome.refused = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  # whatever it is, it must not be
        outcome.trouble = traceback.format_exc(limit=-6)
    return outcome


def _judge(drawn: Drawn, outcome: Outcome, watching: Watching) -> None:
    number_nodes_apart(drawn.device)
    model, captured = _captured(drawn.tree, drawn.device, drawn.samples, narrow=drawn.narrow)
    expected = _plain(drawn)
    if drawn.plan.startswith("by lot"):
        loop = captured.by_lot(Random(drawn.plan))  # noqa: S311
    else:
        loop = captured.by_policy(drawn.plan, drawn.share)
    loops = [loop, Loop(loop.schedule, loop.device, loop.reservation)] if drawn.apart else [loop]
    for each in loops:
        each.make_hooks = Noted

    def rest() -> None:
        for each in loops:
            each.unpin()

    # Of a loop that was refused in backward PyTorch keeps the rest until the next one of its thread.
    Noted.steps.clear()
    Noted.storages.clear()
    before = _allocated_bytes(drawn.device)
    running = Running(model, [loops[0].apply, loops[-1].apply], rest, narrow=drawn.narrow, samples=drawn.samples)
    hazards = ""
    outcome.has_states = any(loop.schedule.states.values())
    if outcome.has_states:
        running.stream([each.stream for each in loops])
    try:
        hazards = watching(partial(running.run, drawn.acts), loops)
    finally:
        found = running.found
        del running
        _compare(drawn, expected, found, outcome)
        outcome.count([log for each in loops for log in each.steps])
    if "differ" in outcome.trouble:
        again = Outcome()
        _compare(drawn, expected, _plain(drawn), again)
        if again.trouble:
            # As `rrelu` at the end of a checkpoint, whose noise PyTorch leaves as the memory was.
            outcome.trouble, outcome.unrepeated = "", again.trouble
    if not outcome.trouble:
        outcome.trouble = hazards or _left_behind(loops, drawn.device, before)


def _judge_script(drawn: DrawnScript, outcome: Outcome) -> None:
    number_nodes_apart("cpu")
    expected = drawn.run(drawn.trained())
    found, script, outcome.refused = drawn.planned()
    outcome.count([log for each in script.plans for log in each.loop.steps])
    if not found:
        return
    outcome.trouble = difference(expected, found)
    if ": another call, refused" in outcome.trouble and "to recompute a part of forward" in outcome.trouble:
        # Models may write buffers at each call, which the plan's recomputations have read.
        outcome.refused, outcome.trouble = outcome.trouble, ""
    elif outcome.trouble:
        outcome.unrepeated = difference(expected, drawn.run(drawn.trained()))
        outcome.trouble *= not outcome.unrepeated


def _left_behind(loops: list[Loop], device: str, before: int) -> str:
    steps, storages = len(Noted.steps), len(Noted.storages)
    gc.collect()
    later = len(Noted.steps), len(Noted.storages)
    for each in loops:
        each.unpin()
    pinned = sum(each.arena.nbytes for each in loops)
    most = sum(bool(each.steps) for each in loops)
    if later[0] > most or later[1]:
        return f"grows: {later[0]} steps and {later[1]} storages live on behind {most} loops"
    if steps > most or storages:
        return f"grows until the collector comes: {steps} steps and {storages} storages live on behind {most} loops"
    if pinned:
        return f"grows: {pinned} bytes of pinned memory are in use, and nothing lives"
    more = _allocated_bytes(device) - before
    return f"grows: {more} bytes of the GPU" if more > 0 else ""


def _allocated_bytes(device: str) -> int:
    """Return what is allocated on a GPU beside workspaces of cuBLAS.

    PyTorch keeps one for each thread and stream that has multiplied, and there may be the first of cuBLASLt (1 MiB in
    PyTorch 2.11) in the thread of backward, which multiplies and adds a bias only where it recomputes.
    """
    if device == "cpu":
        return 0
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # there is no public way
    return torch.cuda.memory_allocated()


def _compare(drawn: Drawn, expected: Found, found: Found, outcome: Outcome) -> None:
    """Say where a loop first left something else behind; of one that was refused, up to there."""
    for at, ((label, tensors), (also, others)) in enumerate(zip(expected, found, strict=False)):
        if (
            also.endswith(REFUSED_TO_RECOMPUTE)
            and not label.endswith(REFUSED)
            and _was_written(drawn.acts[: at + 1], drawn.tree)
        ):
            outcome.refused = f"act {at}: {also}"
            return
        if label != also.replace(REFUSED_TO_RECOMPUTE, REFUSED):
            outcome.trouble = f"act {at}: {also}, expected {label}"
            return
        which = [
            number for number, pair in enumerate(zip(tensors, others, strict=True)) if not alike(pair[:1], pair[1:])
        ]
        if which:
            one, other = (each[which[0]].flatten()[:4].tolist() for each in (tensors, others))
            outcome.trouble = f"act {at}: {label}: tensors {which} of {len(tensors)} differ: {other}, expected {one}"
            return


def _was_written(acts: Sequence[Act], tree: Tree) -> bool:
    """Whether something may have been written since forward that backward of the last act goes through.

    PyTorch does not mind if backward does not read it; what recomputes forward does. The buffer of "centred" is written
    by each forward, which a checkpoint runs in backward as well.
    """
    names = acts[-1].names
    begin = next((at for at, each in enumerate(acts) if each.verb == "forward" and each.names[0] in names), len(acts))
    return any(
        each.how == "an output written over" or (at and (each.verb in WRITE or "centred" in str(tree)))
        for at, each in enumerate(acts[begin:-1])
    )


@lru_cache(maxsize=8)
def _captured(tree: Tree, device: str, samples: int, *, narrow: bool) -> tuple[nn.Module, Captured]:
    torch.manual_seed(0)
    model = tree.module().to(device)
    captured = Captured(model, narrow, samples)
    assert captured.asked.tape.saves
    # What is there now is collected when the next model comes, and not behind each loop.
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    return model, captured


def _plain(drawn: Drawn) -> Found:
    model, _ = _captured(drawn.tree, drawn.device, drawn.samples, narrow=drawn.narrow)
    running = Running(model, [without, without], lambda: None, narrow=drawn.narrow, samples=drawn.samples)
    running.run(drawn.acts)
    return running.found


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
