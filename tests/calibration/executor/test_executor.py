"""Executed plans: results bit for bit, the order of operations, and memory to the byte."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from calibration.executor.executor import DeviceLaboratory, Execution, Executor
from calibration.kernels.convolution import PYTORCH
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import (
    NETWORKS,
    UNLIMITED,
    Bench,
    assert_order_is_the_plans,
    assert_results_are_the_references,
    assert_results_are_those_of_autograd,
    every_policy,
    every_second_explicit,
    framework_first,
)
from tests.calibration.kernels.reference import run_reference
from tests.toy import with_fc
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.networks.tiny import tiny_linear, tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import (
    Allocate,
    Compute,
    HostSynchronize,
    Operation,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.placement import needed_bytes, place_unlimited
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.vdnn import VdnnAll, VdnnDyn
from vdnnsim.units import ElementType
from vdnnsim.validation.executor import Laboratory


def algorithms_of(plan: TrainingPlan) -> set[str]:
    """Return the algorithms of what has a choice; on a GPU, plans of cuDNN may be among them."""
    return {operation.algorithm for operation in plan.operations if isinstance(operation, Compute)} - {ONLY}


def check(bench: Bench, network: Callable[[], LayerGraph], plan: TrainingPlan, limits: MemoryLimits) -> Execution:
    workload = bench.workload(network)
    run = bench.execute(workload, plan, limits)
    assert_results_are_the_references(bench, workload, plan, run)
    if algorithms_of(plan) == {PYTORCH}:
        assert_results_are_those_of_autograd(bench, workload, run)
    assert_order_is_the_plans(plan, run.trace)
    placement = place_unlimited(plan, UNLIMITED)
    assert run.trace.pool_bytes == run.peaks.requested_bytes == placement.pool_bytes
    assert run.trace.host_bytes == placement.host_bytes
    times_s = [change.time_s for change in run.trace.memory]
    assert times_s == sorted(times_s)
    assert [(change.operation, change.delta_bytes) for change in run.trace.memory] == [
        (change.operation, change.delta_bytes) for change in placement.changes.values()
    ]
    return run


@pytest.mark.sampled(5)
@pytest.mark.parametrize("policy", every_policy(), ids=lambda policy: policy.label)
@pytest.mark.parametrize("network", NETWORKS)
def test_each_policy_computes_what_pytorch_does(
    bench: Bench, network: Callable[[], LayerGraph], policy: Policy
) -> None:
    """Under (p) all algorithms are the framework's own; (m) takes the least workspace of each layer."""
    plan = bench.plan(bench.workload(network), policy, framework_first)
    if "(p)" in plan.policy:
        assert algorithms_of(plan) == {PYTORCH}
    check(bench, network, plan, UNLIMITED)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_dynamic_policy_in_little_memory(bench: Bench, network: Callable[[], LayerGraph]) -> None:
    workload = bench.workload(network)
    limits = bench.tight_limits(workload, framework_first)
    plan = bench.plan(workload, VdnnDyn(), framework_first, limits)
    assert any(isinstance(operation, Prefetch) for operation in plan.operations)
    check(bench, network, plan, limits)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chunk", ["4 KiB", "auto"])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_fastest_schedule_in_little_memory(bench: Bench, recompute: bool, chunk: str) -> None:  # noqa: FBT001
    """In three quarters of the peak some of ResNet-20 is offloaded, or without host memory recomputed."""
    network = partial(build_network, "resnet20")
    workload, policy = bench.workload(network), Optimal(recompute=recompute, chunk=chunk)
    whole_bytes = needed_bytes(bench.plan(workload, Optimal(), framework_first))
    host_bytes = 1 if recompute else UNLIMITED.host_bytes
    limits = replace(UNLIMITED, device_bytes=whole_bytes * 3 // 4, host_bytes=host_bytes)
    plan = bench.plan(workload, policy, framework_first, limits)
    assert plan.certificate is not None
    assert plan.certificate.recomputed if recompute else plan.certificate.offloaded

    check(bench, network, plan, limits)


@pytest.mark.parametrize("element_type", [ElementType.FLOAT16, ElementType.BFLOAT16])
def test_narrow_elements(bench: Bench, element_type: ElementType) -> None:
    workload = replace(bench.workload(tiny_residual), element_type=element_type)
    plan = bench.plan(workload, VdnnAll(), every_second_explicit)
    assert_results_are_the_references(bench, workload, plan, bench.execute(workload, plan))


def test_maps_whose_channels_lie_last(bench: Bench) -> None:
    last = Bench.of(bench.device, PyTorchLibrary(bench.device.torch_device.type, channels_last=True))
    workload = bench.workload(tiny_residual)
    plan = last.plan(workload, VdnnAll())
    run = last.execute(workload, plan)
    assert_results_are_the_references(last, workload, plan, run)
    assert_results_are_those_of_autograd(last, workload, run)


@pytest.mark.parametrize("policy", [Base(), VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL)], ids=lambda each: each.label)
@pytest.mark.parametrize("optimizer", [Optimizer.SGD, Optimizer.MOMENTUM, Optimizer.ADAM])
def test_weights_after_an_update(bench: Bench, optimizer: Optimizer, policy: Policy) -> None:
    workload = replace(bench.workload(tiny_residual), optimizer=optimizer)
    plan = bench.plan(workload, policy)
    check_updates(bench, workload, [plan])


