"""The operations that the steps of a schedule become, and schedules that are refused."""

from collections.abc import Sequence
from functools import partial

import pytest

from tests.toy import toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.schedule import (
    Allocate,
    Offload,
    Prefetch,
    Release,
    ScheduleStep,
    Synchronize,
    Wait,
    backward,
    feature_maps,
    forward,
    iteration,
)
from vdnnsim.plans.schemes import AsScheduled, ByLifetime, NetworkWide, Scheme
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels

CHAIN = toy_workload(toy_chain(2))
KERNELS = choose_kernels(CHAIN, toy_costs(CHAIN, {}).table(CHAIN), Algorithms.PERFORMANCE_OPTIMAL)
CONV1, CONV2, FC, LOSS = CHAIN.graph.layers
INPUT, MAP1 = feature_maps(CHAIN, 0), feature_maps(CHAIN, 1)
FORWARD, BACKWARD = forward(CHAIN), backward(CHAIN)


def lowered(steps: Sequence[ScheduleStep], scheme: Scheme = ByLifetime) -> TrainingPlan:
    plan = lower(steps, CHAIN, KERNELS, scheme, label="hand", algorithms="p")
    check_plan(plan)
    return plan


def in_words(plan: TrainingPlan) -> list[str]:
    """The operations of a plan but for what is held throughout."""
    lines = [describe(each, plan.buffer_names, plan.layers) for each in plan.operations]
    return [each for each in lines if "weight gradient" not in each and "weights of" not in each]


def test_offloaded_maps_are_released_after_their_wait() -> None:
    """The input of conv1 is offloaded after its last reader; the next kernel waits for it, backward fetches it."""
    fetch = Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=True)
    steps: list[ScheduleStep] = [
        FORWARD[0],
        Offload(INPUT, CONV1),
        Wait(INPUT),
        *FORWARD[1:],
        *BACKWARD[:-1],
        fetch,
        BACKWARD[-1],
    ]
    lines = in_words(lowered(steps))
    assert lines[:10] == [
        "allocate map input",
        "allocate map conv1",
        "forward of conv1 (only)",
        "record event 0 on the compute stream",
        "wait for event 0 on the memory stream",
        "offload of map input during forward of conv1",
        "record event 1 on the memory stream",
        "wait for event 1 on the compute stream",
        "release map input",
        "allocate map conv2",
    ]
    assert lines[lines.index("allocate map input", 1) :] == [
        "allocate map input",
        "record event 2 on the compute stream",
        "wait for event 2 on the memory stream",
        "fetch on demand of map input during backward of conv1",
        "record event 3 on the memory stream",
        "wait for event 3 on the compute stream",
        "release map input",
        "release gradient of conv1",
    ]
    # The map that conv1 reads last is offloaded with it; the host waits, and only then is it released.
    beside = Offload(INPUT, CONV1, beside=True)
    steps = [FORWARD[0], beside, Synchronize(), *FORWARD[1:], *BACKWARD[:-1], fetch, BACKWARD[-1]]
    assert in_words(lowered(steps))[2:8] == [
        "record event 0 on the compute stream",
        "forward of conv1 (only)",
        "wait for event 0 on the memory stream",
        "offload of map input during forward of conv1",
        "host synchronization with compute and memory",
        "release map input",
    ]


def test_copies_beside_one_kernel_wait_once_for_it_to_begin() -> None:
    """The second is behind the first on its stream."""
    beside = [Offload(each, CONV2, beside=True) for each in (INPUT, MAP1)]
    come = {
        layer: Prefetch(each, layer, Phase.BACKWARD_WEIGHTS, on_demand=True)
        for layer, each in ((CONV2, MAP1), (CONV1, INPUT))
    }
    last = [
        step
        for run in BACKWARD
        for step in ((come[run.layer], run) if run.phase is Phase.BACKWARD_WEIGHTS and run.layer in come else (run,))
    ]

    lines = in_words(lowered([*FORWARD[:2], *beside, Synchronize(), *FORWARD[2:], *last]))

    begun = lines.index("forward of conv2 (only)")
    assert lines[begun - 1 : begun + 5] == [
        "record event 0 on the compute stream",
        "forward of conv2 (only)",
        "wait for event 0 on the memory stream",
        "offload of map input during forward of conv2",
        "offload of map conv1 during forward of conv2",
        "host synchronization with compute and memory",
    ]


