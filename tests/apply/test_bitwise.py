"""A loop with a plan computes, to the bit, what it computes without, and moves exactly what was planned."""

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.recipe import generator_of
from calibration.capture.program import Arguments
from tests.apply.__main__ import FROM, cases_of
from tests.apply.generated.blocks import Halved
from tests.apply.generated.judging import Drawn, judge
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS, loss, rows
from tests.apply.training import Outcome, alike, asked, compare, planned, train
from tests.capture_zoo.case import Case


def test_a_tensor_on_another_device_than_the_model_is_not_moved() -> None:
    """As the state of a dropout, which attention leaves on the host beside a model on a GPU.

    Told that the model is on a device of a kind of its own, a loop on the CPU finds all that it saves elsewhere.
    """
    case = MODELS["perceptron"]
    torch.manual_seed(0)
    model, batches = case.make_model(), [case.make_inputs()]
    made = planned(case, model, "save_on_cpu")
    made.loop.device = torch.device("meta")
    assert alike(train(case, model, batches), train(case, model, batches, made.apply))
    assert made.loop.schedule.offloaded_bytes > 0
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


QUICK = {
    "mixed": {"convolutional"},
    "save_on_cpu": set(MODELS) - {"perceptron", "lstm", "tied", "frozen", "drawn"},
    "checkpoint": set(MODELS) - {"perceptron", "views", "tied", "lstm", "checkpointed", "frozen"},
}
"""By policy the models that are not like others here, or in other tests."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        pytest.param(policy, name, marks=() if name in QUICK[policy] else pytest.mark.thorough)
        for policy in QUICK
        for name in sorted(MODELS, key=lambda each: each not in QUICK["mixed"])
    ],
)
def test_a_plan_changes_no_bit(policy: str, name: str) -> None:
    """Losses, gradients, buffers and weights of three steps are the same; planned bytes are moved, there and back.

    Random numbers are drawn again, from a generator of its own in "drawn"; running statistics are updated once. Under
    "mixed" what is recomputed reads what was offloaded, and the other way round.
    """
    with known_as_mixed():
        outcome = held(compare(MODELS[name], policy))
    assert outcome.offloaded_bytes > 0 or policy != "save_on_cpu"
    assert outcome.remade or policy != "mixed"
    assert outcome.moved or (policy, name) != ("mixed", "convolutional")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FROM)
def test_models_of_libraries(family: str) -> None:
    """What `python -m tests.apply` writes of them: both together."""
    pytest.importorskip(family)
    with known_as_mixed():
        for case in cases_of(family):
            held(compare(case, "mixed"))


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


class Writing(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        """Write a copy over."""
        result: Tensor = Halved.apply(hidden + 1)  # type: ignore[no-untyped-call]
        return result


def inputs() -> Arguments:
    return (rows(),), {}


@pytest.mark.parametrize("part", [nn.RReLU, Writing])
def test_writes_are_counted_as_pytorch_counts_them(part: type[nn.Module]) -> None:
    """The noise of `rrelu_with_noise` is written and not counted; `mark_dirty` counts what no operation wrote.

    Each is within the segment that is recomputed, and neither is refused.
    """

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), part(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))

    outcome = compare(Case(part.__name__, "own", make, inputs, loss, "sgd"), "checkpoint")
    assert outcome.is_right
    assert outcome.remade > 0


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10103, id="an LSTM under a reentrant checkpoint, where oneDNN rounds by grad mode"),
        pytest.param(12041, id="a function that writes its input, under a checkpoint, before what is recomputed early"),
        pytest.param(16579, id="noise under a checkpoint: saved in forward, and never unpacked"),
        pytest.param(18081, id="a module that counts, run twice"),
    ],
)
def test_drawn_loops_that_were_in_trouble_have_the_same_bits(seed: int) -> None:
    """Of 10,000 from seed 10,000 on, one of each kind that had other bits or ended with an error."""
    outcome = judge(Drawn.of(seed))
    assert not outcome.trouble
    assert not outcome.refused
    assert outcome.remade


def test_a_layer_whose_backward_another_layer_runs_is_planned() -> None:
    """In drawn loop 18040 statistics of a normalization are unpacked in backward of the layer before it."""
    assert not judge(Drawn.of(18040)).trouble


def test_a_buffer_that_was_written_since_is_refused_where_it_is_needed_again() -> None:
    """In drawn loop 1,000,288 forward of a second step writes the mean that a module of the first subtracted.

    Of what leads there a part can still run early, which is kept until the rest asks for it.
    """
    outcome = judge(Drawn.of(1_000_288))
    assert not outcome.trouble
    assert outcome.refused.endswith("refused for what is recomputed")
