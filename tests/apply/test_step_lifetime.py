"""Steps are freed, and after any end of a step the next one follows the plan."""

import copy
import gc
import io
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from calibration.apply.loop_state import LoopState
from calibration.apply.step_hooks import StepHooks
from tests.apply.models import Network, backward, image, loss
from vdnnsim.api.planning import Planned

pytestmark = pytest.mark.filterwarnings("ignore:the plan of")


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def alive(made: Planned, without_collector: None) -> Iterator[Callable[[], int]]:  # noqa: ARG001
    steps: list[weakref.ref[StepHooks]] = []

    def make_hooks(loop: LoopState, model: nn.Module) -> StepHooks:
        hooks = StepHooks(loop, model)
        steps.append(weakref.ref(hooks))
        return hooks

    with mock.patch.object(made.loop, "make_hooks", make_hooks):
        yield lambda: sum(each() is not None for each in steps) if steps else -1


def trained_once(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model) as log:
        backward(loss(model(image())))
    model.zero_grad()
    assert log.departure == ""
    assert log.offloaded_bytes == made.loop.schedule.offloaded_bytes > 0


def departed_late(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model):
        backward(loss(model(image())).exp())


class OfTheUserError(Exception):
    pass


def fail(*_: object) -> None:
    raise OfTheUserError


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def failed_in_forward(made: Planned, model: nn.Module) -> None:
    *_, last = model.modules()
    for where in (last, model):
        with where.register_forward_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):
            model(image())


def failed_in_backward(made: Planned, model: nn.Module, at: int = 0) -> None:
    """Fail at the end, or midway: PyTorch keeps the rest of backward until the next one."""
    weight = [*model.parameters()][at]
    with weight.register_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):  # type: ignore[no-untyped-call]
        backward(loss(model(image())))
    model.zero_grad()


@pytest.mark.parametrize("use", [departed_late, failed_in_forward, failed_in_backward])
def test_nothing_outlives_its_step(
    model: Network, made: Planned, alive: Callable[[], int], use: Callable[[Planned, nn.Module], None]
) -> None:
    """Without the cyclic collector. Drawn loops (`tests/apply/generated`) drop steps, nest them, and change batches."""
    for _ in range(2):
        use(made, model)
        assert alive() == 0
        assert not made.loop.arena.is_used
        trained_once(made, model)
        assert alive() == 0


@pytest.mark.usefixtures("without_collector")
def test_a_traced_step_does_not_outlive_itself(model: Network, made: Planned, tmp_path: Path) -> None:
    made.trace(tmp_path / "traced")
    with made.apply(model):
        backward(loss(model(image())))
    assert not [each for each in gc.get_objects() if isinstance(each, StepHooks)]


def interrupted(made: Planned, model: nn.Module) -> None:
    """PyTorch calls no hook after an interrupt; the watch of forward must end all the same."""
    *_, last = model.modules()
    with last.register_forward_hook(interrupt), pytest.raises(KeyboardInterrupt), made.apply(model):
        model(image())
    assert _get_current_dispatch_mode_stack() == []


def failed_before_forward(made: Planned, model: nn.Module) -> None:
    """The hook of forward with `always_call` runs without its pre-hook."""
    with model.register_forward_pre_hook(fail), pytest.raises(OfTheUserError), made.apply(model):
        model(image())


def warned_with_an_error(made: Planned, model: nn.Module) -> None:
    with made.apply(model):
        kept = loss(model(image()))
    made.loop._has_warned = False  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="another step has what it needs"):
            made.loop.apply(model).__enter__()
    backward(kept)


def copied_by_pickle(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize("copied", [copy.deepcopy, copied_by_pickle])
def test_a_copy_that_is_made_within_a_step_has_none(
    model: Network, made: Planned, copied: Callable[[nn.Module], nn.Module]
) -> None:
    """Running averages and checkpoints of whole models are made amid a loop; each runs on its own afterwards."""
    model.zero_grad()
    with made.apply(model):
        other, batch = copied(model), image()
        torch.manual_seed(3)
        backward(loss(model(batch)))
    torch.manual_seed(3)
    backward(loss(other(batch)))
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert another.grad is not None
        assert torch.equal(one.grad, another.grad)
    model.zero_grad()


@pytest.mark.parametrize(
    "use", [partial(failed_in_backward, at=4), interrupted, failed_before_forward, warned_with_an_error]
)
def test_the_next_step_follows_the_plan(
    model: Network, made: Planned, use: Callable[[Planned, nn.Module], None]
) -> None:
    for _ in range(2):
        use(made, model)
        trained_once(made, model)