def test_a_kernel_waits_for_a_prefetched_part_and_not_for_an_offloaded_one() -> None:
    """Half of the input of conv1 is offloaded and prefetched for backward, beside which the other half is offloaded.

    Event 3 ends the prefetch, 5 the other copy; the kernel, whose weight gradient is left out, is between.
    """
    left, right = range(5), range(5, 10)
    steps: list[ScheduleStep] = [
        *FORWARD,
        Offload(INPUT, LOSS, extent=left),
        Wait(INPUT, extent=left),
        *BACKWARD[:-1],
        Prefetch(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, on_demand=False, extent=left),
        Offload(INPUT, CONV1, Phase.BACKWARD_WEIGHTS, extent=right),
        BACKWARD[-1],
        Wait(INPUT, extent=right),
    ]

    lines = in_words(lowered(steps))

    assert lines[lines.index("allocate bytes 0 to 4 of map input") :] == [
        "allocate bytes 0 to 4 of map input",
        "record event 2 on the compute stream",
        "wait for event 2 on the memory stream",
        "prefetch of bytes 0 to 4 of map input during backward of conv1",
        "record event 3 on the memory stream",
        "record event 4 on the compute stream",
        "wait for event 4 on the memory stream",
        "offload of bytes 5 to 9 of map input during backward of conv1",
        "record event 5 on the memory stream",
        "wait for event 3 on the compute stream",
        "release gradient of conv1",
        "wait for event 5 on the compute stream",
        "release bytes 5 to 9 of map input",
        "release map input",
    ]


def test_a_schedule_may_compute_backward_in_another_order() -> None:
    """Weight gradients before data gradients: nothing supposes an order, and lifetimes follow the steps."""
    order = sorted(BACKWARD, key=lambda run: (-run.layer.index, run.phase is Phase.BACKWARD_DATA))
    plan = lowered([*FORWARD, *order])

    computed = [(each.layer, each.phase) for each in plan.operations if isinstance(each, Compute)]
    assert computed == [(run.layer.index, run.phase) for run in [*FORWARD, *order]]


OFFLOADED = [*FORWARD[:2], Offload(MAP1, CONV2)]


@pytest.mark.parametrize(
    ("steps", "scheme", "message"),
    [
        # Conv1's map is offloaded, and backward of conv2 reads it without a prefetch.
        *(
            (
                [*OFFLOADED, Wait(MAP1), *FORWARD[2:], *BACKWARD],
                each,
                "is offloaded in forward of conv2 and neither rel",
            )
            for each in (ByLifetime, NetworkWide)
        ),
        ([*OFFLOADED, *FORWARD[2:]], ByLifetime, "is offloaded in forward of conv2 .* expected a Wait for its copy"),
        (
            [*FORWARD[:2], Release(MAP1), *FORWARD[2:], *BACKWARD],
            ByLifetime,
            r"is used in backward .* of conv2 after its release behind forward of conv2 without a",
        ),
        ([*FORWARD, Wait(MAP1)], ByLifetime, "which no copy moves"),
    ],
)
def test_a_schedule_that_is_not_lowered_names_the_map(steps: list[ScheduleStep], scheme: Scheme, message: str) -> None:
    with pytest.raises(PlanError, match=rf"hand: .*map conv1,? {message}"):
        lowered(steps, scheme)


@pytest.mark.parametrize("before", [[], [*FORWARD[:2], Synchronize()]])
def test_a_copy_beside_no_kernel_is_refused(before: list[ScheduleStep]) -> None:
    with pytest.raises(PlanError, match=r"map input is offloaded beside no kernel, expected one before it"):
        lowered([*before, Offload(INPUT, CONV1, beside=True)])


def test_as_scheduled_holds_nothing_else() -> None:
    """The forward of a layer whose X, Y and W the schedule allocates and releases."""
    weights = next(number for number, each in enumerate(CHAIN.step.storages) if each.name == "weights of conv1")
    what = (*INPUT, *MAP1, weights)
    plan = lowered([Allocate(what, CONV1, Phase.FORWARD), FORWARD[0], Release(what)], AsScheduled)

    names = ["map input", "map conv1", "weights of conv1"]
    lines = [describe(each, plan.buffer_names, plan.layers) for each in plan.operations]
    allocations, releases = [f"allocate {name}" for name in names], [f"release {name}" for name in names]
    assert lines == [*allocations, "forward of conv1 (only)", *releases]


@pytest.mark.parametrize(
    "scheme",
    [ByLifetime, NetworkWide, partial(ByLifetime, shares_workspace=True), partial(ByLifetime, holds_statistics=True)],
)
def test_every_scheme_lowers_the_iteration_of_a_network(scheme: Scheme) -> None:
    plan = lowered(iteration(CHAIN), scheme)

    assert sum(isinstance(each, Compute) for each in plan.operations) == len(iteration(CHAIN))
