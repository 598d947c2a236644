"""A loop does what its plan predicts, operation by operation."""

from itertools import groupby

import pytest

from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS
from tests.apply.order import Done, predicted, watching
from tests.apply.training import planned, train

QUICK = {
    ("convolutional", "checkpoint"),
    ("convolutional", "mixed"),
    ("in place", "mixed"),
    ("attention", "mixed"),
    ("saved between", "save_on_cpu"),
}
"""Statistics updated once, writes in place, results that are prefetched and recomputed; the others are alike."""


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.thorough)
        for each in ((name, policy) for name in MODELS for policy in ("save_on_cpu", "checkpoint", "mixed"))
    ],
)
def test_a_loop_does_what_its_plan_predicts(name: str, policy: str) -> None:
    """Each copy begins, each wait stands and each operation runs again between the same operations of the program."""
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
    """Return it with waits that stand beside each other sorted: a wait for several copies is one for the last."""
    groups = groupby(done, key=lambda each: (each[0], each[1].startswith("wait")))
    return [each for (_, waits), group in groups for each in (sorted(group) if waits else group)]


def test_operations_of_the_loss_are_not_recomputed() -> None:
    """A loop watches forward of the model alone, and keeps what its loss makes: squares, their sum, and the mean."""
    case = MODELS["perceptron"]
    model = case.make_model()
    with known_as_mixed():
        made = planned(case, model, "mixed")
    again = [number for _, what, number in predicted(made.predicted.trace.plan) if what == "recompute"]
    of_model = made.loop.schedule.tape.of_model
    assert of_model < len(made.loop.schedule.captured.operations)
    assert all(number < of_model for number in again)
