"""Memory that a loop reserves ahead, for a captured step of a map of 40 MiB and a gradient of as much.

An operation of forward makes the map and saves it, a second a loss of 4 B; backward makes the gradient of the map and
then that of the weight (4 B); the update writes weight and, where there is one, a state of 24 MiB.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.captured_steps import Recording, chain, simulator
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Role
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import place
from vdnnsim.memory.private_pools import PrivatePools
from vdnnsim.memory.requests import Overflow, Placed
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.placement import DoesNotFit, Placement, asked_by_iteration, place_plan
from vdnnsim.plans.pool_units import Unit, Use
from vdnnsim.plans.reserved_memory import STATES, Reserving
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.unit_moves import UnitMoves
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import MIB

AHEAD = AllocatorSettings(preallocated=True)
LARGE = 40 * MIB
STATE = 24 * MIB
SMALL_BYTES = 2 * MIB
"""One segment for all that is small."""


def step_of(*, has_state: bool = False, map_bytes: int = LARGE, weight_bytes: int = 4) -> CapturedStep:
    r = Recording("toy", 1, ("fc", "loss"))
    floats = (map_bytes // 4,)
    weight = r.memory("fc.weight", BufferKind.WEIGHTS, (weight_bytes // 4,), given=True)
    x = r.memory("input", BufferKind.FEATURE_MAP, (1,), given=True)
    y = r.memory("relu", BufferKind.FEATURE_MAP, floats)
    loss = r.memory("loss", BufferKind.FEATURE_MAP, (1,))
    d_y = r.memory("gradient of relu", BufferKind.GRADIENT_MAP, floats)
    d_weight = r.memory("fc.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True)
    f, b = Phase.FORWARD, Phase.BACKWARD
    r.run("relu", "fc", f, reads=[(Role.INPUT, x), (Role.WEIGHTS, weight)], writes=[(Role.OUTPUT, y)], saves=[y])
    r.run("mean", "loss", f, reads=[(Role.INPUT, y)], writes=[(Role.OUTPUT, loss)])
    r.run("expand", "loss", b, reads=[(Role.INPUT, loss)], writes=[(Role.INPUT_GRADIENT, d_y)], forward=1)
    reads = [(Role.OUTPUT_GRADIENT, d_y), (Role.OUTPUT, y)]
    r.run("threshold_backward", "fc", b, reads=reads, writes=[(Role.WEIGHT_GRADIENT, d_weight)], forward=0)
    state = [r.memory("fc.weight momentum", BufferKind.OPTIMIZER_STATE, (STATE // 4,), given=True)] if has_state else []
    updates = [(Role.WEIGHTS, weight), *((Role.STATE, each) for each in state)]
    r.run("add_", "", Phase.UPDATE, reads=[(Role.WEIGHT_GRADIENT, d_weight)], updates=updates)
    return r.step()


def plan_of(step: CapturedStep) -> TrainingPlan:
    machine = simulator(step)
    (made,) = machine.ready([PyTorch().plan(machine.setting())], "pytorch(p)")
    return made


def reserving(step: CapturedStep, mib: int, serve: Callable[[Sequence[Asked]], Placed | Overflow]) -> Reserving:
    plan = plan_of(step)
    iterations = asked_by_iteration(plan, simulator(step).limits)
    return Reserving(plan, iterations, mib * MIB, 512, AHEAD, serve)


def served(asked: Sequence[Asked]) -> Placed:
    return Placed((None,) * len(asked), (0,) * len(asked), 0)


@pytest.fixture
def step() -> CapturedStep:
    return step_of()


def with_limits(step: CapturedStep, mib: int) -> Placement | DoesNotFit:
    limits = replace(simulator(step, AHEAD).limits, device_bytes=mib * MIB, granule_bytes=512)
    return place_plan(plan_of(step), limits)


def test_one_segment_is_reserved_where_it_has_room_for_all(step: CapturedStep) -> None:
    """What is left of 101 MiB beside a segment of small blocks, in whole pages of 2 MiB."""
    found = with_limits(step, 101)
    assert isinstance(found, Placement)
    assert found.reserved is not None
    assert found.reserved.own_bytes == 98 * MIB
    assert found.reserved.small_bytes == SMALL_BYTES
    assert not found.reserved.pools
    assert found.pool_bytes == 100 * MIB


@pytest.mark.parametrize(("mib", "own_mib"), [(121, 88), (119, 116)])
def test_of_ample_memory_no_more_is_reserved_than_needed(step: CapturedStep, mib: int, own_mib: int) -> None:
    """80 MiB are live at once and some KiB, with an eighth above 90: no more than 3/4 of 121 MiB, more of 119 MiB.

    Of 90 MiB 88 are whole pages beside the segment of small blocks, of 119 MiB 116.
    """
    found = with_limits(step, mib)
    assert isinstance(found, Placement)
    assert found.reserved is not None
    assert found.reserved.own_bytes == own_mib * MIB


def test_of_ample_memory_a_small_model_reserves_little() -> None:
    """12.5 MiB are live, most of them a workspace of 8.1 MiB, whose segment of 20 MiB leaves no more of twice as much.

    So 20 MiB beside are tried, of which the segment of small blocks takes 2 and one of its own 10, in whole pages.
    """
    found = with_limits(chain(2), 400)
    assert isinstance(found, Placement)
    assert found.reserved is not None
    assert found.reserved.own_bytes == 10 * MIB
    assert found.pool_bytes == (20 + 2 + 10) * MIB


def test_ample_memory_is_reserved_whole_where_less_has_no_room(
    step: CapturedStep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if gaps took more than there is twice: of 400 MiB, what is left beside the segment of small blocks."""
    monkeypatch.setattr(Reserving, "in_one", lambda _: None)
    found = with_limits(step, 400)
    assert isinstance(found, Placement)
    assert found.reserved is not None
    assert found.reserved.own_bytes == 398 * MIB


