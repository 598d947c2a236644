"""Scripts whose loss is made by several calls, or of what models keep and of parameters."""

import gc
import warnings
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from calibration.apply.recorded_loss import Made, RecordedCall, RecordedLoss
from tests.apply.mixed import known_as_mixed
from tests.apply.models import Function, Network, backward
from tests.apply.scripts import batch, labels, watched
from tests.apply.training import alike


def network(inputs: int = 16, outputs: int = 8) -> Network:
    first = [nn.Linear(inputs, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2)]
    return nn.Sequential(*first, nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, outputs))


class Trained:
    """Two models and a parameter beside them, with one optimizer."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.one, self.other = network(), network(8, 16)
        self.scale = nn.Parameter(torch.ones(()))
        self.balance: Network = Function(balanced, out=nn.Linear(16, 4))
        modules = self.one, self.other, self.balance
        self.parameters = [*(each for module in modules for each in module.parameters()), self.scale]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=0.01)

    def state(self) -> list[Tensor]:
        buffers = [*self.one.buffers(), *self.other.buffers()]
        return [*(each.detach() for each in self.parameters), *buffers, torch.get_rng_state()]


def balanced(self: Network, given: Tensor) -> Tensor:
    """Return logits, and keep the balance of their mean shares, as a mixture of experts does."""
    logits: Tensor = self.out(given)
    self.balance = logits.softmax(-1).mean(0).square().sum()
    return logits


def siamese(trained: Trained) -> Tensor:
    return functional.mse_loss(trained.one(batch()), trained.one(batch()))


def of_three(trained: Trained) -> Tensor:
    """The triplet's negative is what a function makes of the first call's input, which is dropped."""
    given = batch()
    loss: Tensor = nn.TripletMarginLoss()(trained.one(given), trained.one(batch()), trained.one(given + 1))
    return loss


def autoencoder(trained: Trained) -> Tensor:
    given = batch()
    code = trained.one(given)
    return functional.mse_loss(trained.other(code + torch.randn_like(code)), given)


def of_parts(trained: Trained) -> Tensor:
    hidden = batch()
    for each in trained.one:
        hidden = each(hidden)
    return functional.cross_entropy(hidden[:, :4], labels())


def of_a_stopped_gradient(trained: Trained) -> Tensor:
    target = trained.one(batch())
    return functional.mse_loss(trained.other(trained.one(batch())), trained.other(target.detach()))


def of_narrow_calls(trained: Trained) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        one, other = trained.one(batch()), trained.one(batch())
    return functional.mse_loss(one.float(), other.float())


def of_filled_items(trained: Trained) -> Tensor:
    """Results are put into tensors that are made before the first call, as decoders do, and labels are left out."""
    found, total, targets = torch.zeros(2, 8, 8), torch.zeros(()), labels()
    targets[:2] = -100
    found[0] = trained.one(batch())
    found[1] = trained.one(batch()).tanh()
    total += found.square().mean()
    total += functional.cross_entropy(found[0], targets)
    return total


def with_balance(trained: Trained) -> Tensor:
    loss: Tensor = functional.cross_entropy(trained.balance(batch()), labels()) + 0.1 * trained.balance.balance
    return loss


def with_a_penalty_of_weights(trained: Trained) -> Tensor:
    loss = functional.cross_entropy(trained.one(batch())[:, :4], labels())
    return loss + 0.01 * torch.stack([each.square().sum() for each in trained.one.parameters()]).sum()


def with_a_scale(trained: Trained) -> Tensor:
    return functional.cross_entropy(trained.one(batch())[:, :4] * trained.scale.exp(), labels())


def with_a_penalty_of_slopes(trained: Trained) -> Tensor:
    given = batch().requires_grad_()
    (slope,) = torch.autograd.grad(trained.one(given).sum(), given, create_graph=True)
    return torch.stack([trained.one(batch()).mean(), slope.square().mean()]).sum()


Losses = Callable[[Trained], Tensor]
_SEVERAL: Sequence[Losses] = (
    siamese,
    of_three,
    autoencoder,
    of_parts,
    of_a_stopped_gradient,
    of_narrow_calls,
    of_filled_items,
)


def run(of: Losses, steps: int = 4) -> list[Tensor]:
    trained = Trained()
    found = []
    for _ in range(steps):
        loss = of(trained)
        backward(loss)
        trained.optimizer.step()
        trained.optimizer.zero_grad()
        found.append(loss.detach())
        del loss
        gc.collect()
    return found + trained.state()


@pytest.mark.parametrize(
    "of", [*_SEVERAL, with_balance, with_a_penalty_of_weights, with_a_scale, with_a_penalty_of_slopes]
)
def test_a_loss_of_more_than_one_call_has_the_same_bits_by_one_plan(of: Losses) -> None:
    """The first of four steps finds what makes the loss; three follow the plan, which offloads and recomputes."""
    expected = run(of)
    with known_as_mixed(), watched("mixed") as script:
        found = run(of)
    assert alike(expected, found)
    (made,) = script.plans
    assert [each.departure for each in made.loop.steps] == [""] * 3


def test_all_calls_are_recomputed() -> None:
    """Each call normalizes, which writes the running statistics that the other reads; both are recomputed."""
    with known_as_mixed(), watched("mixed") as script:
        run(siamese)
    schedule = script.plans[0].loop.schedule
    one, other = schedule.tape.forwards
    assert one.stop <= other.start
    assert schedule.captured.model == "Sequential"
    for each in (one, other):
        assert any(number in each for number in schedule.recomputed_operations)
    assert schedule.tape.of_model == {*one, *other}


def test_a_loss_makes_its_tensors_on_the_device_of_a_capture() -> None:
    """Ones of the output and ones that the script made on its GPU; captured on the CPU, where there is none."""
    made = RecordedCall(torch.ones, (3,), {"device": "cuda:0"}, has_gradients=True, is_narrow=True)
    added = RecordedCall(torch.add, (Made(0, 0), Made(1, 0)), {}, has_gradients=True, is_narrow=True)
    loss = RecordedLoss("cuda", {1: made, 2: added}, Made(2, 0), frozenset({0}))
    assert loss(torch.ones(3)).tolist() == [2, 2, 2]


def test_another_number_of_calls_has_the_same_bits_and_is_said() -> None:
    """Of the seven steps the third and the sixth add up three calls, of which the plan has two.

    The third begins a step of its own, which is without the plan where the first two wait for backward.
    """

    def step(trained: Trained) -> Tensor:
        counted.append(0)
        return torch.stack([trained.one(batch()).mean() for _ in range(2 + (len(counted) % 3 == 0))]).sum()

    counted: list[int] = []
    expected = run(step, 7)
    counted.clear()
    with watched() as script, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run(step, 7)
    assert alike(expected, found)
    left = [bool(each.departure) for each in script.plans[0].loop.steps]
    assert left == [False, False, True, False, False, False, True, False]
    assert len(said) == 1


@pytest.mark.filterwarnings("ignore:the plan of")
def test_a_call_that_two_backward_passes_train_is_of_the_plan_of_the_first() -> None:
    """The second loss is made by a call of the first, and by a head that has a plan of its own."""

    def step(trained: Trained) -> Tensor:
        hidden = trained.one(batch())
        functional.mse_loss(trained.one(hidden.repeat(1, 2)), hidden).backward(retain_graph=True)  # type: ignore[no-untyped-call]
        loss: Tensor = trained.other(hidden).square().mean()
        return loss

    expected = run(step)
    with watched() as script:
        found = run(step)
    assert alike(expected, found)
    assert [each.loop.schedule.captured.model for each in script.plans] == ["Sequential", "Sequential"]


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (
            lambda each, early: each.one(batch()).mean() + (early * 2),
            "the model did not return, expected an nn.Parameter",
        ),
        (
            lambda each, early: each.one(batch() * early).mean() + each.one(batch()).mean(),
            "or that it is made after it",
        ),
    ],
)
def test_a_tensor_from_outside_is_refused(of: Callable[[Trained, Tensor], Tensor], why: str) -> None:
    """It is made before the first call: a leaf that is no parameter, or a product with it."""
    early = torch.ones((), requires_grad=True)
    with watched() as script, pytest.raises(SystemExit):
        run(lambda trained: of(trained, early))
    (said,) = script.said
    assert said.startswith("no plan can be applied: the loss: ")
    assert why in said
