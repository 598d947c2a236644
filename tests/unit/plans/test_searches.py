"""cuDNN's algorithm searches in the plan of the captured chain, its convolution one of 64 channels of 8 x 8.

Two images of it are maps of 32 KiB, W under windows of 3 x 3 has 144 KiB; a search takes half as much again as all.
"""

import msgspec
import pytest

from tests.captured_steps import chain, simulator
from tests.unit.cost.test_captured_costs import changed
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.memory.choices import memory_choice
from vdnnsim.memory.requests import Request
from vdnnsim.plans.device_requests import searches
from vdnnsim.plans.operations import Allocate, Compute
from vdnnsim.plans.placement import asked_by_iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import KIB

SEARCHED = (2 * 32 + 144) * KIB * 3 // 2
BOTH = ("input", "weight")
FIRST, BACK = 0, -2
"""The convolution among the operations of the chain, and its backward."""


def work(*computes: str, channels_last: bool = False, groups: int = 1, batch_size: int = 2) -> ConvolutionWork:
    shape = (batch_size, 64, 64, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), groups)
    return ConvolutionWork(*shape, channels_last=channels_last, computes=computes)


def with_convolutions(forward: ConvolutionWork, backward: ConvolutionWork, device: str = "cuda 8.0") -> CapturedStep:
    found = chain()
    for number, each in ((FIRST, forward), (len(found.operations) + BACK, backward)):
        found = changed(number, found, work=each)
    return msgspec.structs.replace(found, device=device)


def plan(of: CapturedStep) -> TrainingPlan:
    return PyTorch().plan(simulator(of).setting())


def before(made: TrainingPlan, number: int) -> str:
    """Return what the operation does before which a search is made."""
    operation = made.operations[number]
    if isinstance(operation, Allocate):
        return made.buffers[operation.buffer].name
    assert isinstance(operation, Compute)
    return operation.phase.value


def test_each_convolution_is_searched_for_before_it_takes_its_workspace() -> None:
    """Forward, for the data gradient and for the weight gradient, under numbers that no buffer has."""
    of = with_convolutions(work(), work(*BOTH))
    made = plan(of)
    found = searches(made, CapturedWorkload.of(of))
    assert [before(made, each.operation) for each in found] == [
        "workspace of conv",
        "earlier workspace of conv",
        "workspace of conv",
    ]
    assert [each.request for each in found] == [
        Request(len(made.buffers) + number, SEARCHED, searches=True) for number in range(3)
    ]


def test_a_convolution_without_workspace_is_searched_for_before_it_runs() -> None:
    """Without tensor cores nothing is known of any; of one gradient there is one search."""
    of = with_convolutions(work(), work("weight"), device="cuda 7.5")
    made = plan(of)
    assert [before(made, each.operation) for each in searches(made, CapturedWorkload.of(of))] == ["forward", "backward"]


@pytest.mark.parametrize(("channels_last", "times"), [(False, 0), (True, 3)])
def test_depthwise_convolutions_are_searched_for_channels_last(*, channels_last: bool, times: int) -> None:
    forward, backward = (work(*each, channels_last=channels_last, groups=64) for each in ((), BOTH))
    of = with_convolutions(forward, backward)
    assert len(searches(plan(of), CapturedWorkload.of(of))) == times


def test_a_convolution_of_the_same_sizes_is_searched_for_once() -> None:
    """As if relu were the convolution again."""
    found = with_convolutions(work(), work(*BOTH))
    again = changed(2, found, work=work())
    assert len(searches(plan(again), CapturedWorkload.of(again))) == 3


def test_the_first_of_three_iterations_searches_where_that_is_set() -> None:
    of = with_convolutions(work(), work(*BOTH))
    for words, times in (("", [0, 0, 0]), ("cudnn_benchmark:True", [3, 0, 0])):
        machine = simulator(of, memory_choice(f"pytorch({words})"))
        (made,) = machine.ready([plan(of)], "pytorch(p)")
        asked = asked_by_iteration(made, machine.limits)
        assert [sum(each.request.searches for each in iteration) for iteration in asked] == times
        assert sorted(machine.place_unlimited(made).changes) == sorted(
            {each.operation for each in asked[-1]} | {each.operation for each in asked[0] if not each.request.searches}
        )
