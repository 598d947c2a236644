"""Losses that scripts make by several calls, of what models keep and of parameters; each is of what a script trains."""

import copy
from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.apply.generated.blocks import STEPS, WIDTH
from tests.apply.models import Network


class Balanced(nn.Module):
    """A model that keeps a balance of what it returned, as experts do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.model(hidden)
        self.balance = result.float().softmax(-1).mean((0, 1)).square().sum()
        return result


class Trained:
    """Two models, of which the second is balanced, a frozen copy of the first, and a scale, with one optimizer."""

    def __init__(self, model: nn.Module, samples: int) -> None:
        self.one: Network = copy.deepcopy(model).train()
        self.other: Network = Balanced(copy.deepcopy(model).train())
        self.frozen: Network = copy.deepcopy(model).requires_grad_(requires_grad=False)
        self.scale = nn.Parameter(torch.zeros(()))
        self.samples = samples
        models = self.one, self.other
        self.parameters = [*(each for model in models for each in model.parameters()), self.scale]
        self.buffers = [each for model in models for each in model.buffers()]
        wanted = [each for each in self.parameters if each.requires_grad]
        self.optimizer = torch.optim.SGD(wanted, lr=0.005, momentum=0.9)

    def batch(self) -> Tensor:
        return torch.randn(self.samples, STEPS, WIDTH)


def _unlike(one: Tensor, other: Tensor) -> Tensor:
    return functional.mse_loss(one.float(), other.float())


def _scores(output: Tensor) -> Tensor:
    return output.float().log_softmax(-1)[..., 0].sum(-1)


def _alone(trained: Trained) -> Tensor:
    return _unlike(trained.one(trained.batch()), trained.batch())


def _siamese(trained: Trained) -> Tensor:
    return _unlike(trained.one(trained.batch()), trained.one(trained.batch()))


def _triplet(trained: Trained) -> Tensor:
    given = trained.batch()
    three = (trained.one(each).float() for each in (given, given + 0.1, trained.batch()))
    return torch.as_tensor(functional.triplet_margin_loss(*three))


def _contrasted(trained: Trained) -> Tensor:
    """As SimCLR: two views of a batch, each of whose samples is to be found among the other's."""
    given = trained.batch()
    views = [trained.one(given + 0.1 * torch.randn_like(given)).float().flatten(1) for _ in range(2)]
    one, other = (functional.normalize(each, dim=-1) for each in views)
    logits = one @ other.T * trained.scale.exp()
    labels = torch.arange(len(given))
    return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.mT, labels)) / 2


def _preferred(trained: Trained) -> Tensor:
    """As DPO, beside a frozen model."""
    batches = [trained.batch() for _ in range(2)]
    with torch.no_grad():
        former = [_scores(trained.frozen(each)) for each in batches]
    chosen, rejected = (_scores(trained.one(each)) - was for each, was in zip(batches, former, strict=True))
    return -functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def _critic(trained: Trained) -> Tensor:
    with torch.no_grad():
        fake = trained.other(trained.batch())
    return torch.as_tensor(trained.one(fake).float().mean() - trained.one(trained.batch()).float().mean())


def _critic_with_a_penalty(trained: Trained) -> Tensor:
    """As of Wasserstein GANs, on what lies between a batch and what the other model made."""
    fake, real = trained.other(trained.batch()).detach(), trained.batch()
    between = torch.lerp(real, fake.float(), torch.rand(len(real), 1, 1)).requires_grad_()
    (slopes,) = torch.autograd.grad(trained.one(between).float().sum(), between, create_graph=True)
    loss = trained.one(fake).float().mean() - trained.one(real).float().mean()
    return torch.as_tensor(loss + (slopes.flatten(1).norm(dim=1) - 1).square().mean())


def _autoencoder(trained: Trained) -> Tensor:
    given = trained.batch()
    return _unlike(trained.other(trained.one(given)), given)


def _variational(trained: Trained) -> Tensor:
    given = trained.batch()
    mean: Tensor = trained.one(given).float()
    code = mean + torch.randn_like(mean) * 0.1
    return _unlike(trained.other(code), given) + 0.1 * mean.square().mean()


def _cycle(trained: Trained) -> Tensor:
    given, wanted = trained.batch(), trained.batch()
    there, back = trained.one(given), trained.other(wanted)
    return _unlike(trained.other(there), given) + _unlike(trained.one(back), wanted) + _unlike(there, wanted)


def _followed(trained: Trained) -> Tensor:
    """As BYOL: what the other makes of a view follows another view, whose gradient is stopped."""
    given = trained.batch()
    with torch.no_grad():
        target = trained.one(given + 0.1)
    return _unlike(trained.other(trained.one(given)), target) + _unlike(trained.one(given).detach(), trained.one(given))


def _repeated(trained: Trained) -> Tensor:
    state = torch.zeros(trained.samples, STEPS, WIDTH)
    loss = torch.zeros(())
    for _ in range(3):
        state = trained.one(torch.tanh(state.float()) + trained.batch())
        loss = loss + state.float().square().mean()
    return loss


def _of_parts(trained: Trained) -> Tensor:
    """Each part of a model is called, and judged."""
    hidden, losses = trained.batch(), list[Tensor]()
    for each in trained.one:
        hidden = each(hidden)
        losses.append(hidden.float().square().mean())
    return torch.stack(losses).sum()


def _balanced(trained: Trained) -> Tensor:
    loss = _unlike(trained.other(trained.batch()), trained.batch())
    return loss + 0.1 * torch.as_tensor(trained.other.balance)


def _with_slopes(trained: Trained) -> Tensor:
    given = trained.batch().requires_grad_()
    output: Tensor = trained.one(given).float()
    (slopes,) = torch.autograd.grad(output.sum(), given, create_graph=True)
    return output.square().mean() + slopes.square().mean()


def _written(trained: Trained) -> Tensor:
    """What models returned is written over, by functions, by operators and by assignment."""
    one, other = (trained.one(trained.batch()).float() * 2 for _ in range(2))
    one[:, 0] = other[:, 1]
    one[:, 1].mul_(0.5)
    one += other.clamp_(-1, 1)
    return torch.as_tensor(one.masked_fill_(one > 2, 2.0).mean())


LOSSES: Final[dict[str, Callable[[Trained], Tensor]]] = {
    "alone": _alone,
    "siamese": _siamese,
    "triplet": _triplet,
    "contrasted": _contrasted,
    "preferred": _preferred,
    "critic": _critic,
    "critic with a penalty": _critic_with_a_penalty,
    "autoencoder": _autoencoder,
    "variational": _variational,
    "cycle": _cycle,
    "followed": _followed,
    "repeated": _repeated,
    "of parts": _of_parts,
    "balanced": _balanced,
    "with slopes": _with_slopes,
    "written": _written,
}


def _norm(trained: Trained) -> Tensor:
    return 0.01 * torch.stack([each.float().square().sum() for each in trained.one.parameters()]).sum()


def _temperature(trained: Trained) -> Tensor:
    return trained.scale.exp() + (trained.scale - 1).square()


def _another_call(trained: Trained) -> Tensor:
    return torch.as_tensor(trained.one(trained.batch()).float().mean())


TERMS: Final[dict[str, Callable[[Trained], Tensor]]] = {
    "norm": _norm,
    "temperature": _temperature,
    "another call": _another_call,
}


def loss_of(names: Sequence[str], trained: Trained) -> Tensor:
    """Return the sum of a loss and of terms."""
    first, *terms = names
    loss = LOSSES[first](trained)
    for each in terms:
        loss = loss + TERMS[each](trained)
    return loss
