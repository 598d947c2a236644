"""Plans in poisoned memory: whatever is allocated or freed is overwritten with NaN."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from calibration.executor import executor
from tests.calibration.executor.bench import NETWORKS, Bench, assert_results_are_the_references, every_second_explicit
from tests.calibration.executor.poisoned_device import poisoned
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import HostSynchronize, Operation, Prefetch
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

LATE_S = 0.01


@pytest.mark.parametrize("policy", [Base(), VdnnAll()], ids=lambda policy: policy.label)
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_is_read_too_early_or_late(bench: Bench, network: Callable[[], LayerGraph], policy: Policy) -> None:
    late = replace(bench, device=poisoned(bench.device))
    workload = bench.workload(network)
    plan = bench.plan(workload, policy, every_second_explicit)
    assert_results_are_the_references(bench, workload, plan, late.execute(workload, plan))


def first(plan: TrainingPlan, kind: type[Operation], begin: int = 0) -> int:
    return next(i for i, each in enumerate(plan.operations) if i >= begin and isinstance(each, kind))


@pytest.mark.parametrize(
    ("left_out", "copies_late_s", "kernels_late_s"),
    [
        # The host's wait for an offload: the map is freed while it is copied.
        (lambda plan: first(plan, HostSynchronize), LATE_S, 0.0),
        # The host's wait for a prefetch: a kernel reads what has not arrived.
        (lambda plan: first(plan, HostSynchronize, first(plan, Prefetch)), LATE_S, 0.0),
        # The wait for an allocation: the bytes of the first prefetch are not yet the map's.
        (lambda plan: first(plan, Prefetch) - 1, 0.0, LATE_S),
        (lambda plan: first(plan, Prefetch), 0.0, 0.0),
    ],
    ids=["wait for an offload", "wait for a prefetch", "wait for an allocation", "prefetch"],
)
def test_an_operation_left_out_changes_the_gradients(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    left_out: Callable[[TrainingPlan], int],
    copies_late_s: float,
    kernels_late_s: float,
) -> None:
    """The check of plans refuses each of these; without it, and where one stream is late, the results are wrong."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    at = left_out(plan)
    mutant = replace(plan, operations=plan.operations[:at] + plan.operations[at + 1 :])
    with pytest.raises(PlanError):
        check_plan(mutant)
    device = poisoned(bench.device, copies_late_s=copies_late_s, kernels_late_s=kernels_late_s)
    late = replace(bench, device=device)
    sane = late.execute(workload, plan)
    assert_results_are_the_references(bench, workload, plan, sane)
    monkeypatch.setattr(executor, "check_plan", lambda _: None)
    # The recorder would find what overlaps as well.
    monkeypatch.setattr(executor, "trace_of", lambda *_: sane.trace)

    wrong = late.execute(workload, mutant)

    assert any(not torch.equal(wrong.gradients[index], gradient) for index, gradient in sane.gradients.items())
