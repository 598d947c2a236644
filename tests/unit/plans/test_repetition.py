"""Plans carried out several times, by hand: weights W, a map X, an optimizer's state M."""

from dataclasses import replace
from itertools import accumulate

import pytest

from tests.captured_steps import Recording, chain, simulator
from tests.toy import placement_of, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.plans.hand_written import script
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Role
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.requests import Overflow, Placed
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit, asked_by_iteration, needed_bytes, place_plan, place_repeatedly
from vdnnsim.plans.repetition import buffer_of, end_of_work, leading_operations, resident_buffers
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.base import Base
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import MIB

PYTORCH = MemoryLimits(MemoryModel.PYTORCH, 2**30, 2**30, granule_bytes=512)
COPIES = "offload X; prefetch X"


def test_weights_and_states_stay_allocated_between_iterations() -> None:
    held = script(f"given W; given X; given M; {COPIES}; free M; free X; free W")
    assert (leading_operations(held), end_of_work(held)) == (3, 5)
    assert resident_buffers(held) == {0, 2}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"given W; given X; {COPIES}; free W; {COPIES}; free X", id="released in the middle"),
        pytest.param(f"given X; {COPIES}; given W; {COPIES}; free W; free X", id="allocated in the middle"),
        pytest.param(f"given W; given X; {COPIES}; free W; take W; {COPIES}; free W; free X", id="allocated again"),
        pytest.param(f"given X; lay W X; {COPIES}; free W; free X", id="laid into another"),
        pytest.param(f"given W; given X; {COPIES}; free X", id="never released"),
    ],
)
def test_a_buffer_that_is_not_live_throughout_does_not_stay(text: str) -> None:
    assert resident_buffers(script(text)) == frozenset()


@pytest.mark.parametrize(("verb", "resident"), [("take", frozenset()), ("given", {0})])
def test_a_weight_gradient_stays_if_it_is_accumulated(verb: str, resident: frozenset[int]) -> None:
    """What zero_grad left in memory is given; another gradient is first written in backward."""
    assert resident_buffers(script(f"{verb} dW; offload dW; prefetch dW; free dW")) == resident


def test_a_plan_of_a_policy_keeps_the_weights_of_every_layer() -> None:
    workload = toy_workload(toy_chain(3))
    base = Base().plan(toy_setting(workload, toy_costs(workload, {})))
    assert sorted(base.buffers[each].name for each in resident_buffers(base)) == sorted(
        buffer.name for buffer in base.buffers if buffer.kind is BufferKind.WEIGHTS
    )


HEAD = f"given G=4; given X=4; given W=8; {COPIES}"
WORK = script(f"{HEAD}; take B=4; free G; free X; take C=8; free C; free B; free W", unit=MIB)
"""Two holes of 4 MiB, on either side of W, are left where C asks for 8."""


@pytest.mark.parametrize(("times", "reserved_bytes"), [(1, 20 * MIB), (2, 40 * MIB), (5, 40 * MIB)])
def test_weights_that_stay_may_make_a_second_iteration_need_more(times: int, reserved_bytes: int) -> None:
    """One segment of 20 MiB holds G, X, W and B in the first iteration, and C in the place of G and X.

    In the second one G finds the 4 MiB behind W, which fit it best, X the first 4 of the 8 before W, and B the other 4.
    So G and X free 4 MiB before and 4 behind W, and C takes a segment of its own, which later iterations reuse.
    """
    placed = place_repeatedly(WORK, PYTORCH, times)
    assert isinstance(placed, Placed)
    assert placed.pool_bytes == reserved_bytes
    assert max(accumulate(placed.deltas)) == needed_bytes(WORK) == 20 * MIB


def test_a_repetition_may_overflow() -> None:
    """W needs a segment of 20 MiB."""
    work = script("given W=8; offload W; prefetch W; take C=8; free C; free W", unit=MIB)
    assert isinstance(place_repeatedly(work, replace(PYTORCH, device_bytes=19 * MIB), 2), Overflow)


