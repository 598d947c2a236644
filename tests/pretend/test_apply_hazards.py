"""Hazards of planned loops that only a GPU shows: results equal those of the loop without a plan.

The host computes the kernels in the order of the streams, and copies move their bytes when they end.
"""

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from calibration.apply.copy_stream import CudaCopyStream
from calibration.devices.pinned_memory import PinnedMemory
from reports.promises import loss
from tests.host_arithmetic.operators import arithmetic_of_the_host
from tests.pretended_gpu import free_cache
from vdnnsim.api.planning import Planned, plan
from vdnnsim.errors import ExecutionRefused

pytestmark = pytest.mark.pretend

ROWS, WIDTH = 512, 32
POLICIES = ["save_on_cpu", "checkpoint(segments=3)"]
Feed = Callable[[], Iterator[Tensor]]


@pytest.fixture(autouse=True)
def computing() -> Iterator[None]:
    with arithmetic_of_the_host():
        yield
    free_cache()


def perceptron(width: int = WIDTH) -> nn.Module:
    torch.manual_seed(0)
    layers = [each for _ in range(5) for each in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 4)).cuda()


def planned(model: nn.Module, policy: str) -> Planned:
    return plan(
        *(model, torch.zeros(ROWS, WIDTH)),
        hardware="rtx_4090",
        policy=policy,
        loss=loss,
        optimizer="sgd",
        memory_model="ideal",
    )


def batches() -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(ROWS, WIDTH) for _ in range(3)]


def pageable() -> Iterator[Tensor]:
    """Non-blocking, from memory that is not pinned and is overwritten at once."""
    for each in batches():
        given = each.to("cuda", non_blocking=True)
        each.fill_(torch.nan)
        yield given


def pinned() -> Iterator[Tensor]:
    """From PyTorch's pinned memory, which is freed and allocated again while it is copied."""
    for each in batches():
        given = each.pin_memory().to("cuda", non_blocking=True)
        # Has the address of the other, if PyTorch did not wait.
        torch.empty_like(each, pin_memory=True).fill_(torch.nan)
        yield given


def loaded() -> Iterator[Tensor]:
    """From a worker that was forked, pinned by a thread."""
    data = TensorDataset(torch.cat(batches()))
    for (each,) in DataLoader(data, batch_size=ROWS, num_workers=1, pin_memory=True):
        yield each.to("cuda", non_blocking=True)


def ahead() -> Iterator[Tensor]:
    """Prefetched on another stream, from its pool, and freed as soon as its step is done."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    for each in batches():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            given = each.pin_memory().to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        yield given


def gradients(model: nn.Module, feed: Feed, made: Planned | None = None) -> list[Tensor]:
    model = copy.deepcopy(model)
    found = []
    for given in feed():
        with nullcontext() if made is None else made.apply(model):
            loss(model(given)).backward()  # type: ignore[no-untyped-call]
        found += [each.grad.cpu().clone() for each in model.parameters() if each.grad is not None]
        model.zero_grad()
    return found


def assert_same(model: nn.Module, feed: Feed, made: Planned) -> None:
    expected = gradients(model, feed)
    found = gradients(model, feed, made)
    assert len(found) == len(expected) == 3 * len(list(model.parameters()))
    assert all(map(torch.equal, found, expected))
    assert any(bool(each.any()) for each in expected)
    assert {each.departure for each in made.loop.steps} == {""}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("feed", [pageable, pinned, loaded, ahead])
def test_however_batches_come(feed: Feed, policy: str) -> None:
    """By non-blocking transfers of every kind of memory, and by threads and processes of a loader."""
    model = perceptron()
    assert_same(model, feed, planned(model, policy))


def _emptied() -> None:
    torch.cuda.empty_cache()


def _growing() -> None:
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")  # noqa: SLF001 - there is no public one


def _not_growing() -> None:
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")  # noqa: SLF001


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("amid", [(_emptied,), (_growing, _emptied, _not_growing, _emptied)])
def test_the_cache_is_emptied_or_the_allocator_set_midway(amid: tuple[Callable[[], None], ...], policy: str) -> None:
    """After each layer of forward and before each of backward, while freed memory may still be copied."""
    model = perceptron()
    made = planned(model, policy)
    done = 0

    def act(*_: Any) -> None:  # noqa: ANN401
        nonlocal done
        amid[done % len(amid)]()
        done += 1

    for each in model:  # type: ignore[attr-defined]
        each.register_forward_hook(act)
        each.register_full_backward_pre_hook(act)
    try:
        assert_same(model, lambda: iter([each.cuda() for each in batches()]), made)
    finally:
        _not_growing()
    assert done > 100


def test_a_step_is_not_captured_into_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture is simulated by PyTorch's answer: the plan refuses, and copies nothing."""
    model = perceptron()
    made = planned(model, "save_on_cpu")
    (given, *_) = [each.cuda() for each in batches()]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(ExecutionRefused, match="CUDA graph"), made.apply(model):
        model(given)


def test_a_plan_is_dropped_while_its_copies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a forward without backward: the host waits for the device before it unpins the targets of copies."""
    model = perceptron()
    made = planned(model, "save_on_cpu")
    (given, *_) = [each.cuda() for each in batches()]
    torch.cuda._sleep(10**8)  # type: ignore[no-untyped-call]  # noqa: SLF001
    with made.apply(model):
        result = model(given)
    calls: list[str] = []
    synchronize, unpin = torch.cuda.synchronize, PinnedMemory.give_back

    def reporter(what: str, call: Callable[..., None]) -> Callable[..., None]:
        def tell(*args: Any) -> None:  # noqa: ANN401
            calls.append(what)
            call(*args)

        return tell

    monkeypatch.setattr(torch.cuda, "synchronize", reporter("wait", synchronize))
    monkeypatch.setattr(PinnedMemory, "give_back", reporter("unpin", unpin))
    assert isinstance(made.loop.copy_stream, CudaCopyStream)
    assert not made.loop.copy_stream.stream.query()
    del result, made
    gc.collect()
    assert calls == ["wait", "unpin"]