def joined() -> LayerGraph:
    """The sum of left and stem, joined with right over stem: autograd hands stem a copy of the gradient of that sum."""
    net = GraphBuilder("joined", MapShape(3, 4, 4))
    stem = net.conv("stem", 0, 4, 3, padding=1, relu=False)
    left = net.conv("left", stem, 4, 3, padding=1)
    right = net.conv("right", stem, 4, 3, padding=1)
    y = net.concat("join", (net.add("sum", left, stem), right))
    return with_fc(net, y, 10)


PYTORCH_LOOPS = (
    PyTorch(),
    PyTorch(set_to_none=False),
    Checkpoint(set_to_none=False),
    SaveOnCpu(set_to_none=False),
    SaveOnCpu(overlap=True),
    SaveOnCpu(overlap=True, set_to_none=False),
)
"""Weight gradients of `pytorch` and its kin are made in backward; those kept are added to in memory that is given."""


@pytest.mark.parametrize("policy", PYTORCH_LOOPS, ids=lambda policy: policy.label)
@pytest.mark.parametrize("network", [*NETWORKS, joined])
def test_pytorchs_loops_compute_what_pytorch_does(
    bench: Bench, network: Callable[[], LayerGraph], policy: Policy
) -> None:
    check(bench, network, bench.plan(bench.workload(network), policy), UNLIMITED)


def check_updates(
    bench: Bench, workload: Workload, plans: Sequence[TrainingPlan], limits: MemoryLimits = UNLIMITED
) -> None:
    """Every run of one executor begins with the same weights, and updates them as the reference does."""
    executor = Executor(bench.device, workload, bench.library)
    for plan in plans:
        run = executor.execute(plan, limits)
        assert isinstance(run, Execution)
        assert run.weights
        assert_results_are_the_references(bench, workload, plan, run)


@pytest.mark.parametrize("policy", PYTORCH_LOOPS, ids=lambda policy: policy.label)
def test_a_loop_of_pytorch_updates_weights(bench: Bench, policy: Policy) -> None:
    """Two iterations of one executor do not add up where weight gradients are kept."""
    workload = replace(bench.workload(tiny_residual), optimizer=Optimizer.ADAM)
    check_updates(bench, workload, 2 * [bench.plan(workload, policy)])