@pytest.mark.parametrize(("mib", "fits"), [(82, True), (81, False), (11, False)])
def test_one_segment_is_enough_if_no_other_is_taken(step: CapturedStep, mib: int, *, fits: bool) -> None:
    """80 MiB are live at once beside a segment of 2 MiB for small blocks; of 81 MiB whole pages leave 78."""

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        return place([each.request for each in asked], AHEAD, 400 * MIB, 512)

    assert (reserving(step, mib, serve).in_one() is not None) is fits


def test_blocks_of_another_stream_have_segments_of_their_own(step: CapturedStep) -> None:
    """Of 141 MiB the stream of a collective takes 40 for the gradient, which leaves 98 MiB in whole pages of 2 MiB."""
    found = reserving(step, 141, served)
    gradient = next(at for at, each in enumerate(found.plan.buffers) if each.kind is BufferKind.GRADIENT_MAP)
    iterations = [
        [
            each._replace(request=each.request._replace(stream=1)) if each.request.key == gradient else each
            for each in asked
        ]
        for asked in found.iterations
    ]
    assert replace(found, iterations=iterations).reserved().memory.own_bytes == 98 * MIB


def test_without_room_the_overflow_is_of_the_request_with_which_most_is_in_use(step: CapturedStep) -> None:
    """The map, and as much again for what backward makes of it: the second request has no room in 60 MiB."""
    found = with_limits(step, 60)
    assert isinstance(found, DoesNotFit)
    assert found.requested_bytes == LARGE
    assert found.largest_free_bytes < LARGE


def test_private_pools_are_tried_where_one_segment_has_gaps(step: CapturedStep) -> None:
    """As if no request found room but in private pools: the large map has one of its own, from its operation on."""

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        if any(each.request.pool > STATES for each in asked):
            return served(asked)
        return Overflow(len(asked) - 1, (), 0, 0)

    found = reserving(step, 200, serve).reserved()
    assert isinstance(found.answer, Placed)
    assert found.memory.segments
    assert {use for use, _ in found.memory.pools} == {Use.RUN}
    assert set(found.memory.pools.values()) <= set(found.memory.segments)
    reserved = [each.request for each in found.iterations[0] if each.request.key >= len(plan_of(step).buffers)]
    private_bytes = sum(map(sum, found.memory.segments.values()))
    assert sum(each.nbytes or 0 for each in reserved) == found.memory.own_bytes + private_bytes


