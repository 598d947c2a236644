"""Nothing of a step outlives it, and whatever ended it, the next one follows the plan."""

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from calibration.apply.loop import Loop
from calibration.apply.step_hooks import Following
from tests.apply.models import Network, backward, image, loss
from vdnnsim.api.planning import Planned

pytestmark = pytest.mark.filterwarnings("ignore:the plan of")


@pytest.fixture
def alive(made: Planned) -> Iterator[Callable[[], int]]:
    """Count the steps that live, with the collector of cycles off."""
    steps: list[weakref.ref[Following]] = []

    def follow(loop: Loop, model: nn.Module) -> Following:
        following = Following(loop, model)
        steps.append(weakref.ref(following))
        return following

    gc.collect()
    gc.disable()
    try:
        with mock.patch.object(made.loop, "follow", follow):
            yield lambda: sum(each() is not None for each in steps) if steps else -1
    finally:
        gc.enable()


def trained_once(made: Planned, model: nn.Module) -> None:
    """Run a step that is not timed, as the third one of a plan is."""
    with made.loop.apply(model):
        backward(loss(model(image())))


def dropped(made: Planned, model: nn.Module) -> None:
    """Run forward, and never backward."""
    with made.loop.apply(model):
        loss(model(image()))


def departed(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model):
        backward(loss(model(torch.randn(3, 3, 8, 8)).exp()))


def departed_late(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model):
        backward(loss(model(image())).exp())


class OfTheUserError(Exception):
    """Is caught."""


def fail(*_: object) -> None:
    """Be a hook that fails."""
    raise OfTheUserError


def failed_in_forward(made: Planned, model: nn.Module) -> None:
    """Fail within the model, and after it."""
    *_, last = model.modules()
    for where in (last, model):
        with where.register_forward_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):
            model(image())


def failed_in_backward(made: Planned, model: nn.Module) -> None:
    first = next(model.parameters())
    with first.register_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):  # type: ignore[no-untyped-call]
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


def nested(made: Planned, model: nn.Module) -> None:
    with made.loop.apply(model):
        trained_once(made, model)


@pytest.mark.parametrize(
    "use",
    [
        trained_once,
        dropped,
        departed,
        departed_late,
        failed_in_forward,
        failed_in_backward,
        kept_for_two,
        nested,
    ],
)
def test_nothing_outlives_its_step(
    model: Network, made: Planned, alive: Callable[[], int], use: Callable[[Planned, nn.Module], None]
) -> None:
    """Without the collector of cycles no step lives, no slot is used, and the step after it follows the plan."""
    for _ in range(2):
        use(made, model)
        assert alive() == 0
        assert not made.loop.arena.is_used
        trained_once(made, model)
        assert alive() == 0
        assert made.loop.steps[-1].departure == ""
        assert made.loop.steps[-1].offloaded_bytes == made.loop.agenda.offloaded_bytes > 0


def test_a_traced_step_does_not_outlive_itself(model: Network, made: Planned, tmp_path: Path) -> None:
    """Its copies are noted, on a lane that knows the step."""
    gc.collect()
    gc.disable()
    try:
        made.trace(tmp_path / "traced")
        with made.apply(model):
            backward(loss(model(image())))
        assert not [each for each in gc.get_objects() if isinstance(each, Following)]
    finally:
        gc.enable()


def test_a_backward_that_failed_midway(model: Network, made: Planned) -> None:
    """PyTorch holds what is left of it until the next backward; the next forward follows the plan nevertheless."""
    middle = [*model.parameters()][4]
    with middle.register_hook(fail), pytest.raises(OfTheUserError), made.loop.apply(model):
        backward(loss(model(image())))
    trained_once(made, model)
    assert made.loop.steps[-1].departure == ""
    model.zero_grad()


@pytest.mark.parametrize("made", ["mixed"], indirect=True)
def test_an_interrupted_forward_leaves_nothing_behind(model: Network, made: Planned) -> None:
    """PyTorch calls no hook after an interrupt; the watch of forward must not see what runs later."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    *_, last = model.modules()
    with last.register_forward_hook(interrupt), pytest.raises(KeyboardInterrupt), made.apply(model):
        model(image())
    assert _get_current_dispatch_mode_stack() == []
    trained_once(made, model)
    assert made.loop.steps[-1].departure == ""
    model.zero_grad()


@pytest.mark.parametrize("made", ["mixed"], indirect=True)
def test_a_hook_that_fails_before_forward(model: Network, made: Planned) -> None:
    """What PyTorch calls whether or not forward ran finds that it did not."""
    with model.register_forward_pre_hook(fail), pytest.raises(OfTheUserError), made.apply(model):
        model(image())
    trained_once(made, model)
    assert made.loop.steps[-1].departure == ""
    model.zero_grad()


def test_a_warning_that_is_raised(model: Network, made: Planned) -> None:
    """The step that departs ends there; the next one follows the plan."""
    for _ in range(2):
        with made.apply(model):
            kept = loss(model(image()))
        made.loop._has_warned = False  # noqa: SLF001
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="another step has what it needs"):
                made.loop.apply(model).__enter__()
        backward(kept)
        trained_once(made, model)
        assert made.loop.steps[-1].departure == ""
    model.zero_grad()