@pytest.mark.parametrize(
    ("share", "kinds"),
    [(0.6, {BufferKind.OPTIMIZER_STATE}), (0.5, {BufferKind.OPTIMIZER_STATE, BufferKind.WEIGHT_GRADIENT})],
)
def test_offloaded_states_are_prefetched_for_the_update(bench: Bench, share: float, kinds: set[BufferKind]) -> None:
    """In a share of the peak in which states are offloaded, and in one in which weight gradients are too."""
    workload = replace(bench.workload(tiny_residual), optimizer=Optimizer.ADAM)
    limits = replace(UNLIMITED, device_bytes=int(share * needed_bytes(bench.plan(workload, Base()))))
    plan = bench.plan(workload, Optimal(recompute=False, offload_optimizer=True), framework_first, limits)

    moved = {plan.buffers[each.buffer].kind for each in plan.operations if isinstance(each, Prefetch)}
    assert moved.intersection(RESIDENT) == kinds
    check_updates(bench, workload, 2 * [plan], limits)


def test_an_inference_has_a_loss_and_no_gradients(bench: Bench) -> None:
    workload = replace(bench.workload(tiny_linear), mode=Mode.INFERENCE)
    plan = bench.plan(workload, VdnnAll())
    run = bench.execute(workload, plan)
    assert run.gradients.keys() == set()
    assert run.loss == bench.execute(bench.workload(tiny_linear), bench.plan(bench.workload(tiny_linear), Base())).loss


def test_plans_take_turns_on_one_executor(bench: Bench) -> None:
    workload = replace(bench.workload(tiny_linear), optimizer=Optimizer.SGD)
    check_updates(bench, workload, [bench.plan(workload, policy) for policy in (VdnnAll(), Base(), VdnnAll())])


def test_a_gradient_released_in_the_middle_is_kept(bench: Bench) -> None:
    """The dW of the last layer with weights is released right after the kernel that writes it."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, Base())
    position, gradient = next(
        (position, buffer)
        for position, operation in enumerate(plan.operations)
        if isinstance(operation, Compute) and operation.phase is Phase.BACKWARD_WEIGHTS
        for buffer in operation.writes
        if plan.buffers[buffer].kind is BufferKind.WEIGHT_GRADIENT
    )
    operations: list[Operation] = [each for each in plan.operations if each != Release(gradient)]
    operations.insert(position + 1, Release(gradient))

    run = bench.execute(workload, replace(plan, operations=tuple(operations)))

    assert_results_are_the_references(bench, workload, plan, run)


def test_a_copy_that_is_kept_serves_two_prefetches(bench: Bench) -> None:
    """The first map that is prefetched is released again, and prefetched from the same copy."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    position, first = next(
        (position, each) for position, each in enumerate(plan.operations) if isinstance(each, Prefetch)
    )
    event = 1 + max(each.event for each in plan.operations if isinstance(each, RecordEvent))
    twice: tuple[Operation, ...] = (
        replace(first, keeps_copy=True),
        HostSynchronize((Stream.COMPUTE, Stream.MEMORY)),
        Release(first.buffer),
        Allocate(first.buffer, first.layer, Phase.BACKWARD_DATA),
        RecordEvent(event, Stream.COMPUTE),
        WaitEvent(event, Stream.MEMORY),
        first,
    )
    plan = replace(plan, operations=plan.operations[:position] + twice + plan.operations[position + 1 :])

    check(bench, tiny_linear, plan, UNLIMITED)


def test_laboratory_seeds_executors_and_may_drop_results(bench: Bench) -> None:
    laboratory: Laboratory = DeviceLaboratory(bench.device, bench.library, seed=1, keeps_results=False)
    workload = replace(bench.workload(tiny_linear), optimizer=Optimizer.SGD)
    run = laboratory.executor(workload).execute(bench.plan(workload, Base()), UNLIMITED)
    assert isinstance(run, Execution)
    assert (run.gradients, run.weights) == ({}, {})
    assert run.loss == run_reference(workload, bench.library, seed=1).loss
    assert run.loss != run_reference(workload, bench.library).loss
