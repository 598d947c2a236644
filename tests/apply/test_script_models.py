"""Scripts that train several models, with a plan for each."""

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.nn import functional

from calibration.apply.recorded_loss import DownstreamLoss
from calibration.apply.script_models import ScriptModels, TrainedModel, train_separately
from calibration.capture.schemas import OperatorMode, name_of, tensors_in
from tests.apply.models import backward
from tests.apply.scripts import Watched, watched
from tests.apply.training import alike
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

Losses = list[Tensor]


class Pair:
    """A generator and a discriminator, with an optimizer each."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 16))
        self.discriminator = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 1))
        self.optimizers = [
            torch.optim.Adam(each.parameters(), lr=0.01) for each in (self.generator, self.discriminator)
        ]

    def judged(self, batch: Tensor, wanted: float) -> Tensor:
        output = self.discriminator(batch)
        return functional.binary_cross_entropy_with_logits(output, torch.full_like(output, wanted))

    def update(self, at: int) -> None:
        self.optimizers[at].step()
        for each in self.optimizers:
            each.zero_grad()


def discriminator_first(pair: Pair) -> Losses:
    """As in PyTorch's tutorial: the generator's forward is used for both."""
    made = [pair.judged(torch.randn(8, 16), 1)]
    backward(made[0])
    fake = pair.generator(torch.randn(8, 4))
    made.append(pair.judged(fake.detach(), 0))
    backward(made[1])
    pair.update(1)
    made.append(pair.judged(fake, 1))
    backward(made[2])
    pair.update(0)
    return made


def generator_first(pair: Pair) -> Losses:
    fake = pair.generator(torch.randn(8, 4))
    made = [pair.judged(fake, 1)]
    backward(made[0])
    pair.update(0)
    for batch, wanted in ((torch.randn(8, 16), 1), (fake.detach(), 0)):
        made.append(pair.judged(batch, wanted))
        backward(made[-1])
    pair.update(1)
    return made


def discriminator_frozen(pair: Pair) -> Losses:
    with torch.no_grad():
        fake = pair.generator(torch.randn(8, 4))
    made = [pair.judged(fake, 0)]
    backward(made[0])
    pair.update(1)
    pair.discriminator.requires_grad_(requires_grad=False)
    made.append(pair.judged(pair.generator(torch.randn(8, 4)), 1))
    backward(made[1])
    pair.discriminator.requires_grad_(requires_grad=True)
    pair.update(0)
    return made


def run(loop: Callable[[Pair], Losses]) -> tuple[Losses, Pair]:
    pair = Pair()
    found = [each.detach().clone() for _ in range(4) for each in loop(pair)]
    models = pair.generator, pair.discriminator
    return found + [each.detach() for model in models for each in (*model.parameters(), *model.buffers())], pair


def planned_for(script: Watched, model: nn.Module) -> Any:  # noqa: ANN401
    inputs = next(iter(model.parameters())).shape[1]
    return next(each for each in script.plans if each.loop.schedule.captured.storages[0].nbytes == 4 * 32 * inputs)


@pytest.mark.parametrize("loop", [discriminator_first, generator_first, discriminator_frozen])
def test_each_model_has_a_plan(loop: Callable[[Pair], Losses]) -> None:
    """Of four iterations the first finds both models; three generate by plan.

    A linear layer saves its weights where its input has a gradient, so the discriminator leaves its plan on generated
    batches, and follows it on others.
    """
    expected = run(loop)[0]
    with watched() as script, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, pair = run(loop)
    assert alike(expected, found)
    assert [each.startswith("Sequential, one of 2 models:") for each in script.said] == [True, False] * 2
    outer, inner = (planned_for(script, each).loop for each in (pair.generator, pair.discriminator))
    assert [each.departure for each in outer.steps] == [""] * 3
    left = [bool(each.departure) for each in inner.steps]
    assert sum(left) == (0 if loop is discriminator_frozen else 3)
    assert left.count(False) >= (3 if loop is discriminator_frozen else 6)
    assert {each.offloaded_bytes for each in outer.steps} == {outer.schedule.offloaded_bytes}
    assert outer.schedule.offloaded_bytes > 0
    assert len(said) == any(left)
    assert script.script.missed == ""


def trained(saved_bytes: int) -> TrainedModel:
    return TrainedModel(nn.Linear(2, 2), DownstreamLoss(), Precision.FLOAT32, [], saved_bytes)


class Made:
    def __init__(self, own_bytes: int) -> None:
        self.own_bytes = own_bytes

    def apply(self, model: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext(model)

    def end(self) -> int:
        return 0


def test_shares_of_memory_and_order_of_plans() -> None:
    """An outer model saved 30 bytes, others 10 and 90: it may keep 30 of 40 and of 120.

    It is planned last, with at most 7 bytes taken between its forward and backward.
    """
    outer, small, large = each = trained(30), trained(10), trained(90)
    models = ScriptModels()
    for one in each:
        models[id(one.model)] = one
    models.note_outer([outer.model])
    assert [models.part_of_others(one) for one in each] == [0, 0.75, 0.25]
    assert [models.is_time(one, is_pending=False) for one in each] == [False, True, True]
    assert not models.is_time(small, is_pending=True)
    small.applied, large.applied = Made(7), Made(3)
    assert models.is_time(outer, is_pending=True)
    assert [models.taken_between(one) for one in each] == [7, 0, 0]
    assert not models.is_settled
    models.waited = 16
    assert models.is_settled


def test_models_train_separately_with_an_optimizer_each() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    assert not train_separately([one, other])
    own = [torch.optim.SGD(each.parameters()) for each in (one, other)]
    assert train_separately([one, other])
    assert not train_separately([one])
    assert not train_separately([one, one])
    del own
    both = torch.optim.SGD([*one.parameters(), *other.parameters()])
    assert not train_separately([one, other])
    assert len(both.param_groups) == 1


def test_downstream_loss() -> None:
    """100 bytes of others, and the sum of outputs with gradients, 3 and 2 ones."""
    output = [torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(1)]
    taken: list[int] = []

    class Noting(OperatorMode):  # type: ignore[no-untyped-call]
        def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
            made = func(*args, **kwargs)
            taken.extend(each.nbytes for each in tensors_in(made) if name_of(func) == "zeros")
            return made

    with Noting():
        total = DownstreamLoss(100)(output)
    assert total.item() == 5
    assert taken == [100]
    with pytest.raises(CaptureError, match="nothing of it has gradients"):
        DownstreamLoss()(torch.ones(3))


def test_a_model_that_begins_after_the_first_plan_is_said_to_have_none() -> None:
    """Its optimizer is made with it, so that nothing waits for it; the line is said once of its three updates."""
    with watched() as script:
        for model in (nn.Linear(4, 2), nn.Linear(4, 2)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                backward(model(torch.randn(8, 4)).square().mean())
                optimizer.step()
                optimizer.zero_grad()
    assert len(script.plans) == 1
    (said,) = script.said[1:]
    assert said.startswith("SGD updates 2 parameters of a model that has no plan")