@pytest.mark.parametrize(("grows", "device_mib", "reserved_mib"), [(False, 31, 30), (True, 45, 40), (False, 21, 20)])
def test_preallocation_takes_the_memory_that_segments_leave(*, grows: bool, device_mib: int, reserved_mib: int) -> None:
    """G, X and W, with which an iteration begins, have a segment of 20 MiB; the rest is taken by 2 MiB, or by 20.

    B finds the 4 MiB behind W, and C the 8 of G and X, so that nothing is taken beyond.
    """
    settings = AllocatorSettings(expandable_segments=grows, preallocated=True)
    placed = placement_of(WORK, replace(PYTORCH, model=settings, device_bytes=device_mib * MIB))
    assert placed.pool_bytes == reserved_mib * MIB


def requests(step: CapturedStep) -> list[list[tuple[str, int | None]]]:
    """Return names and bytes of the requests of each iteration; None of what is freed."""
    run = simulator(step)
    made = PyTorch().plan(run.setting())
    asked = asked_by_iteration(made, run.limits)
    return [[(made.buffers[buffer_of(made, each.key)].name, each.nbytes) for _, each in found] for found in asked]


def test_what_a_program_holds_is_freed_when_the_next_forward_has_returned() -> None:
    """The loss of the chain, 4 B: the next one is allocated before it is freed, and the last at the end of all.

    The gradient of the loss, the first that backward makes, is allocated behind.
    """
    first, second, last = requests(chain())
    new, old, behind = ("loss", 4), ("loss", None), ("gradient of loss", 4)
    assert [each for each in first if each[0] == "loss"] == [new]
    assert [each for each in second if each[0] == "loss"] == [new, old]
    assert [each for each in last if each[0] == "loss"] == [new, old, old]
    assert second[second.index(old) + 1] == behind


def test_what_a_program_holds_counts_in_what_does_not_fit() -> None:
    """Beside 4 B of a loss, a GPU of 24 MiB has no 32 MiB for a gradient."""
    r = Recording("large", 1, ("fc",))
    x = r.memory("input", BufferKind.FEATURE_MAP, (1,), given=True)
    y = r.memory("fc", BufferKind.FEATURE_MAP, (1,), held=True)
    r.run("mm", "fc", Phase.FORWARD, reads=[(Role.INPUT, x)], writes=[(Role.OUTPUT, y)])
    gradient = r.memory("fc.weight.grad", BufferKind.WEIGHT_GRADIENT, (8 * MIB,))
    r.run("mm", "fc", Phase.BACKWARD, reads=[(Role.INPUT, x)], writes=[(Role.WEIGHT_GRADIENT, gradient)], forward=0)
    run = simulator(r.step())

    refused = place_plan(PyTorch().plan(run.setting()), replace(PYTORCH, device_bytes=24 * MIB))

    assert isinstance(refused, DoesNotFit)
    assert refused.requested_bytes == 32 * MIB
    assert refused.held_bytes == ((BufferKind.FEATURE_MAP, 1024),)


def two_states(optimizer: str) -> CapturedStep:
    """A product of one weight, which two operations update, each with a state of its own."""
    r = Recording("states", 1, ("fc",))
    weight = r.memory("fc.weight", BufferKind.WEIGHTS, (1,), given=True)
    x = r.memory("input", BufferKind.FEATURE_MAP, (1, 1), given=True)
    states = [r.memory(name, BufferKind.OPTIMIZER_STATE, (1,), given=True) for name in ("exp_avg", "exp_avg_sq")]
    y = r.memory("fc", BufferKind.FEATURE_MAP, (1, 1))
    r.run("mm", "fc", Phase.FORWARD, reads=[(Role.INPUT, x), (Role.WEIGHTS, weight)], writes=[(Role.OUTPUT, y)])
    gradient = r.memory("fc.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True)
    r.run("mm", "fc", Phase.BACKWARD, reads=[(Role.INPUT, x)], writes=[(Role.WEIGHT_GRADIENT, gradient)], forward=0)
    for each in states:
        updates = [(Role.STATE, each), (Role.WEIGHTS, weight)]
        r.run("_foreach_lerp_", "", Phase.UPDATE, reads=[(Role.WEIGHT_GRADIENT, gradient)], updates=updates)
    return r.step(optimizer=optimizer)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        pytest.param("adam", "fc.weight.grad exp_avg exp_avg_sq", id="all at once"),
        pytest.param("adagrad", "exp_avg exp_avg_sq fc.weight.grad", id="with the optimizer"),
        pytest.param("adam8bit", "fc.weight.grad exp_avg exp_avg_sq", id="one by one"),
    ],
)
def test_states_are_made_in_the_first_update_or_with_the_optimizer(optimizer: str, expected: str) -> None:
    """Before anything else of the update; Adagrad's before the first forward."""
    first, second, _ = requests(two_states(optimizer))
    taken = [name for name, nbytes in first if nbytes and name in expected.split()]
    assert taken == expected.split()
    assert not {name for name, _ in second} & {"exp_avg", "exp_avg_sq"}


