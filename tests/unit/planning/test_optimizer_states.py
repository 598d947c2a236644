"""Optimizer states and weight gradients on the host: the chain of `chain_of_ten_kernels.py`, then three updates of 1 s.

Kernels 10, 11 and 12 are the updates of conv1 and conv2, each with two states of 60 B, and of fc with two of 12 B:
264 B. Beside 264 B of weights and their gradients, which are held throughout, kernels 0 to 9 need 20 to 42 B more at
once, where all maps stay.
"""

from dataclasses import replace
from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace as replaced

from tests.toy import TOY_LIMITS, TOY_SERVER, replay, server_with, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.dnn.test_captured_rounds import twice
from tests.unit.planning.chain_of_ten_kernels import WORKLOAD as WITHOUT_UPDATE
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Storage, Tensor
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Link, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.planning.buffer_uses import Residency
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.optimizer_states import states_bound
from vdnnsim.planning.problem import problem_of
from vdnnsim.planning.timetable import Movement
from vdnnsim.planning.timetable_schedule import steps_of
from vdnnsim.plans import schedule
from vdnnsim.plans.buffers import IterationBuffers, gradients_of_update, states_of_update
from vdnnsim.plans.certificate import BoundClass, Certificate
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Compute, Offload, Operation, Prefetch
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, Placement, needed_bytes, place_plan
from vdnnsim.plans.schedule import in_rounds, iteration
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.optimal import Optimal
from vdnnsim.scenario.simulator import Simulator

WORKLOAD: Final = replace(toy_workload(toy_chain(2)), optimizer=Optimizer.ADAM)
COSTS: Final = toy_costs(WORKLOAD, {})
FAST: Final = replace(TOY_SERVER, link=Link("fast", 100.0, 100.0, latency_s=0.0))


def states_of(workload: Workload) -> list[int]:
    """The two states of each layer in the order of layers."""
    storages = workload.step.storages
    states = (number for number, each in enumerate(storages) if each.kind is BufferKind.OPTIMIZER_STATE)
    return sorted(states, key=lambda number: (storages[number].owner, number))


GRADIENTS: Final = gradients_of_update(WORKLOAD.step)
NONE: Final = frozenset[int]()


def steps_in(device_bytes: int, workload: Workload = WORKLOAD, gradients: frozenset[int] = NONE) -> list[str]:
    """Steps where no map is offloaded but all states and some gradients: kernels by number, and copies.

    `+a` prefetches a state, `!a` fetches it on demand, `-a` offloads it, `?a` waits for it. a and b are the states of
    conv1, c and d those of the next layer, and so on; A, B and C the gradients of conv1, conv2 and fc.
    """
    costs = toy_costs(workload, {}).table(workload)
    buffers = IterationBuffers(workload, states_of_update(workload.step) | gradients)
    problem = problem_of(iteration(workload), workload, costs, device_bytes, buffers=buffers)
    movement = Movement(problem, problem.fullest, (), float, float)
    letters = dict(zip(states_of(workload), "abcdefgh", strict=False)) | dict(
        zip(sorted(gradients), "ABC", strict=False)
    )
    words, kernels = list[str](), count()
    for step in steps_of(movement.timetable([each.options[0] for each in problem.kernels])):
        match step:
            case schedule.Run():
                words.append(str(next(kernels)))
            case schedule.Prefetch(buffers=what, on_demand=late):
                words.append(("!" if late else "+") + "".join(letters[each] for each in what))
            case schedule.Offload(buffers=what) | schedule.Wait(buffers=what):
                mark = "-" if isinstance(step, schedule.Offload) else "?"
                words.append(mark + "".join(letters[each] for each in what))
            case _:
                raise AssertionError(step)
    return words


def plan_within(limits: MemoryLimits, costs: CostModel = COSTS, server: Server = TOY_SERVER) -> TrainingPlan:
    """A plan without recomputation."""
    return Optimal(recompute=False, offload_optimizer=True).plan(toy_setting(WORKLOAD, costs, limits, server))


def planned(device_bytes: int, server: Server = TOY_SERVER) -> tuple[TrainingPlan, Certificate, IterationTrace]:
    """A plan, its certificate, and its replay."""
    limits = replace(TOY_LIMITS, device_bytes=device_bytes, host_bytes=10_000)
    plan = plan_within(limits, server=server)
    assert plan.certificate is not None
    return plan, plan.certificate, replay(plan, COSTS, limits=limits, server=server)


