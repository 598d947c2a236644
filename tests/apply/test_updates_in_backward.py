"""Plans of loops whose parameters are updated in backward, and of losses in slices: the same bits as without."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.apply.models import MODELS, backward, loss, rows
from tests.apply.scripts import watched
from tests.apply.training import alike, requested, without
from vdnnsim.api.planning import Planned


def trained(model: nn.Module, made: Planned | None) -> list[Tensor]:
    """Return losses, weights and states after four steps with PyTorch's own hooks."""
    torch.manual_seed(1)
    model = copy.deepcopy(model)
    optimizers = {each: torch.optim.AdamW([each], lr=0.01) for each in model.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(update)  # type: ignore[no-untyped-call]
    found = []
    for _ in range(4):
        with (without if made is None else made.apply)(model):
            result = loss(model(rows()))
            backward(result)
        found.append(result.detach())
    assert all(each.grad is None for each in model.parameters())
    states = [value for each in optimizers.values() for state in each.state.values() for value in state.values()]
    return [*found, *model.state_dict().values(), *states]


@pytest.mark.parametrize("name", ["perceptron", "checkpointed", "tied"])
@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
def test_updates_in_backward_have_the_same_bits(name: str, policy: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name].make_model()
    made = requested(model, rows(), policy, optimizer="adamw", in_backward=True).planned()
    assert alike(trained(model, None), trained(model, made))
    assert {each.departure for each in made.loop.steps} == {""}
    if policy == "save_on_cpu" and name == "perceptron":
        assert all(each.offloaded_bytes == made.loop.schedule.offloaded_bytes > 0 for each in made.loop.steps)


def test_a_traced_step_ends_behind_its_updates_in_backward(tmp_path: Path) -> None:
    """The first of them ended it, before backward was over: the last stretch then took less than no time."""
    torch.manual_seed(0)
    model = MODELS["perceptron"].make_model()
    made = requested(model, rows(), "save_on_cpu", optimizer="adamw", in_backward=True).planned()
    made.trace(tmp_path)
    trained(model, made)
    step = made._reporter.recorded  # noqa: SLF001
    assert step is not None
    times = [time for each in step.stretches for time in (each.start_s, each.end_s)]
    assert times == sorted(times)
    assert times[-1] == step.seconds
    assert made.refit().predicted.metrics.iteration_s > 0


def test_a_script_that_updates_in_backward_is_planned_so() -> None:
    torch.manual_seed(0)
    model = MODELS["perceptron"].make_model()
    expected = trained(model, None)
    with watched() as script:
        assert alike(expected, trained(model, None))
    assert [(each["in_backward"], each["optimizer"]) for each in script.asked] == [(True, "adamw")]
    assert script.plans[0].loop.schedule.captured.update == "adamw in backward"
    assert {each.departure for each in script.plans[0].loop.steps} == {""}


class Sliced(nn.Module):
    """Cross entropy of three slices of its rows, each in a checkpoint, as `--loss-chunks 3` captures it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16), nn.Tanh())
        self.head = nn.Linear(16, 50)

    def forward(self, batch: Tensor) -> Tensor:
        labels = torch.arange(len(batch)) % 50
        parts = zip(self.body(batch).chunk(3), labels.chunk(3), strict=True)
        total: Tensor = sum(checkpoint(self._of_part, *each, use_reentrant=False) for each in parts)
        return total / len(batch)

    def _of_part(self, x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.head(x).float(), labels, reduction="sum")


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
def test_a_loss_in_slices_has_the_same_bits(policy: str) -> None:
    torch.manual_seed(0)
    model = Sliced()
    made = requested(model, rows(), policy, loss=lambda each: each, optimizer="sgd").planned()

    def gradients(made: Planned | None) -> list[Tensor]:
        torch.manual_seed(2)
        kept = copy.deepcopy(model)
        optimizer = torch.optim.SGD(kept.parameters(), lr=0.1)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            with (without if made is None else made.apply)(kept):
                result = kept(rows())
                backward(result)
            found += [result.detach(), *(each.grad.clone() for each in kept.parameters() if each.grad is not None)]
            optimizer.step()
        return found

    assert alike(gradients(None), gradients(made))
    assert {each.departure for each in made.loop.steps} == {""}
