"""Planned loops on a pretended GPU, watched operation by operation: nothing accesses the bytes of a running copy."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.copy_stream import CudaCopyStream
from reports.promises import loss
from tests.pretend.stream_races import Happening, Hazard, find_hazards
from tests.pretend.test_apply import MODELS, part_of_plain, planned, train
from tests.pretend.watch import Watch, watched
from vdnnsim.api.planning import Planned, plan

# What is reserved is not looked at here.
pytestmark = [pytest.mark.pretend, pytest.mark.filterwarnings("ignore:PyTorch has reserved")]


def planned_to_move(name: str) -> tuple[Planned, nn.Module, Tensor]:
    """Return a plan of a model that moves, the model, and a batch."""
    make, part = MODELS[name]
    model, batch = make()
    model.cuda()
    # Without copies there would be nothing to watch.
    made = planned(model, batch, part_of_plain(model, batch, part), policy="optimal(recompute=false)")
    return made, model, batch


def two_steps(name: str) -> tuple[Planned, Callable[[], None]]:
    """Return a plan of a model that moves, and two steps under it."""
    made, model, batch = planned_to_move(name)
    return made, lambda: void(train(model, batch, 2, made.apply))


def void(_: object) -> None:
    """Return nothing."""


def hazards(made: Planned, happened: list[Happening]) -> list[Hazard]:
    copy_stream = made.loop.copy_stream
    assert isinstance(copy_stream, CudaCopyStream)
    return find_hazards(happened, {copy_stream.stream.cuda_stream})


def copied_bytes(made: Planned, watch: Watch) -> int:
    copy_stream = made.loop.copy_stream
    assert isinstance(copy_stream, CudaCopyStream)
    return watch.copied_bytes.get(copy_stream.stream.cuda_stream, 0)


@pytest.mark.parametrize("name", ["perceptron", "convolutional", "encoder"])
def test_nothing_overlaps_a_copy_that_is_not_ordered_before_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: offloads and prefetches are copied on a stream of their own, and no two disturb each other."""
    made, steps = two_steps(name)
    watch, happened = watched(steps, monkeypatch)
    logs = made.loop.steps[-2:]
    assert [each.departure for each in logs] == ["", ""]
    moved_bytes = sum(each.offloaded_bytes + each.fetched_bytes for each in logs)
    # Attention with dropout has a few numbers on the host, which stay where they are.
    assert 0 <= 4 * made.loop.schedule.offloaded_bytes - moved_bytes <= 256
    assert copied_bytes(made, watch) == moved_bytes > 0
    assert find_hazards(happened) == hazards(made, happened) == []


