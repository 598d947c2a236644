"""Units of the captured chain: which operations allocate in one pool.

Units move between pools: 40 MiB of PyTorch's own, and of 60 and 50 MiB of two private ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.captured_steps import chain, simulator
from vdnnsim.dnn.layers import Phase
from vdnnsim.memory.packing import Lifetime
from vdnnsim.memory.requests import Request
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.device_requests import Asked
from vdnnsim.plans.operations import Allocate, Prefetch
from vdnnsim.plans.pool_units import Unit, Use, units_of
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.unit_moves import UnitMoves
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.units import MIB


def plan_of(policy: Policy) -> TrainingPlan:
    machine = simulator(chain())
    (made,) = machine.ready([policy.plan(machine.setting())], policy.label)
    return made


def uses(plan: TrainingPlan, boundaries: frozenset[int] | None = None) -> set[tuple[Use, int]]:
    return set(units_of(plan, boundaries).values())


def test_every_operation_of_forward_is_a_unit_but_the_last() -> None:
    """In backward a unit begins where operations belong to another one of forward; the last of each has none."""
    plan = plan_of(PyTorch())
    step = plan.workload.step
    of_forward = [at for at, each in enumerate(step.operations) if each.phase is Phase.FORWARD]
    found = {number for use, number in uses(plan) if use is Use.RUN}
    assert found & set(of_forward) <= set(of_forward[:-1])
    backward = [at for at, each in enumerate(step.operations) if each.phase.is_backward]
    begins = [at for at in backward if step.operations[at].forward != step.operations[at - 1].forward]
    assert found - set(of_forward) <= set(begins[:-1])


def test_boundaries_join_what_lies_between_them() -> None:
    """With one at the first operation and one at the third, the first two are a unit, and the rest of forward none."""
    assert uses(plan_of(PyTorch()), frozenset({0, 2})) == {(Use.RUN, 0)}


@pytest.mark.parametrize(("policy", "use"), [(SaveOnCpu(), Use.PREFETCH), (Checkpoint(), Use.REPEAT)])
def test_prefetches_and_recomputed_operations_are_units(policy: Policy, use: Use) -> None:
    assert use in {each for each, _ in uses(plan_of(policy))}


def test_all_pieces_of_a_prefetch_are_of_one_unit() -> None:
    """A buffer is allocated before the first of two."""
    plan = plan_of(SaveOnCpu())
    pieces = tuple(one for each in plan.operations for one in (each,) * (1 + isinstance(each, Prefetch)))
    assert uses(replace(plan, operations=pieces)) == uses(plan)


def test_given_buffers_and_those_of_the_update_have_no_unit() -> None:
    plan = plan_of(PyTorch())
    units = units_of(plan, None)
    for at in units:
        each = plan.operations[at]
        assert isinstance(each, Allocate)
        assert not plan.buffers[each.buffer].given


SEGMENTS = {0: 40, 2: 60, 3: 50}
"""By pool, in MiB."""
KEPT, MOVED, LARGE = ((Use.RUN, number) for number in range(3))
KEEPS, MOVES, FILLS = range(3)
"""The operations of these units."""


def moved(requests: Sequence[tuple[int, int, int | None, int]], pools: Mapping[Unit, int]) -> dict[Unit, int]:
    """Return which units move; requests are an operation, a key, MiB and a pool, behind a reservation of 150 MiB."""
    reserving = [Asked(0, Request(100 + pool, mib * MIB, pool=pool)) for pool, mib in SEGMENTS.items()]
    freeing = [Asked(0, Request(each.request.key, None)) for each in reserving]
    asked = [
        Asked(operation, Request(key, None if mib is None else mib * MIB, pool=pool))
        for operation, key, mib, pool in requests
    ]
    ends = {request.key: at for at, (_, request) in enumerate(asked) if request.nbytes is None}
    units = {KEEPS: KEPT, MOVES: MOVED, FILLS: LARGE}
    blocks = [
        (units.get(operation), Lifetime(request.nbytes, at, ends.get(request.key, len(asked))))
        for at, (operation, request) in enumerate(asked)
        if request.nbytes is not None
    ]
    segments = {pool: [mib * MIB] for pool, mib in SEGMENTS.items()}
    found = UnitMoves([*reserving, *freeing, *asked], 2 * len(SEGMENTS), segments, pools, units, blocks)
    return found.moved(170 * MIB, 512, AllocatorSettings(preallocated=True))


def test_a_unit_moves_to_the_smallest_free_block_that_is_large_enough() -> None:
    """30 of 40 MiB are taken, so that 20 MiB find room in 50 or 60 MiB, and ask there at once the next time."""
    once = [(KEEPS, 1, 30, 0), (MOVES, 2, 20, 0), (MOVES, 2, None, 0)]
    assert moved([*once, *once[1:], (KEEPS, 1, None, 0)], {}) == {MOVED: 3}


def test_a_unit_with_room_stays() -> None:
    assert moved([(KEEPS, 1, 30, 0), (MOVES, 2, 10, 0), (KEEPS, 1, None, 0), (MOVES, 2, None, 0)], {}) == {}


@pytest.mark.parametrize(("large_mib", "found"), [(30, {MOVED: 3}), (29, {MOVED: 2, LARGE: 3})])
def test_a_unit_does_not_move_where_a_large_block_begins_during_its_life(
    large_mib: int, found: Mapping[Unit, int]
) -> None:
    """Of 60 MiB 40 are free, of 50 MiB 41; 30 of 60 are half, which another unit takes while the block lives.

    One of 29 MiB is not waited for, and has to move itself.
    """
    requests = [(KEEPS, 1, 30, 0), (5, 3, 20, 2), (5, 4, 9, 3), (MOVES, 2, 20, 0), (FILLS, 6, large_mib, 2)]
    assert moved(requests, {LARGE: 2}) == found


def test_where_no_pool_has_room_nothing_moves_from_there_on() -> None:
    """70 MiB find no room, so that it is not looked where 20 MiB beside 30 would."""
    assert moved([(MOVES, 2, 70, 0), (KEEPS, 1, 30, 0), (MOVES, 3, 20, 0)], {}) == {}


@pytest.mark.parametrize(("mib", "found"), [(20, {MOVED: 3}), (21, {})])
def test_what_has_no_unit_never_moves(mib: int, found: Mapping[Unit, int]) -> None:
    """Beside 30 of 40 MiB it takes a segment of the 20 MiB that the GPU has left; without room nothing is looked at."""
    assert moved([(KEEPS, 1, 30, 0), (5, 2, mib, 0), (MOVES, 3, 20, 0)], {}) == found
