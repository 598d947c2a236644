"""Optimizer states and weight gradients on the host in the timetable: where their copies stand."""

from dataclasses import replace
from itertools import count
from typing import Final

import pytest
from msgspec.structs import replace as replaced

from tests.toy import server_with, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.dnn.test_captured_workload import twice
from tests.unit.planning.chain_of_ten_kernels import WORKLOAD as WITHOUT_UPDATE
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Storage, Tensor
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.planning.buffer_uses import Residency
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.problem import problem_of
from vdnnsim.planning.timetable import Movement
from vdnnsim.planning.timetable_schedule import steps_of
from vdnnsim.plans import schedule
from vdnnsim.plans.buffers import IterationBuffers, gradients_of_update, states_of_update
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, Offload, Operation, Prefetch
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.schedule import in_rounds, iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.scenario.simulator import Simulator

WORKLOAD: Final = replace(toy_workload(toy_chain(2)), optimizer=Optimizer.ADAM)


COSTS: Final = toy_costs(WORKLOAD, {})


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


def test_a_search_that_moves_states_in_vain_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory for all a plan that offloads every map is slower than one that keeps them and the states."""
    setting = toy_setting(WORKLOAD, COSTS)
    search = Optimal._planned  # noqa: SLF001 - what may be unlucky

    def unlucky(
        policy: Optimal, asked: Setting, orders: Orders, effort: Effort, known: TrainingPlan | None = None
    ) -> TrainingPlan:
        found = search(policy, asked, orders, effort, known)
        return replace(VdnnAll().plan(asked), certificate=found.certificate) if orders.movable else found

    monkeypatch.setattr(Optimal, "_planned", unlucky)
    kept, plan = (Optimal(offload_optimizer=each).plan(setting) for each in (False, True))
    assert setting.trials.run_trial(plan).cost_s == setting.trials.run_trial(kept).cost_s
    assert plan.certificate is not None
    assert plan.certificate.holds_for.moves_states
