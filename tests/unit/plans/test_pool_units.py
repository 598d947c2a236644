"""Units of the captured chain: which operations allocate in one pool."""

import pytest

from tests.captured_steps import chain, simulator
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Allocate
from vdnnsim.plans.pool_units import Use, units_of
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu


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


def test_given_buffers_and_those_of_the_update_have_no_unit() -> None:
    plan = plan_of(PyTorch())
    units = units_of(plan, None)
    for at in units:
        each = plan.operations[at]
        assert isinstance(each, Allocate)
        assert not plan.buffers[each.buffer].given
