"""Plans whose kernels have workspaces of other sizes, against those that are written with them."""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_steps import chain
from tests.machines import shipped_profile
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import KernelChoice, KernelCost
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.schemes import ByLifetime
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.plans.workspaces import algorithms_of, captured_as, with_workspaces, workspaces_of
from vdnnsim.policies.algorithms import Algorithms, choose_kernels

WORKLOAD = CapturedWorkload.of(msgspec.structs.replace(chain(4), device="cuda 8.0"))
MODELED = choose_kernels(
    WORKLOAD, ServerCosts(shipped_profile("rtx_4090").server).table(WORKLOAD), Algorithms.PERFORMANCE_OPTIMAL
)


def sized(start: int) -> KernelChoice:
    """Return the kernels with workspaces of ever more bytes, the first of them so many."""
    number = start - 1

    def of(kernel: KernelCost) -> KernelCost:
        nonlocal number
        parts = tuple(map(of, kernel.parts))
        number += 1
        return replace(kernel, parts=parts, workspace_bytes=number, workspaces=())

    return {where: of(kernel) for where, kernel in MODELED.items()}


def planned(kernels: KernelChoice, workload: CapturedWorkload = WORKLOAD) -> TrainingPlan:
    return lower(iteration(workload), workload, kernels, label="x", algorithms="p")


@pytest.mark.parametrize("start", [1, 1000])
def test_a_plan_gets_the_workspaces_of_other_kernels(start: int) -> None:
    """Each kernel has one of its own: it is the plan that is written with those kernels."""
    small, large = sized(500), sized(start)
    assert algorithms_of(small) == algorithms_of(large)
    assert workspaces_of(small) != workspaces_of(large)
    assert with_workspaces(planned(small), large) == planned(large)


def test_a_kernel_that_has_no_workspace_gets_none() -> None:
    """The first alone has none here and there; the plan is the one that is written with the others' new sizes."""
    first = next(where for where, kernel in MODELED.items() if not kernel.parts)
    small, large = (each | {first: replace(each[first], workspace_bytes=0)} for each in map(dict, map(sized, (1, 9))))
    assert with_workspaces(planned(small), large) == planned(large)


def test_a_workspace_that_is_shared_is_left() -> None:
    """By all kernels, or by several of one kernel in a row."""
    small, large = sized(500), sized(1000)
    shared = lower(
        iteration(WORKLOAD),
        WORKLOAD,
        small,
        lambda draft: ByLifetime(draft, shares_workspace=True),
        label="x",
        algorithms="p",
    )
    assert with_workspaces(shared, large) is None
    several = {
        where: kernel if kernel.parts else replace(kernel, workspaces=(7, kernel.workspace_bytes))
        for where, kernel in small.items()
    }
    assert with_workspaces(planned(several), several) is None


def test_kernels_without_a_workspace_are_other_ones() -> None:
    """Their plan allocates nothing there."""
    without = {where: replace(kernel, workspace_bytes=0, parts=()) for where, kernel in sized(1).items()}
    assert algorithms_of(without) != algorithms_of(
        {where: replace(each, workspace_bytes=1) for where, each in without.items()}
    )


def test_a_plan_is_captured_for_another_card() -> None:
    """Of capability 8.6, in the same memory."""
    other = CapturedWorkload.of(msgspec.structs.replace(chain(4), device="cuda 8.6"))
    plan = planned(sized(1))
    there = captured_as(plan, replace(WORKLOAD, captured=other.captured))
    assert there == planned(sized(1), other)
    assert (there.buffers, there.operations) == (plan.buffers, plan.operations)
    assert captured_as(plan, WORKLOAD) is plan
