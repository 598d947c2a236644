"""Several live steps of one plan, in any order of forward and backward."""

import copy
import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from calibration.apply.copy_stream import CpuCopyStream
from calibration.apply.live_schedule import Action, LiveSchedule, Offload, Release
from calibration.apply.pinned_slots import PinnedSlots
from calibration.apply.saved_storage import SavedStorage
from tests.apply.models import Network, backward, image, loss
from tests.apply.training import Applied, alike, without
from vdnnsim.api.planning import Planned
from vdnnsim.errors import InternalError

pytestmark = pytest.mark.filterwarnings("ignore:the plan of")


def late(schedule: LiveSchedule, *kinds: type[Action]) -> LiveSchedule:
    """Return a schedule with some actions delayed to the begin of backward, or to before their first unpack."""
    saves = schedule.tape.saves
    first: dict[int, int] = {}
    for at, unpack in enumerate(schedule.tape.unpacks):
        first.setdefault(saves[unpack.save].storage, at + len(saves))
    due: list[list[Action]] = [[] for _ in schedule.actions]
    for point, actions in enumerate(schedule.actions):
        for each in actions:
            at = point
            if isinstance(each, Offload | Release) and type(each) in kinds:
                at = min(first[each.storage] - 1, len(saves))
            due[max(point, at)].append(each)
    return replace(schedule, actions=tuple(map(tuple, due)))


@contextmanager
def with_schedule(made: Planned, schedule: LiveSchedule) -> Iterator[None]:
    with mock.patch.object(made.loop, "schedule", schedule):
        yield


LATE: list[tuple[type[Action], ...]] = [(), (Release,), (Offload, Release)]
"""Storages are released at once, or when backward begins, or are offloaded only then."""

IN_PARTS = ["AB2ab", "AB1ba", "AaBC3bc", "ABC1bca", "A1Ba", "AaBab", "ABaCbaca"]
"""Orders in which backward begins (`2`: of `B`) long before its rest, or runs twice."""


def orders(count: int) -> list[str]:
    """Return all orders of forwards (`A`, `B` ...) and backwards (`a`, `b` ...), each after its own forward."""
    found = [""]
    for _ in range(2 * count):
        found = [
            order + each
            for order in found
            for begun in [sum(map(str.isupper, order))]
            for each in ["ABCD"[begun : begun + 1] if begun < count else "", *"abcd"[:begun]]
            if each and each not in order
        ]
    return found