def test_states_are_on_the_gpu_for_their_update_alone() -> None:
    problem = problem_of(
        iteration(WORKLOAD),
        WORKLOAD,
        COSTS.table(WORKLOAD),
        1000,
        buffers=IterationBuffers(WORKLOAD, states_of_update(WORKLOAD.step)),
    )

    updates = zip(states_of(WORKLOAD), (60, 60, 60, 60, 12, 12), (10, 10, 11, 11, 12, 12), strict=True)
    assert problem.residencies == tuple(
        Residency(state, nbytes, at, at, prefetched=True, offloaded=True) for state, nbytes, at in updates
    )
    assert [each.held_bytes for each in problem.kernels[9:]] == [284, 384, 384, 288]


THREE_LAYERS: Final = replace(toy_workload(toy_chain(3)), optimizer=Optimizer.ADAM)


@pytest.mark.parametrize(
    ("workload", "device_bytes", "gradients", "begin", "end"),
    [
        # In ample memory all states are prefetched at once and offloaded after their update.
        (WORKLOAD, 1000, NONE, "+a +b +c +d +e +f 0 1 ", " 9 10 -a -b 11 -c -d 12 -e -f ?abcdef"),
        # In 444 B 138 B are free beside kernel 5, and 60 B beside the update of conv1: a state of conv2 fits there. For
        # the other, 60 B must be offloaded; and for those of fc beside the update of conv2 the other 60 B of conv1.
        (WORKLOAD, 444, NONE, "+a +b 0 1 ", " 9 +c 10 -a -b ?a !d ?b +e +f 11 -c -d 12 -e -f ?cdef"),
        # Three layers with 120 B of states and fc with 24 B: in 684 B 60 B are free beside 240 B of states. A state of
        # conv3 is prefetched before the update of conv1 (kernel 13), beside those of conv2. Before that of conv2 the
        # first of conv1 must be offloaded for the other; those of fc have no room beside the second, and are prefetched
        # an update later, for which that must be offloaded.
        (
            *(THREE_LAYERS, 684, NONE, "+a +b +c +d 0 1 "),
            " 12 +e 13 -a -b ?a +f 14 -c -d ?b +g +h 15 -e -f 16 -g -h ?cdefgh",
        ),
        # In 312 B update of conv1 has room for its own alone, and only a state of it beside kernels 0 to 8 (156 B).
        # Gradients of fc and conv2 (kernels 6 and 8) must be offloaded for kernel 9, which writes that of conv1: it is
        # read by the next kernel, and stays until then.
        (
            *(WORKLOAD, 312, GRADIENTS, "+a 0 1 2 3 4 5 6 -C 7 8 -B ?C ?B 9 !b 10 "),
            " 10 -a -b ?a ?b !B !c !d 11 -c -d !C !e !f 12 -e -f ?cdef",
        ),
        # In 1000 B nothing need be offloaded, and all are prefetched as soon as they can, once they are offloaded.
        (WORKLOAD, 1000, GRADIENTS, "+a +b +c +d +e +f 0 1 2 3 4 5 6 -C ?C +C 7 ", ""),
    ],
)
def test_states_and_gradients_are_there_for_their_update(
    workload: Workload, device_bytes: int, gradients: frozenset[int], begin: str, end: str
) -> None:
    found = " ".join(steps_in(device_bytes, workload, gradients))
    assert found.startswith(begin)
    assert found.endswith(end)


@pytest.mark.parametrize(
    ("device_bytes", "seconds", "bound_s"), [(570, 13, 13), (444, 507, 208), (384, 529, 328), (312, 676, 472)]
)
def test_on_a_slow_link_copies_are_all_that_takes_time(device_bytes: int, seconds: float, bound_s: float) -> None:
    """In 570 B all fits. Least must be on the host beside kernel 9, which takes 212 B.

    Then there are 264 B of states and 72 B of gradients of conv2 and fc, of which all but 232, 172 and 100 B must be
    copied out and in at 1 B/s, one after the other. In 444 B three states of 60 B and both gradients do, and nothing
    beside the updates; in 384 B all states, and nothing beside the update of conv1; in 312 B the gradients as well, and
    nothing beside kernels 9 to 12.
    """
    plan, certificate, trace = planned(device_bytes)

    assert trace.iteration_s == seconds
    assert certificate.bound_s == bound_s
    assert certificate.holds_for is BoundClass.OFFLOAD_AND_STATES
    moved_bytes = sum(plan.copied_bytes(each) for each in plan.operations if isinstance(each, Offload))
    assert trace.host_bytes == moved_bytes == {570: 0, 444: 252, 384: 264, 312: 336}[device_bytes]


