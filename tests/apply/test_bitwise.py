"""A loop with a plan has the same bits as without, and moves the planned bytes."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from calibration.apply.recipe import generator_of
from calibration.capture.program import Arguments
from reports.capture.case import Case
from tests.apply.__main__ import FROM, cases_of
from tests.apply.generated.blocks import Halved
from tests.apply.generated.drawn import Drawn
from tests.apply.generated.judging import judge
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS, Function, Network, image, loss, rows
from tests.apply.training import Outcome, alike, compare, planned, request_of, train


def test_a_tensor_on_another_device_than_the_model_is_not_moved() -> None:
    """As attention's dropout state on the host. The loop takes the model to be on `meta`, all it saves is elsewhere."""
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
def test_generator_of_an_operation(
    args: tuple[object, ...],
    kwargs: dict[str, object],
    expected: torch.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The generator given, else that of the device given or of the tensors; "cuda" is the current GPU, the third."""
    monkeypatch.setattr(torch.cuda, "default_generators", tuple(GPUS))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert generator_of(args, kwargs) is expected


def held(outcome: Outcome) -> Outcome:
    assert outcome.departure == ""
    assert outcome.is_same
    assert outcome.is_moved
    return outcome


QUICK = {
    "mixed": {"convolutional"},
    "save_on_cpu": set(MODELS) - {"perceptron", "lstm", "tied", "frozen", "drawn", "variational"},
    "checkpoint": set(MODELS) - {"perceptron", "views", "tied", "lstm", "checkpointed", "frozen"},
}
"""By policy the models that are unlike others."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        pytest.param(policy, name, marks=() if name in QUICK[policy] else pytest.mark.thorough)
        for policy in QUICK
        for name in sorted(MODELS, key=lambda each: each not in QUICK["mixed"])
    ],
)
def test_a_plan_changes_no_bit(policy: str, name: str) -> None:
    """Random numbers repeat, running statistics are updated once; in "mixed" recomputation reads what was offloaded."""
    with known_as_mixed():
        outcome = held(compare(MODELS[name], policy))
    assert outcome.offloaded_bytes > 0 or policy != "save_on_cpu"
    assert outcome.remade or policy != "mixed"
    assert outcome.moved or (policy, name) != ("mixed", "convolutional")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FROM)
def test_models_of_libraries(family: str) -> None:
    pytest.importorskip(family)
    with known_as_mixed():
        for case in cases_of(family):
            held(compare(case, "mixed"))


def test_parameters_that_share_a_storage() -> None:
    """As those of cuDNN's recurrent layers: 32 x 16 weights and 32 biases in float32."""
    case = MODELS["perceptron"]
    model = case.make_model()
    first = model.get_submodule("0")
    piece = torch.zeros(32 * 16 + 32)
    first.weight.data, first.bias.data = piece[:512].view(32, 16), piece[512:]
    storages = request_of(case, model, "pytorch").captured.storages
    assert [each.nbytes for each in storages if each.name == "0.weight"] == [4 * (512 + 32)]
    assert not any(each.name == "0.bias" for each in storages)


class Writing(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = Halved.apply(hidden + 1)  # type: ignore[no-untyped-call]
        return result


def inputs() -> Arguments:
    return (rows(),), {}


@pytest.mark.parametrize("part", [nn.RReLU, Writing])
def test_writes_are_counted_as_pytorch_counts_them(part: type[nn.Module]) -> None:
    """`rrelu_with_noise` writes noise without a new version; `mark_dirty` makes a version that no operation made."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(16, 16), part(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))

    outcome = compare(Case(part.__name__, "own", make, inputs, loss, "sgd"), "checkpoint")
    assert outcome.is_right
    assert outcome.remade > 0


def test_hooks_of_the_user_on_the_model_are_of_its_forward() -> None:
    def make() -> nn.Module:
        model = MODELS["convolutional"].make_model()
        model.register_forward_pre_hook(lambda _, args: (args[0].sin(),))
        model.register_forward_hook(lambda _, __, result: result.tanh())
        return model

    assert held(compare(replace(MODELS["convolutional"], name="hooked", make_model=make), "checkpoint")).remade


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
def test_parts_in_evaluation_mode_are_planned_so(policy: str) -> None:
    """Frozen batch normalizations save no statistics of a batch, and write none."""

    def make() -> nn.Module:
        model = MODELS["convolutional"].make_model()
        for each in model.modules():
            each.train(not isinstance(each, nn.BatchNorm2d))
        return model

    held(compare(replace(MODELS["convolutional"], name="frozen normalization", make_model=make), policy))


def _under_own_settings(self: Network, batch: Tensor) -> Network:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.backends.mkldnn.flags(enabled=False):
            hidden = self.second(functional.gelu(self.first(batch))) * torch.linspace(0.1, 1, 8).float()
    finally:
        torch.set_default_dtype(torch.float32)
    return self.last(functional.gelu(hidden).flatten(1))


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # of PyTorch's own context
def test_recomputation_has_the_settings_of_forward() -> None:
    """Without oneDNN a convolution is rounded otherwise, and so are numbers that are made in double precision."""

    def make() -> nn.Module:
        first, second = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        return Function(_under_own_settings, first=first, second=second, last=nn.Linear(192, 3))

    outcome = held(compare(Case("settings", "own", make, lambda: ((image(),), {}), loss, "sgd"), "checkpoint"))
    assert outcome.remade > 0
    assert torch.get_default_dtype() is torch.float32
    assert torch._C._get_mkldnn_enabled()  # noqa: SLF001 - the public one has no type


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(10103, id="LSTM under a reentrant checkpoint: oneDNN rounds by grad mode"),
        pytest.param(12041, id="in-place function under a checkpoint, before an early recomputation"),
        pytest.param(16579, id="noise under a checkpoint: saved and never unpacked"),
        pytest.param(18081, id="module with a counter, run twice"),
        pytest.param(5000258, id="in-place operation that has yet to run again reads what was recomputed early"),
    ],
)
def test_drawn_loops_that_once_failed(seed: int) -> None:
    outcome = judge(Drawn.of(seed))
    assert not outcome.trouble
    assert not outcome.refused
    assert outcome.remade


def test_a_layer_whose_backward_another_layer_runs_is_planned() -> None:
    """Loop 18040 unpacks the statistics of a normalization in backward of the layer before it."""
    assert not judge(Drawn.of(18040)).trouble
    # In drawn loop 1,000,288 forward of a second step writes the mean that a module of the first subtracted. Of what
    # leads there a part can still run early, which is kept until the rest asks for it.
    outcome = judge(Drawn.of(1_000_288))
    assert not outcome.trouble
    assert outcome.refused.endswith("refused for what is recomputed")