@pytest.mark.parametrize(("whose", "left_out"), [(CudaCopyStream, "wait"), (torch.cuda.Stream, "wait_stream")])
def test_a_wait_that_is_left_out_is_a_race(whose: type, left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the loop for its copies, or of copies for the loop."""
    made, steps = two_steps("perceptron")
    monkeypatch.setattr(whose, left_out, lambda *_: None)
    _, happened = watched(steps, monkeypatch)
    assert hazards(made, happened) != []


class Branches(nn.Module):
    """Two branches, one of them on a stream of its own, correctly joined.

    It `lends` tensors of the side stream to the main one, as PyTorch's documentation advises; it `shares` them if the
    main stream saves tensors of the other's pool that need no backward there.
    """

    def __init__(self, *, lends: bool, shares: bool) -> None:
        super().__init__()
        self.main = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.beside = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))
        self.out = nn.Linear(64, 4)
        self.lends, self.shares = lends, shares
        self.is_hidden = False
        self.streams: list[Any] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> "Branches":
        """Copy all but streams, which are of no copy."""
        new = Branches(lends=self.lends, shares=self.shares)
        for name, part in self.named_children():
            setattr(new, name, copy.deepcopy(part, memo))
        new.is_hidden = self.is_hidden
        return new

    def forward(self, given: Tensor) -> Tensor:
        main = torch.cuda.current_stream()
        # Captured on one stream, for what is fake is of the CPU.
        side = main if self.is_hidden and not given.is_cuda else self.side
        side.wait_stream(main)
        left = right = given
        for one, other in zip(self.main, self.beside, strict=True):
            with torch.cuda.stream(side):
                right = torch.tanh(other(right))
                shared = right + 1
            left = torch.tanh(one(left))
            if self.shares:
                main.wait_stream(side)
                # To square saves what it is given, of the other stream's pool.
                left = left * shared.square()
        main.wait_stream(side)
        if self.lends:
            right.record_stream(main)
        result: Tensor = self.out(left * right)
        return result

    @property
    def side(self) -> torch.cuda.Stream:
        if not self.streams:
            self.streams.append(torch.cuda.Stream())  # type: ignore[no-untyped-call]
        stream: torch.cuda.Stream = self.streams[0]
        return stream


def branches(policy: str, *, lends: bool = False, shares: bool = False, is_hidden: bool = False) -> tuple[Planned, Any]:
    torch.manual_seed(0)
    model = Branches(lends=lends, shares=shares)
    model.is_hidden = is_hidden
    model.cuda()
    batch = torch.zeros(4096, 64)
    made = plan(*(model, batch), hardware="rtx_4090", policy=policy, loss=loss, optimizer="sgd", memory_model="ideal")
    return made, lambda: void(train(model, batch, 3, made.apply))


@pytest.mark.parametrize("policy", ["save_on_cpu", "checkpoint"])
@pytest.mark.parametrize(("lends", "shares"), [(False, False), (True, False), (False, True)])
def test_branches_on_two_streams(policy: str, lends: bool, shares: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Only storages of the main stream are offloaded; no copy races with either."""
    made, steps = branches(policy, lends=lends, shares=shares)
    watch, happened = watched(steps, monkeypatch)
    schedule = made.loop.schedule
    assert {each.departure for each in made.loop.steps} == {""}
    assert schedule.tape.aside
    assert not schedule.tape.aside & (schedule.offloaded | schedule.recomputed)
    assert copied_bytes(made, watch) == 2 * 3 * schedule.offloaded_bytes
    if policy == "save_on_cpu":
        assert schedule.offloaded_bytes > 0
    assert hazards(made, happened) == []


def test_a_stream_that_capture_did_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that uses another stream only on a GPU: its steps depart with a warning, and offloads are prefetched."""
    made, steps = branches("save_on_cpu", is_hidden=True)
    assert not made.loop.schedule.tape.aside
    with pytest.warns(UserWarning, match="another stream"):
        _, happened = watched(steps, monkeypatch)
    assert all("another stream" in each.departure for each in made.loop.steps)
    assert hazards(made, happened) == []


class Shifted(nn.Module):
    def forward(self, batch: Tensor) -> Tensor:
        return batch + 1


@pytest.mark.parametrize("lends", [True, False])
def test_what_recomputation_reads_is_lent_to_its_stream(lends: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """A batch of another stream's pool, which waited for forward, the last that reads the batch without a plan.

    Backward recomputes from it: its block is not reused while the stream of the step has yet to do so.
    """
    if not lends:
        monkeypatch.setattr(CudaCopyStream, "lend", lambda *_: None)
    layers = [each for _ in range(4) for each in (Shifted(), nn.Linear(256, 256), nn.Tanh())]
    model, side = nn.Sequential(*layers).cuda(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    given = torch.zeros(4096, 256, device="cuda")
    made = plan(model, given, hardware="rtx_4090", policy="checkpoint", loss=loss, optimizer="sgd")
    assert 0 in made.loop.schedule.recomputed_operations
    with torch.cuda.stream(side):
        batch = torch.zeros(4096, 256, device="cuda")
    address = batch.data_ptr()
    torch.cuda.current_stream().wait_stream(side)
    with made.apply(model):
        result = loss(model(batch))
        side.wait_stream(torch.cuda.current_stream())
        del batch
        torch.cuda._sleep(10**8)  # type: ignore[no-untyped-call]  # noqa: SLF001
        result.backward()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        is_reused = torch.empty(4096, 256, device="cuda").data_ptr() == address
    assert is_reused is not lends