def run(model: nn.Module, order: str, applied: Applied) -> list[Tensor]:
    """Run an order; `+` is one backward of all losses that are left, `2` that of `B` for the last bias alone."""
    torch.manual_seed(5)
    trained = copy.deepcopy(model)
    batches = {each: image() for each in "ABCD"}
    losses: dict[str, Tensor] = {}
    found: list[Tensor] = []
    for at, each in enumerate(order):
        if each == "+":
            backward(torch.stack([*losses.values()]).sum())
            losses.clear()
        elif each.isupper():
            with applied(trained):
                losses[each.lower()] = loss(trained(batches[each]))
            continue
        elif each.isdigit():
            *_, last = trained.parameters()
            found += torch.autograd.grad(losses["abcd"[int(each) - 1]], last, retain_graph=True)
            continue
        else:
            backward(
                losses[each] if each in order[at + 1 :] else losses.pop(each), retain_graph=each in order[at + 1 :]
            )
        found += [parameter.grad.clone() for parameter in trained.parameters() if parameter.grad is not None]
        trained.zero_grad()
    return [*found, *trained.buffers()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kinds", LATE)
def test_every_order_of_three_steps(model: Network, made: Planned, kinds: tuple[type[Action], ...]) -> None:
    with with_schedule(made, late(made.loop.schedule, *kinds)):
        for order in [*orders(3), *IN_PARTS, "ABC+", "AaBC+", "ABaC+"]:
            assert alike(run(model, order, without), run(model, order, made.apply)), order
            run(model, "Aa", made.apply)
            assert made.loop.steps[-1].departure == "", order
            assert made.loop.steps[-1].offloaded_bytes == made.loop.schedule.offloaded_bytes > 0


@pytest.mark.parametrize("kinds", LATE)
def test_pinned_memory_stays_while_a_step_needs_it(
    model: Network, made: Planned, kinds: tuple[type[Action], ...]
) -> None:
    @contextmanager
    def resting(trained: nn.Module) -> Iterator[None]:
        with made.apply(trained):
            yield
        made.loop.unpin()

    with with_schedule(made, late(made.loop.schedule, *kinds)):
        assert alike(run(model, "ABab", without), run(model, "ABab", resting))
        made.loop.unpin()
        assert made.loop.arena.nbytes == 0


def test_steps_outlive_their_plan(model: Network, made: Planned) -> None:
    def use(plans: list[Planned]) -> list[Tensor]:
        torch.manual_seed(5)
        trained = copy.deepcopy(model)
        losses = []
        for _ in range(3):
            with plans[0].apply(trained) if plans else nullcontext():
                with torch.no_grad():
                    trained(image())
                losses.append(loss(trained(image())))
        plans.clear()
        gc.collect()
        for each in losses:
            backward(each)
        return [each.grad for each in trained.parameters() if each.grad is not None]

    assert alike(use([]), use([made._request.planned()]))  # noqa: SLF001


def test_a_slot_that_another_step_took_is_not_read(model: Network, made: Planned) -> None:
    """Two steps that offload at once, by a patch: the first raises, each time, the second is right."""
    torch.manual_seed(5)
    trained = copy.deepcopy(model)
    batches = image(), image()
    state = torch.get_rng_state()
    loss(trained(batches[0]))
    backward(loss(trained(batches[1])))
    expected = [each.grad for each in trained.parameters() if each.grad is not None]
    trained = copy.deepcopy(model)
    torch.set_rng_state(state)
    with mock.patch.object(PinnedSlots, "is_used", new=False):
        with made.apply(trained):
            first = loss(trained(batches[0]))
        with made.apply(trained):
            second = loss(trained(batches[1]))
    found = r"storage (\d+) of step (\d+) .* its slot holds storage \d+ of step (?!\2)\d+"
    for _ in range(2):
        with pytest.raises(InternalError, match=found):
            backward(first, retain_graph=True)
    trained.zero_grad()
    backward(second)
    assert alike(expected, [each.grad for each in trained.parameters() if each.grad is not None])


def test_a_slot_that_was_unpinned_is_not_read(model: Network, made: Planned) -> None:
    for does in (made.loop.arena.give_back, lambda: made.loop.arena.reserve(2 * made.loop.arena.nbytes)):
        with made.apply(model):
            result = loss(model(image()))
        does()
        made.loop.arena.reserve(made.loop.schedule.pinned_bytes)
        with pytest.raises(InternalError, match="its slot holds nothing that a step needs"):
            backward(result)
    model.zero_grad()


@dataclass(eq=False)
class Storage:
    step: int
    number: int


def test_overlapping_slots_have_one_owner() -> None:
    """Slots of bytes 0-99, 0-9, 50-99 and 100-199: the first overlaps the next two, the last none."""
    slots = PinnedSlots(CpuCopyStream(), [(0, 100), (0, 10), (50, 50), (100, 100)])
    slots.reserve(200)
    whole, start, end, beside = (Storage(1, number) for number in range(4))
    assert slots.open(1)

    def write(owner: Storage, offset: int, nbytes: int) -> None:
        found = slots.write(owner, offset, nbytes)
        assert found is not None
        assert found.storage_offset() == offset

    write(beside, 100, 100)
    write(whole, 0, 100)
    write(start, 0, 10)
    with pytest.raises(InternalError, match="storage 0 of step 1"):
        slots.read(whole, 0, 100)
    write(end, 50, 50)
    for owner, offset, nbytes in ((start, 0, 10), (end, 50, 50), (beside, 100, 100)):
        assert slots.read(owner, offset, nbytes).nbytes == nbytes
    write(whole, 0, 100)
    for owner, offset, nbytes in ((start, 0, 10), (end, 50, 50)):
        with pytest.raises(InternalError, match="holds nothing that a step needs"):
            slots.read(owner, offset, nbytes)
    # An owner that lost its slot frees none.
    slots.free(start, 0, 100)
    assert slots.read(whole, 0, 100).nbytes == 100
    assert not slots.open(2)
    slots.free(whole, 0, 100)
    del beside, owner
    assert slots.open(2)
    assert slots.write(start, 0, 10) is None


def test_a_storage_on_the_host_in_part_is_recomputed() -> None:
    """Of eight bytes four were copied."""
    copy_stream = CpuCopyStream()
    slots = PinnedSlots(copy_stream, [(0, 4)])
    slots.reserve(4)
    assert slots.open(1)
    held = SavedStorage(0, torch.full((8,), 1, dtype=torch.uint8).untyped_storage(), copy_stream, None, slots, 1)
    held.recompute = lambda: held.restore(torch.full((8,), 2, dtype=torch.uint8).untyped_storage())
    assert held.offload(range(4), 0)
    assert held.release()
    assert held.materialize().tolist() == [2] * 8  # type: ignore[no-untyped-call]
    assert not slots.is_used
