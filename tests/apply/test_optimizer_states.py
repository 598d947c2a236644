"""Optimizer states on the host: the same bits, readable at any time."""

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.copy_stream import CpuCopyStream
from tests.apply.models import MODELS, backward, loss, rows
from tests.apply.training import alike, put_all_states_on_host, requested, without
from vdnnsim.api.planning import Planned
from vdnnsim.errors import ExecutionRefused

POLICY = "optimal(recompute=false, offload_optimizer=true, time_limit=0.2 s)"
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "adamw_fused": lambda weights: torch.optim.AdamW(weights, fused=True),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
}


@pytest.fixture(scope="module")
def small() -> nn.Module:
    torch.manual_seed(0)
    return MODELS["perceptron"].make_model()


def planned(
    model: nn.Module, memory_bytes: float | None = None, policy: str = POLICY, optimizer: str = "adamw"
) -> Planned:
    memory = None if memory_bytes is None else f"{int(memory_bytes)} B"
    return requested(model, rows(), policy, memory=memory, optimizer=optimizer).planned()


def tight(model: nn.Module) -> Planned:
    """Plan within nine tenths of the memory for all states on the GPU."""
    needed_bytes = planned(model).predicted.metrics.allocated_bytes
    return planned(model, 0.9 * needed_bytes)


@pytest.fixture
def all_on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    put_all_states_on_host(monkeypatch)


def pinned_of(made: Planned) -> int:
    return made.loop.arena.slice(0, 1).untyped_storage().data_ptr()


class HostLagging(CpuCopyStream):
    """Copies to the storage at address `host` end when the host waits for them, as on a GPU."""

    def __init__(self, host: int) -> None:
        super().__init__()
        self.host = host
        self._waiting: list[Callable[[], Any]] = []

    def copy(self, target: Tensor, source: Tensor) -> Any:  # noqa: ANN401 - a mark
        """Copy at once to the device, and to the host in `finish`."""
        if target.untyped_storage().data_ptr() != self.host:
            return super().copy(target, source)
        kept = source.clone()
        self._waiting.append(lambda: target.copy_(kept))
        return len(self._waiting)

    def wait(self, mark: Any) -> None:  # noqa: ANN401
        if not isinstance(mark, int):
            super().wait(mark)

    def finish(self, mark: Any) -> None:  # noqa: ANN401
        if not isinstance(mark, int):
            super().finish(mark)
            return
        for each in self._waiting[:mark]:
            each()
        self._waiting[:mark] = [lambda: None] * mark


def states_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [each for state in optimizer.state.values() for each in state.values() if isinstance(each, Tensor)]


def trained(model: nn.Module, made: Planned | None, look: Callable[[torch.optim.Optimizer], None]) -> list[Tensor]:
    """Return weights and states after three steps; `look` is called after each update."""
    torch.manual_seed(1)
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    if made is not None:
        made.loop.copy_stream = HostLagging(pinned_of(made))
        made.stream(optimizer, model)
    for _ in range(3):
        backward(loss(model(rows())))
        optimizer.step()
        look(optimizer)
        optimizer.zero_grad()
    return [*model.state_dict().values(), *states_of(optimizer)]


@pytest.mark.parametrize(
    "name", [each if each == "adamw" else pytest.param(each, marks=pytest.mark.thorough) for each in OPTIMIZERS]
)
@pytest.mark.usefixtures("all_on_host")
def test_states_are_streamed_through_the_update(name: str, small: nn.Module) -> None:
    made = planned(small, optimizer=name)
    assert "by plan.stream(optimizer, model)" in str(made)

    def train(made: Planned | None) -> list[Tensor]:
        torch.manual_seed(1)
        trained = copy.deepcopy(small)
        optimizer = OPTIMIZERS[name](trained.parameters())
        if made is not None:
            made.stream(optimizer, trained)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for step in range(4):
            with (without if made is None else made.apply)(trained):
                result = loss(trained(rows()))
                backward(result)
                if step == 2:
                    continue
            if step == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        states = states_of(optimizer)
        if made is not None:
            assert {each.untyped_storage().data_ptr() for each in states} == {pinned_of(made)}
        return [result.detach(), *trained.state_dict().values(), *states]

    assert alike(train(None), train(made))
    assert {each.departure for each in made.loop.steps} == {""}


