"""A loop with a plan computes, to the bit, what it computes without, and moves exactly what was planned."""

import pytest
import torch

from calibration.apply.recipe import generator_of
from tests.apply.__main__ import FROM, cases_of
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS
from tests.apply.training import Outcome, alike, asked, compare, planned, train
from vdnnsim.plans.operations import Compute, Offload, Prefetch


def test_what_lies_on_another_device_than_the_model_stays_there() -> None:
    """As the state of a dropout, which attention leaves on the host beside a model on a GPU.

    Told that the model is on a device of a kind of its own, a loop on the CPU finds all that it saves elsewhere.
    """
    case = MODELS["perceptron"]
    torch.manual_seed(0)
    model, batches = case.make_model(), [case.make_inputs()]
    made = planned(case, model, "save_on_cpu")
    made.loop.device = torch.device("meta")
    assert alike(train(case, model, batches), train(case, model, batches, made.apply))
    assert made.loop.agenda.offloaded_bytes > 0
    assert [each.offloaded_bytes for each in made.loop.steps] == [0]


GPUS = [torch.Generator() for _ in range(3)]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (([3],), {}, torch.default_generator),
        (([3],), {"device": torch.device("cuda", 1)}, GPUS[1]),
        ((torch.zeros(2),), {"device": torch.device("cuda")}, GPUS[2]),
        ((torch.zeros(2), 0.5), {}, torch.default_generator),
        ((torch.zeros(2), 0.5), {"generator": GPUS[0], "device": torch.device("cuda", 1)}, GPUS[0]),
    ],
)
def test_random_numbers_come_from_where_the_operation_draws_them(
    args: tuple[object, ...],
    kwargs: dict[str, object],
    expected: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A generator that is given, else that of the device where results are asked for, or of the tensors that are given.

    "cuda" alone is the current GPU, here the third.
    """
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(GPUS))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert generator_of(args, kwargs) is expected


def held(outcome: Outcome) -> Outcome:
    """Hold a loop to its plan."""
    assert outcome.departure == ""
    assert outcome.is_same
    assert outcome.is_moved
    return outcome


ELSEWHERE = {"perceptron", "lstm", "tied", "frozen", "drawn"}
"""Models of which other tests move as much, or others here as theirs."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.thorough) if each in ELSEWHERE else each for each in MODELS]
)
def test_what_leaves_changes_no_bit(name: str) -> None:
    """Losses, gradients, buffers and weights of three steps are the same; planned bytes are moved, there and back."""
    assert held(compare(MODELS[name], "save_on_cpu")).offloaded_bytes > 0


OTHERS = {"perceptron", "views", "tied", "lstm", "checkpointed", "frozen"}
"""Models whose checkpoints are of the kinds of others."""


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.thorough) if each in OTHERS else each for each in MODELS]
)
def test_what_is_computed_again_changes_no_bit(name: str) -> None:
    """As above; random numbers are drawn again, running statistics are updated once.

    "drawn" draws from a generator of its own, whose state is another when backward asks for the numbers.
    """
    held(compare(MODELS[name], "checkpoint"))


BOTH = {"convolutional"}
"""The one whose running statistics are updated and whose random numbers are drawn again."""


@pytest.mark.parametrize(
    "name", [each if each in BOTH else pytest.param(each, marks=pytest.mark.thorough) for each in MODELS]
)
def test_leaving_and_computing_again_together(name: str) -> None:
    """What is computed again reads what has left, and the other way round."""
    with known_as_mixed():
        outcome = held(compare(MODELS[name], "mixed"))
    assert outcome.remade
    assert outcome.moved or name not in BOTH


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FROM)
def test_models_of_libraries(family: str) -> None:
    """What `python -m tests.apply` writes of them: both together."""
    pytest.importorskip(family)
    with known_as_mixed():
        for case in cases_of(family):
            held(compare(case, "mixed"))


@pytest.mark.parametrize("name", ["convolutional", "attention"])
def test_what_is_promised_is_of_the_loop(name: str) -> None:
    """The plan whose time and memory are promised has the copies of the loop in their order, and what it runs again."""
    case = MODELS[name]
    model = case.make_model()
    with known_as_mixed():
        made = planned(case, model, "mixed")
    train(case, model, [case.make_inputs()], made.apply)
    (step,) = made.loop.steps
    plan = made.predicted.trace.plan
    moves = [each for each in plan.operations if isinstance(each, Offload | Prefetch)]
    copies = [("leave" if isinstance(each, Offload) else "come", plan.buffers[each.buffer].storage) for each in moves]
    assert [each for each in step.order if each[0] in ("leave", "come")] == copies
    again = {
        each for kernel in plan.operations if isinstance(kernel, Compute) and kernel.repeat for each in kernel.writes
    }
    assert made.loop.agenda.remade <= {plan.buffers[each].storage for each in again}


def test_weights_in_one_piece_are_planned_as_one() -> None:
    """As cuDNN has those of a recurrent layer: a matrix of 32 x 16 and 32 numbers beside it, 4 B each."""
    case = MODELS["perceptron"]
    model = case.make_model()
    first = model.get_submodule("0")
    piece = torch.zeros(32 * 16 + 32)
    first.weight.data, first.bias.data = piece[:512].view(32, 16), piece[512:]
    storages = asked(case, model, "pytorch").captured.storages
    assert [each.nbytes for each in storages if each.name == "0.weight"] == [4 * (512 + 32)]
    assert not any(each.name == "0.bias" for each in storages)
