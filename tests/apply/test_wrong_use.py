"""What leaves the plan is right without it, or refused as PyTorch refuses it, and said once."""

import copy
import warnings
from collections.abc import Callable
from threading import Thread

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.apply.models import MODELS, Network, backward, loss
from tests.apply.training import alike, planned
from vdnnsim.api.planning import Planned

CASE = MODELS["perceptron"]


@pytest.fixture(scope="module")
def model() -> Network:
    torch.manual_seed(0)
    return CASE.make_model()


@pytest.fixture(scope="module", params=["save_on_cpu", pytest.param("checkpoint", marks=pytest.mark.thorough)])
def made(model: Network, request: pytest.FixtureRequest) -> Planned:
    return planned(CASE, model, request.param)


def gradients(model: Network) -> list[Tensor]:
    """Return and drop the gradients of a model."""
    found = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return found


def used(made: Planned, model: Network, use: Callable[[nn.Module], None], *, departs: bool) -> None:
    """Hold what a use leaves behind with the plan to what it does without, and a plain step after it to the plan."""
    torch.manual_seed(3)
    use(model)
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    torch.manual_seed(3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with made.apply(model) as log:
            use(model)
        found = gradients(model)
    assert len(found) > 0
    assert alike(expected, found)
    assert bool(log.departure) is departs
    assert len([each for each in said if "the plan of" in str(each.message)]) == departs
    with made.apply(model) as log:
        plain(model)
    gradients(model)
    assert not log.departure


def plain(model: nn.Module) -> None:
    """Run forward and backward once."""
    backward(loss(model(torch.randn(8, 16))))


def double(model: nn.Module) -> None:
    """Have a penalty on the gradient of the input in the loss."""
    batch = torch.randn(8, 16, requires_grad=True)
    result = loss(model(batch))
    (slope,) = torch.autograd.grad(result, batch, create_graph=True)
    backward(result + slope.square().sum())


def reentrant(model: nn.Module) -> None:
    backward(loss(checkpoint(model, torch.randn(8, 16, requires_grad=True), use_reentrant=True)))


def not_reentrant(model: nn.Module) -> None:
    backward(loss(checkpoint(model, torch.randn(8, 16), use_reentrant=False)))


def failing_at_first(model: nn.Module) -> None:
    """Catch a failure in the last module, and run forward again."""

    def fail(*_: object) -> None:
        raise ValueError("of the user")

    hook = [*model.modules()][-1].register_forward_hook(fail)
    with hook, pytest.raises(ValueError, match="of the user"):
        model(torch.randn(8, 16))
    plain(model)


def of_two_models(model: nn.Module) -> None:
    """Sum the losses of a model and its copy."""
    other = copy.deepcopy(model)
    backward(loss(other(torch.randn(8, 16))) + loss(model(torch.randn(8, 16))))
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert another.grad is not None
        one.grad += another.grad


def narrow(model: nn.Module) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        result = loss(model(torch.randn(8, 16)))
    backward(result)


def frozen(model: nn.Module) -> None:
    first = next(model.parameters()).requires_grad_(False)  # noqa: FBT003
    plain(model)
    first.requires_grad_()


def of_other_types(model: nn.Module) -> None:
    model.double()
    backward(loss(model(torch.randn(8, 16).double())))
    for each in model.parameters():
        each.grad = None
    plain(model.float())


@pytest.mark.parametrize(
    "use", [double, reentrant, not_reentrant, failing_at_first, of_two_models, narrow, frozen, of_other_types]
)
def test_what_was_not_captured(made: Planned, model: Network, use: Callable[[nn.Module], None]) -> None:
    used(made, model, use, departs=True)


def in_other_threads(model: nn.Module) -> None:
    """Run forward in one thread, as hooks are of a thread, and backward in another."""
    results: list[Tensor] = []
    for work in (lambda: results.append(loss(model(torch.randn(8, 16)))), lambda: backward(results[0])):
        thread = Thread(target=work)
        thread.start()
        thread.join()


def backward_in_a_thread(model: nn.Module) -> None:
    result = loss(model(torch.randn(8, 16)))
    thread = Thread(target=backward, args=(result,))
    thread.start()
    thread.join()


def saved_by_the_user(model: nn.Module) -> None:
    with torch.autograd.graph.save_on_cpu():
        plain(model)


def observed(model: nn.Module) -> None:
    """Keep what modules return, and change gradients."""
    kept: list[Tensor] = []
    hooks = [each.register_forward_hook(lambda _, __, result: kept.append(result)) for each in model.modules()]
    hooks += [each.register_hook(lambda gradient: gradient * 2) for each in model.parameters()]  # type: ignore[no-untyped-call]
    plain(model)
    for each in hooks:
        each.remove()


def with_weights_made(model: nn.Module) -> None:
    """Call the model with other weights in the place of its own."""
    weights = {name: each * 1.0 for name, each in model.named_parameters()}
    backward(loss(torch.func.functional_call(model, weights, (torch.randn(8, 16),))))


def in_parts(model: nn.Module) -> None:
    """Compute one gradient, then fail in the midst of backward, then compute all."""
    *_, first, last = model.parameters()
    result = loss(model(torch.randn(8, 16)))
    (slope,) = torch.autograd.grad(result, last, retain_graph=True)

    def fail(_: Tensor) -> None:
        raise ValueError("of the user")

    hook = first.register_hook(fail)  # type: ignore[no-untyped-call]
    with hook, pytest.raises(ValueError, match="of the user"):
        backward(result, retain_graph=True)
    model.zero_grad()
    backward(result)
    assert last.grad is not None
    last.grad += slope


def for_evaluation(model: nn.Module) -> None:
    model.eval()
    with torch.inference_mode():
        model(torch.randn(8, 16))
    plain(model)
    model.train()


@pytest.mark.parametrize(
    "use",
    [
        in_other_threads,
        backward_in_a_thread,
        saved_by_the_user,
        observed,
        with_weights_made,
        in_parts,
        for_evaluation,
    ],
)
def test_what_is_as_it_was_captured(made: Planned, model: Network, use: Callable[[nn.Module], None]) -> None:
    used(made, model, use, departs=False)


@pytest.mark.filterwarnings("ignore")
def test_compiled(made: Planned, model: Network) -> None:
    """Compiled, a model saves what its compiler chose."""
    torch.manual_seed(3)
    compiled: Network = torch.compile(model, backend="aot_eager")
    plain(compiled)
    expected = gradients(model)
    torch.manual_seed(3)
    with made.apply(model) as log:
        plain(compiled)
    assert alike(expected, gradients(model))
    assert log.departure or not made.loop.agenda.moved


def test_transforms_of_functions_are_refused(made: Planned, model: Network) -> None:
    """PyTorch's own refusal: it has no hooks on what they save."""
    weights = {name: each.detach() for name, each in model.named_parameters()}

    def of(weights: dict[str, Tensor]) -> Tensor:
        return loss(torch.func.functional_call(model, weights, (torch.ones(8, 16),)))

    with made.apply(model), pytest.raises(RuntimeError, match="saved tensor hooks"):
        torch.func.grad(of)(weights)


def test_another_batch(made: Planned, model: Network) -> None:
    batch = torch.randn(5, 16)
    used(made, model, lambda each: backward(loss(each(batch))), departs=True)


def test_two_steps_in_one_context(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        for _ in range(2):
            backward(loss(each(torch.randn(8, 16))))

    used(made, model, use, departs=True)


def test_a_new_branch(made: Planned, model: Network) -> None:
    used(made, model, lambda each: backward(loss(each(torch.randn(8, 16)).exp())), departs=True)


def test_evaluation_within(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        with torch.no_grad():
            each(torch.ones(3, 16))
        backward(loss(each(torch.randn(8, 16))))

    used(made, model, use, departs=False)


def test_backward_twice(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        result = loss(each(torch.randn(8, 16)))
        backward(result, retain_graph=True)
        backward(result)

    used(made, model, use, departs=False)


def test_double_backward(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        batch = torch.randn(8, 16, requires_grad=True)
        (slope,) = torch.autograd.grad(loss(each(batch)), batch, create_graph=True)
        backward(slope.square().sum())

    used(made, model, use, departs=True)


def test_backward_outside(made: Planned, model: Network) -> None:
    batch = torch.randn(8, 16)
    backward(loss(model(batch)))
    expected = gradients(model)
    with made.apply(model):
        result = loss(model(batch))
    backward(result)
    assert alike(expected, gradients(model))


def test_two_graphs_at_once(made: Planned, model: Network) -> None:
    """The second step must not write over what the first has in pinned memory."""
    batches = torch.randn(8, 16), torch.randn(8, 16)
    for batch in batches:
        backward(loss(model(batch)))
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    with made.apply(model):
        first = loss(model(batches[0]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with made.apply(model) as log:
            second = loss(model(batches[1]))
    assert len(said) == bool(made.loop.agenda.moved) == log.departure.startswith("another step has what it needs")
    backward(first)
    backward(second)
    assert alike(expected, gradients(model))


def test_a_step_dropped_without_backward(made: Planned, model: Network) -> None:
    with made.apply(model):
        loss(model(torch.randn(8, 16)))
    with made.apply(model) as log:
        backward(loss(model(torch.randn(8, 16))))
    gradients(model)
    assert not log.departure


def test_a_failure_in_forward(made: Planned, model: Network) -> None:
    def fail(each: nn.Module) -> None:
        with made.apply(each):
            each(torch.randn(8, 16))
            raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        fail(model)
    used(made, model, lambda each: backward(loss(each(torch.randn(8, 16)))), departs=False)


def test_one_context_in_another(made: Planned, model: Network) -> None:
    def use(each: nn.Module) -> None:
        with made.apply(each):
            backward(loss(each(torch.randn(8, 16))))

    torch.manual_seed(3)
    backward(loss(model(torch.randn(8, 16))))
    expected = gradients(model)
    made.loop._has_warned = False  # noqa: SLF001
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="opened within another"), made.apply(model):
        use(model)
    assert alike(expected, gradients(model))


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint", "pytorch"])
def test_what_was_written_over_is_refused(policy: str) -> None:
    """As PyTorch does, whose own check is off where hooks keep what is saved."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, 2))
    plan = planned(CASE, model, policy)
    kept: list[Tensor] = []
    model[1].register_forward_hook(lambda _, __, result: kept.append(result))
    made = copy.copy(plan)
    with made.apply(model):
        result = loss(model(torch.randn(8, 16)))
        with torch.no_grad():
            kept[0].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(result)


def test_weights_changed_before_backward(made: Planned, model: Network) -> None:
    with made.apply(model):
        result = loss(model(torch.randn(8, 16)))
        with torch.no_grad():
            model[2].weight.mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            backward(result)
    model.zero_grad()
