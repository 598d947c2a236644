"""States and segments of a process in memory that a loop reserves ahead; the step is that of `test_reserved_memory`."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from tests.captured_steps import simulator
from tests.unit.plans.test_reserved_memory import AHEAD, LARGE, SMALL_BYTES, STATE, plan_of, reserving, served, step_of
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.memory.live_segments import LiveBlock, LiveSegment, LiveSegments
from vdnnsim.memory.live_segments import Use as BlockUse
from vdnnsim.memory.requests import Overflow, Placed
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.reserved_memory import STATES
from vdnnsim.units import MIB


@pytest.mark.parametrize(("optimizer", "is_first"), [("adamw", True), ("momentum", False)])
def test_states_of_the_first_update_have_a_pool_of_their_own(optimizer: str, *, is_first: bool) -> None:
    """Of a chain that is updated: with AdamW the states, with momentum all from the first state on.

    Later updates use PyTorch's own pool.
    """
    step = msgspec.structs.replace(step_of(has_state=True), optimizer=optimizer)
    found = reserving(step, 200, served).reserved()
    pools = [[each.request.pool for each in iteration] for iteration in found.iterations]
    apart = [each.request.key for each in found.iterations[0] if each.request.pool == STATES]
    states = states_of_update(CapturedWorkload.of(step).step)
    assert apart
    assert states.issuperset(apart) or not is_first
    assert not any(map(any, pools[1:]))


def test_states_lie_amid_the_rest_where_only_that_has_room() -> None:
    def serve(asked: Sequence[Asked]) -> Placed | Overflow:
        is_apart = any(each.request.pool == STATES for each in asked)
        return Overflow(len(asked) - 1, (), 0, 0) if is_apart else served(asked)

    found = reserving(step_of(has_state=True), 200, serve).reserved()
    assert isinstance(found.answer, Placed)
    assert not found.memory.states_bytes


def test_a_step_begins_among_the_segments_of_its_process() -> None:
    """The map lies in the 40 MiB that are free beside another's 24; its gradient in as many that are reserved.

    82 MiB beside the other's are just enough: 2 of small blocks, in which the weight has its own block, and 80.
    """
    weight, free = LiveBlock(512, 4, BlockUse.PLANNED), LiveBlock(SMALL_BYTES - 512, 0, BlockUse.FREE)
    other = LiveBlock(24 * MIB, 24 * MIB, BlockUse.OTHER), LiveBlock(LARGE, 0, BlockUse.FREE)
    live = LiveSegments(
        (LiveSegment(is_small=False, blocks=other), LiveSegment(is_small=True, blocks=(weight, free))), has_states=False
    )
    limits = replace(simulator(step_of(), AHEAD).limits, device_bytes=82 * MIB, granule_bytes=512, live=live)
    found = place_plan(plan := plan_of(step_of()), limits)
    assert isinstance(found, Placement)
    assert found.reserved is not None
    assert found.reserved.own_bytes == LARGE
    assert found.pool_bytes == 106 * MIB
    offsets = {plan.buffers[each.buffer].name: each.offset for each in found.changes.values()}
    assert offsets["fc.weight"] == 64 * MIB
    assert offsets["relu"] == 24 * MIB
    assert offsets["gradient of relu"] == 66 * MIB


def test_states_that_are_there_are_made_by_no_update() -> None:
    """The state of 24 MiB is in a segment of its own, and needs no pool."""
    segments = LiveSegment(is_small=False, blocks=(LiveBlock(STATE, STATE, BlockUse.PLANNED),))
    limits = replace(simulator(step_of(), AHEAD).limits, device_bytes=200 * MIB, granule_bytes=512)
    plan = plan_of(step_of(has_state=True))
    for has_states in (False, True):
        live = LiveSegments((segments,), has_states=has_states)
        found = place_plan(plan, replace(limits, live=live))
        assert isinstance(found, Placement)
        assert found.reserved is not None
        assert bool(found.reserved.states_bytes) is not has_states
