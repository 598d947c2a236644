"""Nothing of a step outlives it, and whatever ended it, the next one follows the plan."""

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
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
    """Count the steps that live."""
    steps: list[weakref.ref[StepHooks]] = []

    def make_hooks(loop: LoopState, model: nn.Module) -> StepHooks:
        hooks = StepHooks(loop, model)
        steps.append(weakref.ref(hooks))
        return hooks

    with mock.patch.object(made.loop, "make_hooks", make_hooks):
        yield lambda: sum(each() is not None for each in steps) if steps else -1


def trained_once(made: Planned, model: nn.Module) -> None:
    """Run a step that is not timed, as the third one of a plan is; it follows the plan."""
    with made.loop.apply(model) as log:
        backward(loss(model(image())))
    model.zero_grad()
    assert log.departure == ""
    assert log.offloaded_bytes == made.loop.schedule.offloaded_bytes > 0


def departed_late(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model):
        backward(loss(model(image())).exp())


class OfTheUserError(Exception):
    """Is caught."""


def fail(*_: object) -> None:
    raise OfTheUserError


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def failed_in_forward(made: Planned, model: nn.Module) -> None:
    """Fail within the model, and after it."""
    *_, last = model.modules()
    for where in (last, model):
        with where.register_forward_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):
            model(image())


def failed_in_backward(made: Planned, model: nn.Module, at: int = 0) -> None:
    weight = [*model.parameters()][at]
    with weight.register_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):  # type: ignore[no-untyped-call]
        backward(loss(model(image())))
    model.zero_grad()


def kept_for_two(made: Planned, model: nn.Module) -> None:
    """Keep two graphs, and drop them after one backward."""
    with made.loop.apply(model):
        first = loss(model(image()))
    with made.loop.apply(model):
        second = loss(model(image()))
    backward(second)
    del first, second


@pytest.mark.parametrize("use", [departed_late, failed_in_forward, failed_in_backward, kept_for_two])
def test_nothing_outlives_its_step(
    model: Network, made: Planned, alive: Callable[[], int], use: Callable[[Planned, nn.Module], None]
) -> None:
    """Without the collector of cycles no step lives, no slot is used, and the step after it follows the plan.

    Steps that are dropped, nested or of another batch are among drawn loops (`tests/apply/generated`).
    """
    for _ in range(2):
        use(made, model)
        assert alive() == 0
        assert not made.loop.arena.is_used
        trained_once(made, model)
        assert alive() == 0


@pytest.mark.usefixtures("without_collector")
def test_a_traced_step_does_not_outlive_itself(model: Network, made: Planned, tmp_path: Path) -> None:
    """Its copies are noted, on a copy stream that knows the step."""
    made.trace(tmp_path / "traced")
    with made.apply(model):
        backward(loss(model(image())))
    assert not [each for each in gc.get_objects() if isinstance(each, StepHooks)]


def failed_midway(made: Planned, model: nn.Module) -> None:
    """PyTorch holds what is left of backward until the next one."""
    failed_in_backward(made, model, 4)


def interrupted(made: Planned, model: nn.Module) -> None:
    """PyTorch calls no hook after an interrupt; the watch of forward must not see what runs later."""
    *_, last = model.modules()
    with last.register_forward_hook(interrupt), pytest.raises(KeyboardInterrupt), made.apply(model):
        model(image())
    assert _get_current_dispatch_mode_stack() == []


def failed_before_forward(made: Planned, model: nn.Module) -> None:
    """What PyTorch calls whether or not forward ran finds that it did not."""
    with model.register_forward_pre_hook(fail), pytest.raises(OfTheUserError), made.apply(model):
        model(image())


def warned_with_an_error(made: Planned, model: nn.Module) -> None:
    """The step that departs ends where its warning is raised."""
    with made.apply(model):
        kept = loss(model(image()))
    made.loop._has_warned = False  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="another step has what it needs"):
            made.loop.apply(model).__enter__()
    backward(kept)


@pytest.mark.parametrize("use", [failed_midway, interrupted, failed_before_forward, warned_with_an_error])
def test_the_next_step_follows_the_plan(
    model: Network, made: Planned, use: Callable[[Planned, nn.Module], None]
) -> None:
    for _ in range(2):
        use(made, model)
        trained_once(made, model)
