"""The optimizer's states on the host: where a plan puts them by itself, and that they may be read at any time."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.copy_stream import CpuLane
from tests.apply.models import MODELS, backward, loss, rows
from tests.apply.training import alike
from vdnnsim.api.planning import Planned, plan

POLICY = "optimal(recompute=false, offload_optimizer=true, time_limit=0.2 s)"


@pytest.fixture(scope="module")
def small() -> nn.Module:
    torch.manual_seed(0)
    return MODELS["perceptron"].make_model()


def planned(model: nn.Module, memory_bytes: float | None = None) -> Planned:
    memory = None if memory_bytes is None else f"{int(memory_bytes)} B"
    return plan(model, rows(), hardware="rtx_4090", policy=POLICY, loss=loss, memory=memory, memory_model="ideal")


def tight(model: nn.Module) -> Planned:
    """Plan within nine tenths of what it takes to have all states on the GPU."""
    needed_bytes = planned(model).predicted.metrics.max_memory_bytes
    return planned(model, 0.9 * needed_bytes)


class HostLagging(CpuLane):
    """As on a GPU: what the stream waits for the host has not yet, so copies to the host end when the host waits.

    Attributes:
        host: the address of the storage that is on the host.
    """

    def __init__(self, host: int) -> None:
        super().__init__()
        self.host = host
        self._waiting: list[Callable[[], Any]] = []

    def copy(self, target: Tensor, source: Tensor) -> Any:  # noqa: ANN401 - a mark
        """Copy at once to the device; the host's content is what it was, until it has waited."""
        if target.untyped_storage().data_ptr() != self.host:
            return super().copy(target, source)
        kept = source.clone()
        self._waiting.append(lambda: target.copy_(kept))
        return len(self._waiting)

    def wait(self, mark: Any) -> None:  # noqa: ANN401
        """Let the device go on."""
        if not isinstance(mark, int):
            super().wait(mark)

    def finish(self, mark: Any) -> None:  # noqa: ANN401
        """Copy all up to a mark."""
        if not isinstance(mark, int):
            super().finish(mark)
            return
        for each in self._waiting[:mark]:
            each()
        self._waiting[:mark] = [lambda: None] * mark


def states_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [each for state in optimizer.state.values() for each in state.values()]


def trained(model: nn.Module, made: Planned | None, look: Callable[[torch.optim.Optimizer], None]) -> list[Tensor]:
    """Return weights and states after three steps; a look is taken behind each update."""
    torch.manual_seed(1)
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    if made is not None:
        made.loop.lane = HostLagging(made.loop.arena.slice(0, 1).untyped_storage().data_ptr())
        made.stream(optimizer, model)
    for _ in range(3):
        backward(loss(model(rows())))
        optimizer.step()
        look(optimizer)
        optimizer.zero_grad()
    return [*model.state_dict().values(), *states_of(optimizer)]


def test_a_limit_of_memory_has_some_states_on_the_host(small: nn.Module) -> None:
    """With all of the memory that it takes none are there; with nine tenths some, as few as need be, and bits stay."""
    made = tight(small)
    there = {name: place for name, place in made.loop.agenda.states.items() if place}
    assert not any(planned(small).loop.agenda.states.values())
    assert 0 < len(there) < len(made.loop.agenda.states)
    assert made.loop.agenda.pinned_bytes >= sum(map(len, there.values()))
    pinned: list[int] = []

    def look(optimizer: torch.optim.Optimizer) -> None:
        host = made.loop.arena.slice(0, 1).untyped_storage().data_ptr()
        pinned.append(sum(each.untyped_storage().data_ptr() == host for each in states_of(optimizer)))

    assert alike(trained(small, None, lambda _: None), trained(small, made, look))
    assert pinned == [len(there)] * 3


def test_states_are_read_as_soon_as_the_step_returns(small: nn.Module) -> None:
    """By the host, which no stream waits for."""

    def looked(made: Planned | None) -> list[Tensor]:
        seen: list[Tensor] = []
        trained(small, made, lambda optimizer: seen.extend(each.clone() for each in states_of(optimizer)))
        return seen

    assert alike(looked(None), looked(tight(small)))


def test_states_are_read_amid_a_step(small: nn.Module) -> None:
    """In a hook behind each update all states are those of before or behind it, none is half of either.

    Of the first of several updates the others' are those of before, and at the last all are those of behind.
    """
    seen: list[list[Tensor]] = []

    def look(optimizer: torch.optim.Optimizer) -> None:
        if not seen:
            seen.append([each.clone() for each in states_of(optimizer)])
            optimizer.register_step_post_hook(lambda *_: seen.append([each.clone() for each in states_of(optimizer)]))

    trained(small, None, look)
    plain, seen = seen, []
    trained(small, tight(small), look)
    parameters = len(list(small.parameters()))
    assert len(seen) == 1 + 2 * parameters
    for number, found in enumerate(seen[1:]):
        before, behind = plain[number // parameters], plain[number // parameters + 1]
        either = zip(found, before, behind, strict=True)
        assert all(torch.equal(each, old) or torch.equal(each, new) for each, old, new in either)
    assert alike(seen[parameters], plain[1])


def test_an_update_that_fails_leaves_states_where_they_are_right(small: nn.Module) -> None:
    """One of its hooks raises at the second parameter: the first is updated, all others are not, and may be read."""
    made = tight(small)
    updates: list[int] = []

    def fail(*_: object) -> None:
        updates.append(1)
        if len(updates) == 2:
            raise ValueError("as it may")

    model = copy.deepcopy(small)
    optimizer = torch.optim.AdamW(model.parameters())
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    optimizer.step()
    made.loop.lane = HostLagging(made.loop.arena.slice(0, 1).untyped_storage().data_ptr())
    made.stream(optimizer, model)
    before = [each.clone() for each in states_of(optimizer)]
    optimizer.register_step_pre_hook(fail)
    with pytest.raises(ValueError, match="as it may"):
        optimizer.step()
    of_first = len(optimizer.state[next(model.parameters())])
    assert alike(states_of(optimizer)[of_first:], before[of_first:])
    assert [float(each) for each in states_of(optimizer) if not each.dim()] == [2.0, *[1.0] * 5]
    optimizer.step()
    assert [float(each) for each in states_of(optimizer) if not each.dim()] == [3.0, *[2.0] * 5]
