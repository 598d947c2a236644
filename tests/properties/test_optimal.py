"""`optimal` is not slower than any other policy that fits, and no schedule of its class beats its bound.

Five hundred random networks on random machines: `pytest -m thorough tests/properties/test_optimal.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_plans import cost_tables, graphs
from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, toy_setting, toy_workload
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Link, Server
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.alternatives import ALTERNATIVES
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Setting, Trial, make_plan
from vdnnsim.policies.optimal import Optimal

OTHERS = [policy() for policy in ALTERNATIVES]


@dataclass(frozen=True)
class Machine:
    """A network, its kernels, and a machine that may have too little memory for it."""

    workload: Workload
    costs: ToyCosts
    server: Server
    limits: MemoryLimits

    @property
    def setting(self) -> Setting:
        return toy_setting(self.workload, self.costs, self.limits, self.server)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Chains and branches of kernels with up to three algorithms; links from slow to fast; from little memory to all.

    The memory is a fifth to all of what the network takes when nothing leaves; in less hardly any can be trained.
    """
    rates, latencies = st.sampled_from((0.5, 1.0, 4.0, 64.0)), st.sampled_from((0.0, 0.125, 2.0))
    workload = replace(
        toy_workload(draw(graphs())), batch_size=draw(st.integers(1, 3)), optimizer=draw(st.sampled_from(Optimizer))
    )
    costs = draw(cost_tables(workload))
    server = replace(TOY_SERVER, link=Link("link", draw(rates), draw(rates), draw(latencies)))
    roomy = replace(TOY_LIMITS, device_bytes=10**9, host_bytes=10**9, granule_bytes=draw(st.sampled_from((1, 8))))
    most = needed_bytes(Base().plan(toy_setting(workload, costs, roomy, server)), roomy.granule_bytes)
    return Machine(workload, costs, server, replace(roomy, device_bytes=most * draw(st.integers(4, 20)) // 20))


def is_of_the_class(plan: TrainingPlan, workload: Workload, *, recompute: bool) -> bool:
    """Whether a plan keeps weights, their gradients and states on the GPU, and recomputes nothing unless it may."""
    moved = {plan.buffers[each.buffer].kind for each in plan.operations if isinstance(each, Offload | Prefetch)}
    again = any(isinstance(each, Compute) and each.repeat for each in plan.operations)
    return plan.workload == workload and (recompute or not again) and moved.isdisjoint(RESIDENT)


def trials_of_others(machine: Machine, *, recompute: bool) -> Iterator[tuple[str, Trial]]:
    """Yield the trials of other policies of the class that fit."""
    for policy in OTHERS:
        plan = make_plan(policy, machine.setting)
        trial = machine.setting.trials.run_trial(plan)
        if trial.fits and is_of_the_class(plan, machine.workload, recompute=recompute):
            yield policy.label, trial


def hold(machine: Machine, *, recompute: bool) -> None:
    plan = make_plan(Optimal(recompute=recompute), machine.setting)
    found = machine.setting.trials.run_trial(plan)
    assert plan.certificate is not None
    bound_s = plan.certificate.bound_s
    assert not found.fits or bound_s <= found.cost_s * (1 + 1e-9)
    for policy, trial in trials_of_others(machine, recompute=recompute):
        assert found.fits, f"{policy} fits"
        assert bound_s <= trial.cost_s * (1 + 1e-9), policy
        assert found.cost_s <= trial.cost_s * (1 + 1e-9), policy


@given(machine=machines())
@settings(max_examples=3)
def test_no_other_policy_is_faster_where_buffers_have_addresses(machine: Machine) -> None:
    hold(replace(machine, limits=replace(machine.limits, model=MemoryModel.BEST_FIT)), recompute=True)


@given(machine=machines())
@settings(max_examples=10)
def test_no_other_policy_is_faster(machine: Machine) -> None:
    for recompute in (False, True):
        hold(machine, recompute=recompute)


@pytest.mark.thorough
@pytest.mark.parametrize("recompute", [False, True])
@given(machine=machines())
@settings(max_examples=500)
def test_no_other_policy_is_faster_on_500_machines(recompute: bool, machine: Machine) -> None:  # noqa: FBT001
    hold(machine, recompute=recompute)
