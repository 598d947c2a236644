"""A loop does what its plan predicts, operation by operation."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from unittest import mock

import pytest
import torch

from calibration.apply.loop import Loop
from calibration.apply.recipe import Recipe
from calibration.apply.saved_storage import SavedStorage
from calibration.apply.step_hooks import StepHooks
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS
from tests.apply.training import planned, requested, train
from vdnnsim.plans.operations import Compute, Offload, Prefetch, RecordEvent, Stream, WaitEvent
from vdnnsim.plans.training_plan import TrainingPlan

Done = tuple[int, str, int]
"""Operations issued before, what is done, and to which storage or operation."""


def predicted(plan: TrainingPlan) -> list[Done]:
    """Return the begin of copies, waits of the compute stream for them, and recomputed operations of a plan."""
    step = plan.workload.step
    found, issued = list[Done](), 0
    ends: dict[int, tuple[str, int]] = {}
    last = "", 0
    for operation in plan.operations:
        match operation:
            case Compute(layer=layer, phase=phase, operation=which, repeat=repeat):
                number = step.numbers_of(layer, phase)[which]
                if repeat:
                    found.append((issued, "recompute", number))
                else:
                    issued = number + 1
            case Offload(buffer=buffer) | Prefetch(buffer=buffer):
                storage = plan.buffers[buffer].storage
                assert storage is not None
                last = ("offload" if isinstance(operation, Offload) else "prefetch"), storage
                found.append((issued, *last))
            case RecordEvent(event=event, stream=Stream.MEMORY):
                ends[event] = last
            case WaitEvent(event=event, stream=Stream.COMPUTE):
                what, storage = ends[event]
                found.append((issued, f"wait for {what}", storage))
            case _:
                pass
    return found


class Watched(StepHooks):
    def __init__(self, loop: Loop, *others: object) -> None:
        super().__init__(loop, *others)  # type: ignore[arg-type]
        self.done: list[Done] = []

    @property
    def issued(self) -> int:
        return self._schedule.issued[max(0, self._next_point - 1)]

    def number_of(self, recipe: Recipe) -> int:
        assert self._watch is not None
        return next(number for number, each in self._watch.recipes.items() if each is recipe)


@contextmanager
def watching(loop: Loop) -> Iterator[list[Watched]]:
    """Patch a loop so that its steps log what they do; yields them."""
    steps: list[Watched] = []

    def make_hooks(*of: object) -> Watched:
        steps.append(Watched(*of))  # type: ignore[arg-type]
        return steps[-1]

    def note(what: str, number: int) -> None:
        steps[-1].done.append((steps[-1].issued, what, number))

    def offloads(held: SavedStorage, extent: range, offset: int) -> bool:
        is_done = offload(held, extent, offset)
        if is_done:
            note("offload", held.number)
        return is_done

    def prefetches(held: SavedStorage, extent: range) -> bool:
        is_done = prefetch(held, extent)
        if is_done:
            note("prefetch", held.number)
        return is_done

    def waits(held: SavedStorage, marks: list[object]) -> None:
        if marks:
            note("wait for offload" if marks is held._offloads else "wait for prefetch", held.number)  # noqa: SLF001
        wait(held, marks)

    def runs(recipe: Recipe) -> None:
        number = steps[-1].number_of(recipe)
        run(recipe)
        note("recompute", number)

    offload, prefetch, wait, run = SavedStorage.offload, SavedStorage.prefetch, SavedStorage._wait, Recipe.run  # noqa: SLF001
    with ExitStack() as stack:
        for owner, name, other in (
            (SavedStorage, "offload", offloads),
            (SavedStorage, "prefetch", prefetches),
            (SavedStorage, "_wait", waits),
            (Recipe, "run", runs),
            (loop, "make_hooks", make_hooks),
        ):
            stack.enter_context(mock.patch.object(owner, name, other))
        yield steps


QUICK = {
    ("convolutional", "checkpoint"),
    ("convolutional", "mixed"),
    ("in place", "mixed"),
    ("attention", "mixed"),
    ("saved between", "save_on_cpu"),
}
"""Those with running statistics, in-place writes, and both prefetched and recomputed storages."""


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.thorough)
        for each in ((name, policy) for name in MODELS for policy in ("save_on_cpu", "checkpoint", "mixed"))
    ],
)
def test_a_loop_does_what_its_plan_predicts(name: str, policy: str) -> None:
    case = MODELS[name]
    model = case.make_model()
    with known_as_mixed():
        made = planned(case, model, policy)
    with watching(made.loop) as steps:
        train(case, model, [case.make_inputs()], made.apply)
    assert {each.departure for each in made.loop.steps} == {""}
    (step,) = steps
    assert in_order(step.done) == in_order(predicted(made.predicted.trace.plan))


def in_order(done: list[Done]) -> list[Done]:
    groups = groupby(done, key=lambda each: (each[0], each[1].startswith("wait")))
    return [each for (_, waits), group in groups for each in (sorted(group) if waits else group)]


def test_a_loop_that_saves_less_is_on_time() -> None:
    """As that of a gradient scaler, which multiplies once less: the actions of points that it skips are not late.

    So a prefetch has begun when backward unpacks what it brings.
    """
    case = MODELS["perceptron"]
    model, factor = case.make_model(), torch.ones(())
    asked = (model, case.make_inputs(), "save_on_cpu")
    made = requested(*asked, loss=lambda output: case.loss(output) * factor).planned()
    train(case, model, [case.make_inputs()], made.apply)
    (step,) = made.loop.steps
    assert (step.departure, step.on_demand) == ("", [])
    assert step.fetched_bytes == made.loop.schedule.offloaded_bytes > 0


def test_operations_of_the_loss_are_not_recomputed() -> None:
    """A loop watches forward of the model alone."""
    case = MODELS["perceptron"]
    model = case.make_model()
    with known_as_mixed():
        made = planned(case, model, "mixed")
    again = [number for _, what, number in predicted(made.predicted.trace.plan) if what == "recompute"]
    of_model = made.loop.schedule.tape.of_model
    assert len(of_model) < len(made.loop.schedule.captured.operations)
    assert of_model.issuperset(again)
