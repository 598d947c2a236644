"""Plans applied to unchanged scripts: the same losses bit by bit, or a refusal with the reason."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.apply.models import Function, Network, backward
from tests.apply.scripts import Step, batch, classifier, labels, losses, updated, watched, with_a_criterion
from tests.apply.training import alike
from vdnnsim.analysis.measured_step import planned_s
from vdnnsim.api.script import SingleModelPlan


def with_micro_batches_in_mixed_precision(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The loss is computed outside of autocast, read by the host, and changed in place."""
    whole = torch.zeros(())
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch())
        result = functional.cross_entropy(logits, labels())
        whole += result.detach()
        assert result.item() > 0
        result += 0.1 * logits.float().square().mean()
        (result / 2).backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        model(torch.randn(3, 16))
    optimizer.step()
    optimizer.zero_grad()
    return whole


def with_gradients_alone(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """`autograd.grad` of the parameters ends a step, that of the inputs does not."""
    given = batch().requires_grad_()
    result = functional.cross_entropy(model(given), labels())
    (slope,) = torch.autograd.grad(result, given, retain_graph=True)
    assert slope.shape == given.shape
    parameters = [*model.parameters()]
    for each, gradient in zip(parameters, torch.autograd.grad(result, parameters), strict=True):
        each.grad = gradient
    optimizer.step()
    return result


@pytest.mark.parametrize(
    ("step", "precision"),
    [
        (with_a_criterion, "float32"),
        (with_micro_batches_in_mixed_precision, "amp_bfloat16"),
        (with_gradients_alone, "float32"),
    ],
)
def test_a_script_has_the_same_bits(step: Step, precision: str) -> None:
    expected = losses(step)
    with watched() as script:
        found = losses(step)
    assert alike(expected, found)
    (made,) = script.plans
    assert script.said == [str(made)]
    assert (script.asked[0]["precision"], script.asked[0]["optimizer"]) == (precision, "adamw")
    # In float32 autograd saves the batch; in bfloat16 it saves what the cast made, and nothing holds the batch.
    assert script.asked[0]["holds_inputs"] == (precision == "float32")
    # The loss; and of micro-batches the output.
    held = [each for each in script.asked[0]["loss"].held if each.call in script.asked[0]["loss"].outputs]
    assert len(held) == (step is with_micro_batches_in_mixed_precision)
    batches = 8 if step is with_micro_batches_in_mixed_precision else 4
    assert [each.departure for each in made.loop.steps] == [""] * (batches - 1)
    assert {each.offloaded_bytes for each in made.loop.steps} == {made.loop.schedule.offloaded_bytes}
    assert made.loop.schedule.offloaded_bytes > 0
    assert script.script.missed == ""


class _Epochs:
    def __init__(self) -> None:
        torch.manual_seed(1)
        self._teacher, self._count = classifier(), 0

    def of_a_teacher(self, model: nn.Module, _: object) -> Tensor:
        given = batch()
        output = model(given)
        with torch.no_grad():
            wanted = self._teacher(given)
        result = functional.mse_loss(output, wanted)
        backward(result)
        return result

    def of_other_sizes(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        """The second and the sixth batch are small; after the latter the model runs without a backward."""
        self._count += 1
        size = 3 if self._count in (2, 6) else 8
        result = functional.cross_entropy(model(torch.randn(size, 16)), labels()[:size])
        updated(result, optimizer)
        if self._count == 6:
            model(batch())
        return result

    def that_fails(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        """Forward fails once, and the script goes on."""
        self._count += 1
        if self._count == 4:
            with model[-1].register_forward_hook(_fail), pytest.raises(ValueError, match="of the script"):  # type: ignore[index]
                model(batch())
            # Of no step.
            backward(self._teacher(torch.randn(2, 16)).sum())
            return torch.zeros(())
        return with_a_criterion(model, optimizer)


def _fail(*_: object) -> None:
    raise ValueError("of the script")


@pytest.mark.parametrize(
    ("name", "steps", "left"),
    [
        ("of_a_teacher", 3, [False] * 2),
        # Planned at the fourth, whose shapes are those of the third.
        ("of_other_sizes", 7, [False, False, True, False, False]),
        ("that_fails", 5, [False] * 4),
    ],
)
def test_steps_that_differ(name: str, steps: int, left: list[bool]) -> None:
    expected = losses(getattr(_Epochs(), name), steps=steps)
    with watched() as script, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = losses(getattr(_Epochs(), name), steps=steps)
    assert alike(expected, found)
    (made,) = script.plans
    assert [bool(each.departure) for each in made.loop.steps] == left
    assert len(said) == any(left)


def of_an_attack(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """Train on inputs moved along their gradient, after a call whose result alone is wanted."""
    given = batch().requires_grad_()
    model(given.detach())
    (slope,) = torch.autograd.grad(model(given).logsumexp(-1).sum(), given)
    result: Tensor = nn.CrossEntropyLoss()(model(given + slope.sign()), labels())
    return updated(result, optimizer)


@pytest.mark.filterwarnings("ignore:the plan of")
def test_calls_that_are_no_part_of_the_loss_are_no_reason_to_refuse() -> None:
    """The first backward follows three calls of the model, of which one made the loss. The input has a gradient."""
    expected = losses(of_an_attack)
    with watched() as script:
        found = losses(of_an_attack)
    assert alike(expected, found)
    assert len(script.plans) == 1


def _compiled_in_place() -> nn.Module:
    model = classifier()
    model.compile(backend="eager")
    return model


def _of_a_compiled_layer() -> Network:
    model: Network = classifier()
    model[0] = torch.compile(model[0], backend="eager")
    return model


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (classifier, True),
        (lambda: torch.compile(classifier(), backend="eager"), False),
        (_compiled_in_place, False),
        (_of_a_compiled_layer, False),
    ],
)
def test_what_is_compiled_runs_eagerly_and_its_model_is_planned(make: Callable[[], nn.Module], function: bool) -> None:  # noqa: FBT001
    """The bits are those of an eager step; it is said once that it is one."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
        def of(images: Tensor) -> Network:
            return model(images).square().mean()

        return updated((torch.compile(of, backend="eager") if function else of)(batch()), optimizer)

    with watched() as script:
        found = losses(step, make)
    said, plan = script.said
    assert said.startswith("torch.compile: ")
    assert plan == str(script.plans[0])
    with torch.compiler.set_stance("force_eager"):
        assert alike(losses(step), found)
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3
    assert script.plans[0].loop.steps[-1].offloaded_bytes > 0


def test_the_stance_of_the_compiler_is_the_scripts_own_afterwards() -> None:
    """A script that runs eagerly by its own stance still does: the backend, which notes each call, is never called."""
    compiled = []

    def backend(graph: nn.Module, _: object) -> nn.Module:
        compiled.append(graph)
        return graph

    with torch.compiler.set_stance("force_eager"):
        with watched():
            torch.compile(torch.sin, backend=backend)
        torch.compile(lambda values: values + 1, backend=backend)(batch())
    assert not compiled


def test_a_plan_that_drifted_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with measured times: it was planned with a second for each operation; all take far less than 5 s."""
    with watched() as script:
        losses(with_a_criterion, steps=2)
    (made,) = script.plans
    operations = range(len(made.loop.schedule.captured.operations))
    slow = replace(made._request, seconds=dict.fromkeys(operations, 1.0)).planned()  # noqa: SLF001
    again = SingleModelPlan(slow)
    torch.manual_seed(0)
    model = classifier()
    for _ in range(5):
        with again.apply(model):
            backward(nn.CrossEntropyLoss()(model(batch()), labels()))
    assert again.planned is not slow
    assert [len(each.loop.steps) for each in (slow, again.planned)] == [4, 1]
    assert planned_s(again.planned.predicted.trace) < 5
    message = capsys.readouterr().err
    assert message.count("vdnnsim: planned again with what these steps took:\nvdnnsim: save_on_cpu(p), for ") == 1
    assert "plan.refit()" not in message


def test_an_unknown_optimizer_is_named() -> None:
    class Lion(torch.optim.SGD):
        pass

    model = classifier()
    optimizer = Lion(model.parameters(), lr=0.1)
    with watched() as script:
        for _ in range(2):
            with_a_criterion(model, optimizer)
    assert script.said[0] == "Lion is not known; the plan is made as for adamw"


def test_a_forward_that_raises_says_so_alone_and_the_next_steps_are_planned() -> None:
    """PyTorch silences what its hooks raise then, with a warning, which is an error here."""

    def run(self: Network, given: Tensor) -> Tensor:
        if given.shape[1] != 16:
            raise ValueError("16 features")
        result: Tensor = self.out(given)
        return result

    model = Function(run, out=nn.Linear(16, 4))
    with watched() as script:
        with pytest.raises(ValueError, match="16 features"):
            model(torch.randn(8, 17))
        for _ in range(3):
            backward(functional.cross_entropy(model(batch()), labels()))
        with pytest.raises(ValueError, match="16 features"):
            model(torch.randn(8, 17))
    assert [each.departure for each in script.plans[0].loop.steps][:2] == ["", ""]


def test_a_loss_of_the_models_own() -> None:

    def run(self: Network, given: Tensor) -> Any:  # noqa: ANN401
        return {"loss": self.out(given).square().mean(), "count": 3}

    def step(model: nn.Module, _: object) -> Tensor:
        result: Tensor = model(batch())["loss"]
        backward(result)
        model.zero_grad()
        return result

    with watched() as script:
        losses(step, lambda: Function(run, out=nn.Linear(16, 4)))
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3


def test_a_model_of_parametrized_weights_is_planned() -> None:
    """PyTorch computes each weight when it is parametrized, by a call of a part of the model."""

    def make() -> nn.Module:
        model = classifier()
        nn.utils.parametrizations.weight_norm(next(model.children()))
        return model

    expected = losses(with_a_criterion, make)
    with watched() as script:
        found = losses(with_a_criterion, make)
    assert alike(expected, found)
    assert [each.departure for each in script.plans[0].loop.steps] == [""] * 3