def in_buckets() -> CapturedStep:
    """A product of one weight, whose gradient backward copies into one of three buckets and back."""
    r = Recording("buckets", 1, ("fc",))
    weight = r.memory("fc.weight", BufferKind.WEIGHTS, (MIB,), given=True)
    x = r.memory("input", BufferKind.FEATURE_MAP, (1, 1), given=True)
    bucket, *others = (
        r.memory(name, BufferKind.WEIGHT_GRADIENT, (MIB,), of_type, given=True, constant=True)
        for name, of_type in (("first", "float32"), ("second", "bfloat16"), ("third", "float32"))
    )
    y = r.memory("fc", BufferKind.FEATURE_MAP, (1, 1))
    r.run("mm", "fc", Phase.FORWARD, reads=[(Role.INPUT, x), (Role.WEIGHTS, weight)], writes=[(Role.OUTPUT, y)])
    gradient = r.memory("fc.weight.grad", BufferKind.WEIGHT_GRADIENT, (MIB,))
    r.run("mm", "fc", Phase.BACKWARD, reads=[(Role.INPUT, x)], writes=[(Role.WEIGHT_GRADIENT, gradient)], forward=0)
    buckets = [(Role.WEIGHT_GRADIENT, each) for each in (bucket, *others)]
    r.run("copy_", "", Phase.BACKWARD, reads=[(Role.WEIGHT_GRADIENT, gradient)], updates=buckets)
    return r.step()


def test_ddp_has_one_bucket_for_all_gradients_of_a_type_until_the_second_iteration() -> None:
    """Two of 4 MiB in float32 make one of 8 MiB behind the weights, and one of 2 MiB in bfloat16 is one already.

    The second iteration frees both when its input is there, and allocates all three. The last frees them.
    """
    first, second, last = requests(in_buckets())
    whole = [("first", 8 * MIB), ("second", 2 * MIB)]
    cut = [("first", 4 * MIB), ("second", 2 * MIB), ("third", 4 * MIB)]
    assert first[:4] == [("fc.weight", 4 * MIB), *whole, ("input", 4)]
    assert "third" not in dict(first)
    assert second[:6] == [("input", 4), ("first", None), ("second", None), *cut]
    assert {name for name, nbytes in last if nbytes} & dict(cut).keys() == set()
    assert {("first", None), ("second", None), ("third", None)} <= {*last}


@pytest.mark.parametrize(("preallocated", "reserved_mib"), [(False, 22), (True, 36)])
def test_buckets_lie_in_the_memory_of_the_one_before(*, preallocated: bool, reserved_mib: int) -> None:
    """That is a segment of 20 MiB with the weight, 4 MiB, and 8 + 2 MiB; the gradient, 4 MiB, lies there as well.

    The three of the second iteration have 10 MiB together. Each appears once in the placement, with its own size. The
    input and the activation are small, and have a segment of 2 MiB. Reserved ahead is twice the 18 MiB live at once:
    less leaves no segment of 10 MiB or more beside those two.
    """
    run = simulator(in_buckets())
    made = PyTorch().plan(run.setting())
    settings = AllocatorSettings(preallocated=preallocated)

    placed = placement_of(made, replace(PYTORCH, model=settings))

    assert placed.pool_bytes == reserved_mib * MIB
    names = {each.buffer: made.buffers[each.buffer].name for each in placed.changes.values()}
    sizes = {names[each.buffer]: each.delta_bytes for each in placed.changes.values() if each.delta_bytes > 0}
    assert sizes == {
        "fc.weight": 4 * MIB,
        "input": 512,
        "first": 4 * MIB,
        "second": 2 * MIB,
        "third": 4 * MIB,
        "fc": 512,
        "fc.weight.grad": 4 * MIB,
    }