def test_a_certificate_says_how_long_exposed_copies_take() -> None:
    """Of 472 s 13 are those of the kernels."""
    certificate = planned(312)[1]

    assert certificate.levers[0].startswith("264 B of optimizer states and 72 B of weight gradients")
    assert "at least 459 s" in certificate.levers[0]


def test_with_a_fast_link_a_gradient_on_the_host_costs_nothing() -> None:
    """At 540 B 30 B lack beside kernels 5 and 6, where the 60 B of a gradient of conv1 have no memory yet.

    Beside kernel 9, which writes it, 8 B do: the gradient of fc is offloaded before, and prefetched in time.
    """
    plan, certificate, trace = planned(540, FAST)

    assert trace.iteration_s == certificate.bound_s == 13
    coming = {plan.buffers[each.buffer].name for each in plan.operations if isinstance(each, Prefetch)}
    assert coming == {"weight gradient of fc"}


def test_states_without_room_are_prefetched_after_the_first_update() -> None:
    """At 444 B 60 of the 144 B of states of conv2 and fc are there when the update of conv1 ends at 11 s.

    Those of conv1 are offloaded in 1.2 s, the others prefetched in 0.84 s; from 13.04 s on conv2 is updated for 1 s, in
    which nothing is copied, and then 1.2 + 0.24 s are offloaded; fc is updated beside.
    """
    assert planned(444, FAST)[2].iteration_s == pytest.approx(15.24, abs=0.25)


def test_offloaded_maps_take_the_link_as_well() -> None:
    """With 200 B of workspace kernel 5 takes 344 B; of 264 B of states and 30 B of maps 6 B fit beside it in 350 B."""
    costs = toy_costs(WORKLOAD, {}, workspace_bytes={("fc", Phase.BACKWARD_DATA): 200})
    limits = replace(TOY_LIMITS, device_bytes=350, host_bytes=10_000)
    plan = plan_within(limits, costs)

    assert plan.certificate is not None
    assert plan.certificate.bound_s == 2 * (264 + 24)
    assert replay(plan, costs, limits=limits).iteration_s >= plan.certificate.bound_s


def test_pinned_memory_counts_states_throughout() -> None:
    """264 B of states fit exactly, and no map beside them; in 263 B the last of them does not.

    PyTorch pins four of 60 B in blocks of 64 B, two of 12 B in blocks of 16 B: 288 B.
    """
    limits = replace(TOY_LIMITS, device_bytes=384, host_bytes=264)
    plan = plan_within(limits)
    assert isinstance(place_plan(plan, limits), Placement)
    refused = place_plan(plan, replace(limits, host_bytes=263))
    assert isinstance(refused, DoesNotFit)
    assert refused.pool is Pool.PINNED
    assert "asked for 12 B (state 2 of fc) of pinned host memory; 11 B of 263 B were free" in refused.explain()
    of_pytorch = replace(limits, host_bytes=10_000, model=MemoryModel.PYTORCH, device_bytes=2**30, granule_bytes=512)
    placed = place_plan(plan, of_pytorch)
    assert isinstance(placed, Placement)
    assert placed.host_bytes == 288


def test_a_class_that_moves_states_includes_those_that_keep_them() -> None:
    classes = BoundClass.ANY, BoundClass.OFFLOAD_AND_STATES, BoundClass.ANY_AND_STATES

    assert [each.includes(BoundClass.OFFLOAD_AND_STATES) for each in classes] == [False, True, True]
    assert all(each.includes(BoundClass.OFFLOAD) for each in classes)
    assert [each.includes(BoundClass.ANY) for each in classes] == [True, False, True]


def test_a_certificate_says_what_offloading_states_would_free() -> None:
    """At 550 B map conv1 has no room; 264 of 548 B that any schedule needs are states."""
    limits = replace(TOY_LIMITS, device_bytes=550)
    kept = Optimal(recompute=False).plan(toy_setting(WORKLOAD, COSTS, limits)).certificate
    moved = plan_within(replace(limits, device_bytes=320))

    assert kept is not None
    assert kept.stays[0].startswith("forward of conv1 needs 548 B whatever is away, 528 B of them weights, their gra")
    assert kept.stays[1].startswith("backward weights of conv2 needs 558 B in every plan that is sought")
    assert kept.stays[2] == "optimizer states take 264 B throughout; offload_optimizer moves them"
    assert moved.certificate is not None
    (floor,) = moved.certificate.stays
    assert floor.startswith("update of conv1 needs 312 B whatever is away, 132 B of them weights: ")


