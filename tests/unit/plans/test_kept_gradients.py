"""Weight gradients of the captured chain, three of 4 B, kept where its capture dropped them."""

from tests.captured_steps import chain, simulator
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Allocate, Release
from vdnnsim.plans.repetition import resident_buffers
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.pytorch import PyTorch


def plan(*, set_to_none: bool) -> TrainingPlan:
    made = PyTorch(set_to_none=set_to_none).plan(simulator(chain()).setting())
    check_plan(made)
    return made


def test_kept_gradients_outlive_an_iteration_and_computed_ones_are_freed_at_once() -> None:
    """Each is computed in memory of its own, released before the next is allocated."""
    kept, dropped = plan(set_to_none=False), plan(set_to_none=True)
    gradients = {number for number, each in enumerate(dropped.buffers) if each.name.endswith(".weight.grad")}
    assert len(gradients) == 3
    assert resident_buffers(kept) - resident_buffers(dropped) == gradients
    apart = {number for number, each in enumerate(kept.buffers) if each.name.endswith(".weight.grad, computed")}
    changes = [each for each in kept.operations if isinstance(each, Allocate | Release) and each.buffer in apart]
    assert [type(each) for each in changes] == [Allocate, Release] * 3
    assert len({each.buffer for each in changes}) == 3
