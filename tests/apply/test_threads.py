"""Concurrent threads that follow a plan, run its model or unpack its storages."""

from collections.abc import Callable, Sequence
from threading import Barrier, Event, Thread
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from reports.capture.case import Case
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS, Function, Network, loss, rows
from tests.apply.training import alike, planned
from vdnnsim.api.planning import Planned

pytestmark = pytest.mark.filterwarnings("ignore:the plan of")


def in_threads(*works: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def attempt(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - raised below
            failures.append(failure)

    threads = [Thread(target=attempt, args=(work,), daemon=True) for work in works]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    if failures:
        raise failures[0]


def gradients_of(trained: nn.Module, result: Tensor) -> Sequence[Tensor]:
    return torch.autograd.grad(result, [*trained.parameters()])


SMALL = MODELS["perceptron"]
"""It draws no random numbers: threads share the generator."""


@pytest.fixture(scope="module", params=["save_on_cpu", "mixed"])
def small(request: pytest.FixtureRequest) -> Planned:
    with known_as_mixed():
        return planned(SMALL, SMALL.make_model(), request.param)


def test_two_threads_follow_one_plan(small: Planned) -> None:
    torch.manual_seed(5)
    models = [SMALL.make_model() for _ in range(2)]
    batches = [rows() for _ in range(2)]
    expected = [gradients_of(each, loss(each(batch))) for each, batch in zip(models, batches, strict=True)]
    barrier = Barrier(2, timeout=20)

    def work(which: int) -> Callable[[], None]:
        def step() -> None:
            for _ in range(5):
                barrier.wait()
                with small.loop.apply(models[which]):
                    barrier.wait()
                    result = loss(models[which](batches[which]))
                    barrier.wait()
                assert alike(expected[which], gradients_of(models[which], result))
                del result

        return step

    in_threads(work(0), work(1))
    assert sorted(bool(each.departure) for each in small.loop.steps[-10:]) == [False] * 5 + [True] * 5


def test_another_thread_runs_the_model_meanwhile(small: Planned) -> None:
    trained: Network = SMALL.make_model()
    batch = rows()
    expected = gradients_of(trained, loss(trained(batch)))
    within, after = Event(), Event()

    def evaluate() -> None:
        with torch.no_grad():
            trained(batch)

    thread = Thread(target=evaluate, daemon=True)

    def meet(*_: object) -> None:
        if torch.is_grad_enabled():
            thread.start()
            assert within.wait(20)
        else:
            within.set()
            assert after.wait(20)

    with trained[0].register_forward_hook(meet):
        with small.loop.apply(trained) as log:
            result = loss(trained(batch))
            after.set()
            thread.join(20)
        assert alike(expected, gradients_of(trained, result))
    assert _get_current_dispatch_mode_stack() == []
    assert log.departure == ""


def test_two_threads_unpack_one_storage() -> None:
    """Of two losses of one trunk; the copy is delayed until both wait for it."""

    def run(self: Network, batch: Tensor) -> Network:
        hidden = self.trunk(batch).tanh()
        return self.one(hidden), self.other(hidden)

    def sums(heads: Network) -> Network:
        return heads[0].sum() + heads[1].sum()

    parts = {"trunk": nn.Linear(16, 16), "one": nn.Linear(16, 4), "other": nn.Linear(16, 4)}
    trunk: Network = Function(run, **parts)
    case = Case("trunk", "own", lambda: trunk, lambda: ((rows(),), {}), sums, "sgd")
    made = planned(case, trunk, "save_on_cpu")
    weights = [trunk.one.weight, trunk.other.weight]
    batch = rows()

    def losses() -> list[Tensor]:
        return [each.sum() for each in trunk(batch)]

    expected = [torch.autograd.grad(*each)[0] for each in zip(losses(), weights, strict=True)]
    with made.apply(trunk):
        results = losses()
    may_copy, waits = Event(), Event()
    made.loop.copy_stream.stream.launch(may_copy.wait)  # type: ignore[attr-defined]
    found: dict[int, Tensor] = {}
    wait = made.loop.copy_stream.wait

    def work(which: int) -> None:
        (found[which],) = torch.autograd.grad(results[which], weights[which])

    def waiting(mark: object) -> None:
        waits.set()
        wait(mark)

    def release() -> None:
        assert waits.wait(20)
        Event().wait(0.3)
        may_copy.set()

    with mock.patch.object(made.loop.copy_stream, "wait", waiting):
        in_threads(lambda: work(0), lambda: work(1), release)
    assert alike(expected, [found[0], found[1]])