def test_in_too_little_memory_the_update_that_cannot_run_is_named() -> None:
    """That of conv1 takes 312 B; so does that of conv2, but behind it."""
    limits = replace(TOY_LIMITS, device_bytes=311, host_bytes=10_000)
    plan = plan_within(limits)

    assert isinstance(place_plan(plan, limits), DoesNotFit)
    assert plan.certificate is not None
    assert plan.certificate.stays[0].startswith("update of conv1 needs 312 B whatever is away")


@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.SGD])
def test_nothing_to_move_is_refused(optimizer: Optimizer) -> None:
    workload = replace(WITHOUT_UPDATE, optimizer=optimizer)
    setting = toy_setting(workload, toy_costs(workload, {}))

    with pytest.raises(PolicyError, match=r"offload_optimizer: found a workload whose update keeps nothing"):
        Optimal(offload_optimizer=True).plan(setting)


def test_prefetches_for_the_update_are_not_repeated() -> None:
    forward, *_, update = iteration(WORKLOAD)
    coming = schedule.Prefetch((0,), update.layer, Phase.UPDATE, on_demand=False)

    assert in_rounds([forward, coming, update], 2) == [forward, forward, coming, update]


def twice_with_a_state(access: Access) -> CapturedWorkload:
    """Two micro-batches before an update that also touches a state of 4 B."""
    step = twice()
    *others, update = step.operations
    operand = Operand(Role.STATE, len(step.tensors), access)
    return CapturedWorkload.of(
        replaced(
            step,
            storages=(*step.storages, Storage("state", BufferKind.OPTIMIZER_STATE, 4, "float32", given=True)),
            tensors=(*step.tensors, Tensor(len(step.storages), (1,), "float32")),
            operations=(*others, replaced(update, operands=(*update.operands, operand))),
        )
    )


def copies_of(workload: CapturedWorkload, model: MemoryModel = MemoryModel.IDEAL) -> list[type[Operation]]:
    """Kernels and copies of a plan in a little less memory than all, in their order."""
    machine = Simulator.of(workload, server_with({"launch_overhead_s": 1.0}), model, PinnedMemory.ARENA)
    most_bytes = needed_bytes(Optimal().plan(machine.setting()), machine.limits.granule_bytes)
    machine = replace(machine, limits=replace(machine.limits, device_bytes=most_bytes - 1))
    plan = Optimal(recompute=False, offload_optimizer=True).plan(machine.setting())
    check_plan(plan)
    return [type(each) for each in plan.operations if isinstance(each, Compute | Offload | Prefetch)]


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT])
def test_states_of_a_captured_model_are_prefetched_after_the_last_micro_batch(model: MemoryModel) -> None:
    """With addresses policies of built networks are no alternatives for it. What is only read is not offloaded."""
    assert copies_of(twice_with_a_state(Access.UPDATE), model) == [*[Compute] * 6, Prefetch, Compute, Offload]
    assert copies_of(twice_with_a_state(Access.READ), model) == [*[Compute] * 6, Prefetch, Compute]


def test_without_prefetches_states_add_nothing_to_the_bound() -> None:
    """A gradient held from backward into the update is never copied: 5 s before it and 7 s stay 12 s."""
    workload = toy_workload(toy_chain(1))
    nothing = problem_of(iteration(workload), workload, toy_costs(workload, {}).table(workload), 10**6)
    held = replace(nothing, residencies=(Residency(0, 10, 0, 1, prefetched=False, offloaded=False),))

    assert states_bound(held, 7.0, 5.0, Links(1, 1), recompute=False, may_stay=False) == 12


@pytest.mark.parametrize(("device_bytes", "bound_s"), [(384, 22.08), (383, 20)])
def test_the_bound_extends_over_updates_that_need_nothing_on_the_host(device_bytes: int, bound_s: float) -> None:
    """Updates of conv1 and conv2 take 384 B; in that memory, where the bound is 20 s, the first ends at 18 s.

    Then 144 B are prefetched and 264 B offloaded at 100 B/s. In less, that update ends at 11 s by kernels alone.
    """
    buffers = IterationBuffers(WORKLOAD, states_of_update(WORKLOAD.step))
    problem = problem_of(iteration(WORKLOAD), WORKLOAD, COSTS.table(WORKLOAD), device_bytes, buffers=buffers)

    found_s = states_bound(problem, 20.0, 0.0, Links(100, 100), recompute=True, may_stay=False)

    assert found_s == pytest.approx(bound_s)
