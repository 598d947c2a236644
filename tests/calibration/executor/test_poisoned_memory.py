"""Plans in poisoned memory: whatever is taken or given back is overwritten with values that are no numbers.

So a read before a copy has arrived, or after a release, changes the gradients. The same plans with an operation left
out show that these tests can fail.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from calibration.executor import executor
from tests.calibration.executor.bench import NETWORKS, Bench, assert_results_are_the_references, every_second_explicit
from tests.calibration.executor.poisoned_device import PoisonedDevice
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import HostSynchronize, Operation, Prefetch, WaitEvent
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

LATE_S = 0.01


@pytest.mark.parametrize("policy", [Base(), VdnnAll()], ids=lambda policy: policy.label)
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_is_read_before_it_is_there_or_after_it_is_gone(
    bench: Bench, network: Callable[[], LayerGraph], policy: Policy
) -> None:
    poisoned = replace(bench, device=PoisonedDevice(bench.device))
    workload = bench.workload(network)
    plan = bench.plan(workload, policy, every_second_explicit)
    assert_results_are_the_references(bench, workload, plan, poisoned.execute(workload, plan))


def first(plan: TrainingPlan, kind: type[Operation], begin: int = 0) -> int:
    return next(i for i, each in enumerate(plan.operations) if i >= begin and isinstance(each, kind))


def without_the_wait_for_an_offload(plan: TrainingPlan) -> tuple[Operation, ...]:
    """The host no longer waits for the first offload, so the map goes while it is copied."""
    position = first(plan, HostSynchronize)
    return plan.operations[:position] + plan.operations[position + 1 :]


def without_the_wait_for_a_prefetch(plan: TrainingPlan) -> tuple[Operation, ...]:
    """The host no longer waits for the first prefetch, so a kernel reads what has not arrived."""
    position = first(plan, HostSynchronize, first(plan, Prefetch))
    return plan.operations[:position] + plan.operations[position + 1 :]


def without_the_wait_for_an_allocation(plan: TrainingPlan) -> tuple[Operation, ...]:
    """The memory stream no longer waits until the bytes of the first prefetch are the map's."""
    position = first(plan, Prefetch) - 1
    assert isinstance(plan.operations[position], WaitEvent)
    return plan.operations[:position] + plan.operations[position + 1 :]


def without_a_prefetch(plan: TrainingPlan) -> tuple[Operation, ...]:
    position = first(plan, Prefetch)
    return plan.operations[:position] + plan.operations[position + 1 :]


@pytest.mark.parametrize(
    ("mutate", "copies_late_s", "kernels_late_s"),
    [
        (without_the_wait_for_an_offload, LATE_S, 0.0),
        (without_the_wait_for_a_prefetch, LATE_S, 0.0),
        (without_the_wait_for_an_allocation, 0.0, LATE_S),
        (without_a_prefetch, 0.0, 0.0),
    ],
)
def test_an_operation_left_out_changes_the_gradients(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    mutate: Callable[[TrainingPlan], tuple[Operation, ...]],
    copies_late_s: float,
    kernels_late_s: float,
) -> None:
    """The check of plans refuses each of these; without it, and where one stream is late, the results are wrong."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    mutant = replace(plan, operations=mutate(plan))
    with pytest.raises(PlanError):
        check_plan(mutant)
    late = PoisonedDevice(bench.device, copies_late_s=copies_late_s, kernels_late_s=kernels_late_s)
    poisoned = replace(bench, device=late)
    sane = poisoned.execute(workload, plan)
    assert_results_are_the_references(bench, workload, plan, sane)
    monkeypatch.setattr(executor, "check_plan", lambda _: None)
    # The recorder would find what overlaps as well.
    monkeypatch.setattr(executor, "trace_of", lambda *_: sane.trace)

    wrong = poisoned.execute(workload, mutant)

    assert any(not torch.equal(wrong.gradients[index], gradient) for index, gradient in sane.gradients.items())