def test_under_a_memory_limit_some_states_are_on_the_host(small: nn.Module) -> None:
    made = tight(small)
    there = {name for name, place in made.loop.schedule.states.items() if place}
    assert not any(planned(small).loop.schedule.states.values())
    assert 0 < len(there) < len(made.loop.schedule.states)
    assert made.loop.schedule.pinned_bytes >= sum(map(len, made.loop.schedule.states.values()))
    names = [name for name, _ in small.named_parameters()]

    def look(optimizer: torch.optim.Optimizer) -> None:
        assert there == {
            f"{name} {key}"
            for name, state in zip(names, optimizer.state.values(), strict=True)
            for key, each in state.items()
            if each.untyped_storage().data_ptr() == pinned_of(made)
        }

    assert alike(trained(small, None, lambda _: None), trained(small, made, look))


def test_states_are_read_as_soon_as_the_step_returns(small: nn.Module) -> None:

    def looked(made: Planned | None) -> list[Tensor]:
        seen: list[Tensor] = []
        trained(small, made, lambda optimizer: seen.extend(each.clone() for each in states_of(optimizer)))
        return seen

    assert alike(looked(None), looked(tight(small)))


def test_states_are_read_within_a_step(small: nn.Module) -> None:
    """In a hook of each update a state is that of before the step or of after it; at the last, all are of after."""
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


def test_states_after_a_failed_update(small: nn.Module) -> None:
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
    made.loop.copy_stream = HostLagging(pinned_of(made))
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


@pytest.mark.usefixtures("all_on_host")
def test_refused_optimizers(small: nn.Module) -> None:
    made = planned(small)
    trained = copy.deepcopy(small)
    with pytest.raises(ExecutionRefused, match=r"expected plan.stream\(optimizer, model\) before"), made.apply(trained):
        pass
    with pytest.raises(ExecutionRefused, match="optimizer: found SGD, expected adamw"):
        made.stream(torch.optim.SGD(trained.parameters()), trained)
    with pytest.raises(ExecutionRefused, match="the plan keeps the optimizer's states on the GPU"):
        planned(small, policy="save_on_cpu").stream(torch.optim.AdamW(trained.parameters()), trained)
    optimizer = torch.optim.AdamW(trained.parameters(), amsgrad=True)
    made.stream(optimizer, trained)
    with made.apply(trained):
        backward(loss(trained(rows())))
    with pytest.raises(ExecutionRefused, match="max_exp_avg_sq: a state of 2048 bytes, expected 0, as planned"):
        optimizer.step()


@pytest.mark.usefixtures("all_on_host")
def test_one_optimizer_at_once_streams_its_states(small: nn.Module) -> None:
    """Streaming it again changes nothing; another may once it is gone, without the cyclic collector."""
    made = planned(small)
    trained = copy.deepcopy(small)
    optimizer = torch.optim.AdamW(trained.parameters())
    # After this pinned memory is reserved anew.
    made.loop.unpin()
    made.stream(optimizer, trained)
    step = optimizer.step
    made.stream(optimizer, trained)
    assert optimizer.step == step
    other = torch.optim.AdamW(trained.parameters())
    with pytest.raises(ExecutionRefused, match="the states of another optimizer on the host"):
        made.stream(other, trained)
    made.loop.unpin()
    assert made.loop.arena.nbytes > 0
    gc.disable()
    try:
        del optimizer, step
        made.loop.unpin()
        assert made.loop.arena.nbytes == 0
    finally:
        gc.enable()
    made.stream(other, trained)
