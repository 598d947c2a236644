"""Workspaces in plans: of other kernels than a plan was made with, of cuBLAS, and of cuDNN's searches.

The products are those of `fc` in the plan of the captured chain, one forward and two backward; the convolution of the
chain that is searched for is one of 64 channels of 8 x 8. Two images of it are maps of 32 KiB, W under windows of 3 x 3
has 144 KiB; a search takes half as much again as all.
"""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_steps import chain, simulator
from tests.machines import shipped_profile
from tests.unit.cost.test_captured_costs import changed
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import KernelChoice, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.memory.choices import MemoryModel, memory_choice
from vdnnsim.memory.process import CUBLAS_BYTES
from vdnnsim.memory.requests import Request
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.device_requests import Asked, device_requests, searches
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.operations import Allocate, Compute
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.placement import asked_by_iteration
from vdnnsim.plans.repetition import cublas_bytes, first_products, repeated, resident_buffers, with_cublas_workspaces
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.schemes import ByLifetime
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.plans.workspaces import algorithms_of, captured_as, with_workspaces, workspaces_of
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.units import GIB, KIB

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


def plan(step: CapturedStep) -> TrainingPlan:
    return PyTorch().plan(simulator(step).setting())


def workspaces(of: TrainingPlan) -> list[tuple[str, int]]:
    return [(each.name, each.nbytes) for each in of.buffers if "cuBLAS" in each.name]


def test_forward_and_backward_on_a_gpu_each_hold_a_workspace() -> None:
    held = with_cublas_workspaces(plan(chain()))
    check_plan(held)
    assert workspaces(held) == [
        ("workspace of cuBLAS for forward", CUBLAS_BYTES),
        ("workspace of cuBLAS for backward", CUBLAS_BYTES),
    ]
    assert {held.buffers[each].name for each in resident_buffers(held)} >= {name for name, _ in workspaces(held)}
    # Cpu captures and other memory models have no workspace.
    on_cpu = msgspec.structs.replace(chain(), device="cpu")
    assert with_cublas_workspaces(plan(on_cpu)) == plan(on_cpu)
    assert cublas_bytes(CapturedWorkload.of(on_cpu), 512) == 0
    (ready,) = simulator(chain(), MemoryModel.IDEAL).ready([plan(chain())], "pytorch(p)")
    assert workspaces(ready) == []
    # Two of 8,519,680 B each, which are whole granules of 512 B.
    machine = simulator(chain())
    roomy = msgspec.structs.replace(chain(), device="cpu")
    without = simulator(roomy).setting().limits.device_bytes
    assert machine.setting().limits.device_bytes == max(0, without - 2 * CUBLAS_BYTES)


def test_the_first_iteration_allocates_them_at_the_first_product_and_the_last_frees_them() -> None:
    """Of two iterations the second asks for neither; weights are there before anything else."""
    held = with_cublas_workspaces(plan(chain()))
    twice = repeated(held, device_requests(held, MemoryModel.PYTORCH, 512, Pieces(held)), 2)
    asked = [each for iteration in twice for each in iteration]
    numbers = first_products(held)

    def where(key: int) -> list[int]:
        return [at for at, each in enumerate(asked) if each.request.key == key]

    forward, backward = numbers
    taken, given_back = where(forward)
    weights = next(at for at, each in enumerate(asked) if held.buffers[each.request.key].kind is BufferKind.WEIGHTS)
    assert weights < taken < where(backward)[0] < given_back
    assert asked[given_back] == Asked(asked[given_back].operation, asked[given_back].request._replace(nbytes=None))
    before = {held.buffers[each.request.key].name for each in asked[:taken]}
    assert "conv" in before
    assert "gradient of loss" not in before


def test_a_placement_shows_the_third_iteration() -> None:
    """Every operation of the plan that changes memory has its change, once."""
    machine = simulator(chain())
    (ready,) = machine.ready([plan(chain())], "pytorch(p)")
    placed = machine.place_unlimited(ready)
    once = device_requests(ready, MemoryModel.PYTORCH, 512, Pieces(ready))
    assert sorted(placed.changes) == [each.operation for each in once]
    assert sum(each.delta_bytes for each in placed.changes.values()) == 0
    assert 2 * CUBLAS_BYTES < placed.pool_bytes < GIB


def test_only_a_device_with_a_version_has_a_compute_capability() -> None:
    devices = ("cuda 9.0", "cuda", "cuda x.y", "cpu")
    found = [msgspec.structs.replace(chain(), device=each).compute_capability for each in devices]
    assert found == [(9, 0), None, None, None]


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