@pytest.mark.parametrize("moves", [1, 99])
def test_units_move_where_their_pool_has_no_room(
    step: CapturedStep, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if blocks found room in PyTorch's own pool alone, beside private segments, once units moved so often."""
    asked_of, made = list[int](), len(plan_of(step).buffers)

    def moved(found: UnitMoves, *_: object) -> dict[Unit, int]:
        asked_of.append(len(found.asked))
        return dict.fromkeys(found.units.values(), 0 if len(asked_of) >= moves else STATES + 1)

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        private = [each.request.key < made for each in asked if each.request.pool > STATES]
        return served(asked) if private and not any(private) else Overflow(len(asked) - 1, (), 0, 0)

    monkeypatch.setattr(UnitMoves, "moved", moved)
    found = reserving(step, 200, serve).reserved()
    assert isinstance(found.answer, Placed) is (moves == 1)
    assert not found.memory.pools
    assert bool(found.memory.segments) is (moves == 1)


@pytest.mark.parametrize(("mib", "short_mib"), [(60, 22), (81, 2), (82, 0)])
def test_blocks_are_short_of_what_no_address_gives_them(step: CapturedStep, mib: int, short_mib: int) -> None:
    """Blocks of 80 MiB are live at once: beside small blocks there are 58, 78 and 80 MiB, which may have gaps."""

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        return Overflow(len(asked) - 1, (), 0, 0)

    found = reserving(step, mib, serve).reserved()
    assert isinstance(found.answer, Overflow)
    assert found.answer.short_bytes == short_mib * MIB
    placed = with_limits(step, mib)
    assert (placed.short_bytes if isinstance(placed, DoesNotFit) else 0) == short_mib * MIB


@pytest.mark.parametrize(
    ("weight_bytes", "mib", "short_mib"), [(4, 16, 2), (4, 18, 0), (4 * MIB, 22, 0), (6 * MIB, 22, 2)]
)
def test_small_blocks_may_lie_beside_weights(weight_bytes: int, mib: int, short_mib: int) -> None:
    """Blocks of 16 MiB are live at once: beside small blocks there are 14 and 16 MiB.

    In 22 MiB a segment of 20 for the weight leaves nothing, but has 16 MiB free beside 4 MiB, and 14 MiB beside 6.
    """
    step = step_of(map_bytes=8 * MIB, weight_bytes=weight_bytes)
    found = reserving(step, mib, lambda asked: Overflow(len(asked) - 1, (), 0, 0)).reserved()
    assert isinstance(found.answer, Overflow)
    assert found.answer.short_bytes == short_mib * MIB


@pytest.mark.parametrize("mib", [82, 200])
def test_what_no_reservation_has_room_for_overflows(step: CapturedStep, mib: int) -> None:
    """Of 82 MiB 80 are for what is large: both blocks of 40 MiB, but not with room for gaps beside one's segment."""

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        return Overflow(len(asked) - 1, (), 0, 0)

    found = reserving(step, mib, serve).reserved()
    assert isinstance(found.answer, Overflow)
    assert found.answer.free_bytes >= 0


def test_expandable_segments_are_never_cut(step: CapturedStep) -> None:
    settings = replace(AHEAD, expandable_segments=True)
    limits = replace(simulator(step, settings).limits, device_bytes=60 * MIB, granule_bytes=512, total_bytes=None)
    assert isinstance(place_plan(plan_of(step), limits), DoesNotFit)


def test_no_other_memory_model_reserves_ahead(step: CapturedStep) -> None:
    limits = replace(simulator(step, MemoryModel.PYTORCH).limits, device_bytes=200 * MIB)
    placed = place_plan(plan_of(step), limits)
    assert isinstance(placed, Placement)
    assert placed.reserved is None


def test_a_layout_that_is_too_high_says_what_is_lacking(step: CapturedStep, monkeypatch: pytest.MonkeyPatch) -> None:
    """By 5 MiB, so the request with which most is in use finds 5 MiB less than its 40."""
    monkeypatch.setattr(PrivatePools, "cuts", lambda _: iter([5 * MIB, 7 * MIB]))

    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        return Overflow(next(at for at, each in enumerate(asked) if each.request.nbytes == LARGE), (), 0, 0)

    answer = reserving(step, 200, serve).reserved().answer
    assert isinstance(answer, Overflow)
    assert answer.largest_free_bytes == LARGE - 5 * MIB
