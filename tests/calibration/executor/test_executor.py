"""Executed plans: results bit for bit, the order of operations, memory to the byte, and plans that do not fit.

In poisoned memory whatever is allocated or freed is overwritten with NaN.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch

from calibration.devices.cpu import CpuDevice
from calibration.executor import executor
from calibration.executor.compiled_plan import refuse_impossible
from calibration.executor.executor import DeviceLaboratory, Execution, Executor
from calibration.executor.pinned_arena import PinnedArena
from calibration.kernels.convolution import PYTORCH
from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import (
    NETWORKS,
    UNLIMITED,
    Bench,
    Seconds,
    assert_order_is_the_plans,
    assert_results_are_the_references,
    assert_results_are_those_of_autograd,
    every_policy,
    every_second_explicit,
    framework_first,
)
from tests.calibration.executor.poisoned_device import poisoned, without_extents, without_room_for_extents
from tests.calibration.kernels.reference import run_reference
from tests.toy import overflow_of, placement_of, with_fc
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import DeviceError, ExecutionRefused, PlanError
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import (
    Allocate,
    AllocateExtent,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, needed_bytes, place_plan, place_unlimited
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.vdnn import VdnnAll, VdnnDyn
from vdnnsim.units import KIB, ElementType
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


SEGMENT_BYTES = 64 * KIB


class CachingDevice(CpuDevice):
    """A CPU whose allocator takes segments of 64 KiB and keeps them until its cache is emptied."""

    def __init__(self) -> None:
        super().__init__()
        self._segments = self._at_begin = 0

    def allocate(self, nbytes: int) -> torch.Tensor:
        tensor = super().allocate(nbytes)
        self._take_segments(super().in_use().requested_bytes)
        return tensor

    def count_internal_allocation(self, nbytes: int) -> None:
        super().count_internal_allocation(nbytes)
        self._take_segments(super().in_use().requested_bytes + nbytes)

    def empty_cache(self) -> None:
        self._segments = 0
        self._take_segments(super().in_use().requested_bytes)

    def begin(self) -> None:
        super().begin()
        self._at_begin = self._segments

    def peaks(self) -> MemoryCount:
        requested_bytes = super().peaks().requested_bytes
        return MemoryCount(requested_bytes, requested_bytes, (self._segments - self._at_begin) * SEGMENT_BYTES)

    def in_use(self) -> MemoryCount:
        requested_bytes = super().in_use().requested_bytes
        return MemoryCount(requested_bytes, requested_bytes, self._segments * SEGMENT_BYTES)

    def _take_segments(self, nbytes: int) -> None:
        self._segments = max(self._segments, -(-nbytes // SEGMENT_BYTES))


@pytest.fixture
def caching_device() -> Iterator[CachingDevice]:
    device = CachingDevice()
    yield device
    device.close()


def test_reserved_bytes_count_from_a_plans_first_run(caching_device: CachingDevice, library: PyTorchLibrary) -> None:
    """Every run of a plan allocates the same, from the second on in what was reserved; another plan starts empty."""
    bench = Bench.of(caching_device, library)
    workload = bench.workload(tiny_linear)
    executor = Executor(caching_device, workload, library)
    large, small = bench.plan(workload, Base()), bench.plan(workload, VdnnAll())

    for plan, ordinals in ((large, (1, 2, 3)), (small, (1, 2)), (large, (1,))):
        nbytes = needed_bytes(plan)
        for ordinal in ordinals:
            run = executor.execute(plan, UNLIMITED)
            assert isinstance(run, Execution)
            assert run.ordinal == ordinal
            assert run.peaks == MemoryCount(nbytes, nbytes, -(-nbytes // SEGMENT_BYTES) * SEGMENT_BYTES)
    assert needed_bytes(large) - SEGMENT_BYTES > needed_bytes(small)


def test_residents_stay_until_another_plan_runs(bench: Bench) -> None:
    """W and the two states of Adam; they are filled again, so that each run computes the same."""
    workload = replace(bench.workload(tiny_linear), optimizer=Optimizer.ADAM)
    plan = bench.plan(workload, VdnnAll())
    staying_bytes = 3 * 4 * sum(layer.parameters for layer in workload.graph.layers)
    before_bytes = bench.device.in_use().requested_bytes
    executor = Executor(bench.device, workload, bench.library)

    runs = [executor.execute(plan, UNLIMITED) for _ in range(2)]
    assert bench.device.in_use().requested_bytes == before_bytes + staying_bytes
    for run in runs:
        assert isinstance(run, Execution)
        assert_results_are_the_references(bench, workload, plan, run)
    executor.close()
    assert bench.device.in_use().requested_bytes == before_bytes


def test_an_executor_of_another_workload_has_no_residents(bench: Bench) -> None:
    laboratory = DeviceLaboratory(bench.device, bench.library)
    workload = bench.workload(tiny_linear)
    before_bytes = bench.device.in_use().requested_bytes
    laboratory.executor(workload).execute(bench.plan(workload, Base()), UNLIMITED)
    assert bench.device.in_use().requested_bytes > before_bytes
    laboratory.executor(bench.workload(tiny_forked))
    assert bench.device.in_use().requested_bytes == before_bytes


def explicit(_layer: Layer, _phase: Phase, place: int) -> float:
    """Explicit GEMM, which is handed its workspace, is the fastest."""
    return 1.0 - 0.1 * place


@pytest.mark.parametrize(
    ("lacking", "pool"), [({"device_bytes": 10**5}, Pool.DEVICE), ({"host_bytes": 1000}, Pool.PINNED)]
)
def test_a_plan_that_does_not_fit_is_not_begun(bench: Bench, lacking: dict[str, int], pool: Pool) -> None:
    workload, limits = bench.workload(tiny_linear), replace(UNLIMITED, **lacking)  # type: ignore[arg-type]
    plan = bench.plan(workload, VdnnAll())
    bench.device.begin()
    answer = Executor(bench.device, workload, bench.library).execute(plan, limits)
    assert answer == place_plan(plan, limits)
    assert isinstance(answer, DoesNotFit)
    assert answer.pool is pool
    assert bench.device.peaks().requested_bytes == 0


@pytest.mark.parametrize(("seconds", "later"), [(explicit, 0), (framework_first, 1)])
def test_a_device_that_runs_out_in_the_middle(bench: Bench, device: CpuDevice, seconds: Seconds, later: int) -> None:
    """The device is a byte smaller than the plan's peak: it fails where placement in as much would.

    That is a workspace in backward. If the kernel allocates it, the operation behind the Allocate fails. Afterwards the
    device is empty.
    """
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll(), seconds)
    placement = placement_of(plan, UNLIMITED)
    device.memory_bytes = placement.pool_bytes - 1
    expected = overflow_of(plan, replace(UNLIMITED, device_bytes=device.memory_bytes))
    assert expected.phase.is_backward

    answer = Executor(device, workload, bench.library).execute(plan, UNLIMITED)

    assert answer == replace(expected, operation=expected.operation + later)
    device.release(device.allocate(device.memory_bytes))


def test_a_device_without_room_for_the_first_allocations(bench: Bench, device: CpuDevice) -> None:
    """The gradient slots of base come last of all: a map of conv1_1 of 131,072 B, twice."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, Base())
    slot = next(i for i, buffer in enumerate(plan.buffers) if buffer.name == "gradient slot 2")
    device.memory_bytes = 131_071 + sum(
        plan.buffers[each.buffer].nbytes
        for each in plan.operations[: plan.operations.index(Allocate(slot, 0, Phase.BACKWARD_DATA))]
        if isinstance(each, Allocate)
    )

    answer = Executor(device, workload, bench.library).execute(plan, UNLIMITED)

    assert isinstance(answer, DoesNotFit)
    assert answer.buffer == slot
    assert (answer.requested_bytes, answer.free_bytes) == (131_072, 131_071)
    assert answer == place_plan(plan, replace(UNLIMITED, device_bytes=device.memory_bytes))
    device.release(device.allocate(device.memory_bytes))


def test_an_arena_larger_than_host_memory_is_refused(bench: Bench) -> None:
    """No machine has 2^60 B; a smaller arena can be reserved afterwards."""
    arena = PinnedArena(bench.device)
    with pytest.raises(DeviceError, match=r"1073741824 GiB"):
        arena.reserve(2**60)
    arena.reserve(10)
    assert arena.slice(0, 10).nbytes == 10


class FailingLibrary(PyTorchLibrary):
    """A library whose forward of the loss fails."""

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        kernels = super().kernels(workload, layer, phase)
        if layer.name == "loss" and phase is Phase.FORWARD:
            return tuple(replace(kernel, run=fail) for kernel in kernels)
        return kernels


def fail(_: KernelTensors) -> None:
    raise RuntimeError("the kernel failed")


def test_a_kernel_that_fails_leaves_nothing_behind(bench: Bench) -> None:
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())

    with pytest.raises(RuntimeError, match="the kernel failed"):
        Executor(bench.device, workload, FailingLibrary("cpu")).execute(plan, UNLIMITED)

    run = bench.execute(workload, plan)
    assert_results_are_the_references(bench, workload, plan, run)
    assert run.peaks.requested_bytes == needed_bytes(plan)


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


CHUNK_BYTES = 5000


def with_addresses_kept(plan: TrainingPlan) -> TrainingPlan:
    """Let what is offloaded in chunks keep its addresses: its extents are allocated again before each prefetch."""
    parted = {each.buffer for each in plan.operations if isinstance(each, Prefetch) and each.extent is not None}
    left: dict[int, int] = {}
    operations: list[Operation] = []
    for operation in plan.operations:
        match operation:
            case ReleaseExtent(buffer=buffer, extent=extent):
                left[buffer] = extent.stop
                operations.append(operation)
            case Release(buffer=buffer) if buffer in left and buffer in parted:
                rest = range(left[buffer], plan.buffers[buffer].nbytes)
                operations.append(ReleaseExtent(buffer, rest))
            case Allocate(buffer=buffer, layer=layer, phase=phase) if buffer in left and buffer in parted:
                chunks = [
                    each.extent for each in plan.operations if isinstance(each, Prefetch) and each.buffer == buffer
                ]
                operations += [AllocateExtent(buffer, each, layer, phase) for each in chunks if each is not None]
                del left[buffer]
            case _:
                operations.append(operation)
    return replace(plan, operations=tuple(operations))


@pytest.fixture
def plan(bench: Bench) -> TrainingPlan:
    whole = bench.plan(bench.workload(tiny_linear), VdnnAll(), every_second_explicit)
    return with_addresses_kept(in_chunks(whole, CHUNK_BYTES))


@pytest.mark.parametrize("network", NETWORKS)
def test_chunks_compute_the_results_of_whole_buffers(bench: Bench, network: Callable[[], LayerGraph]) -> None:
    """On a device that fills memory with NaN when it is allocated or freed, extents included."""
    whole = bench.plan(bench.workload(network), VdnnAll(), every_second_explicit)
    chunked = with_addresses_kept(in_chunks(whole, CHUNK_BYTES))
    check_plan(chunked)
    assert {type(each) for each in chunked.operations} >= {AllocateExtent, ReleaseExtent}
    assert any(isinstance(each, Offload) and each.extent is not None for each in chunked.operations)

    run = check(replace(bench, device=poisoned(bench.device)), network, chunked, UNLIMITED)

    copies = [chunked.operations[span.operation] for span in run.trace.spans_on(Stream.MEMORY)]
    assert all(isinstance(each, Offload | Prefetch) and chunked.copied_bytes(each) <= CHUNK_BYTES for each in copies)


def test_a_device_that_has_no_room_for_an_extent(bench: Bench, plan: TrainingPlan) -> None:
    """The answer names the extent; what was held is what the plan has in use there, less released extents."""
    asked = next(i for i, each in enumerate(plan.operations) if isinstance(each, AllocateExtent))
    operation = plan.operations[asked]
    assert isinstance(operation, AllocateExtent)
    changes = place_unlimited(plan, UNLIMITED).changes
    in_use = sum(change.delta_bytes for position, change in changes.items() if position < asked)

    answer = Executor(without_room_for_extents(bench.device), bench.workload(tiny_linear), bench.library).execute(
        plan, UNLIMITED
    )

    assert isinstance(answer, DoesNotFit)
    assert (answer.operation, answer.buffer, answer.phase) == (asked, operation.buffer, operation.phase)
    assert answer.requested_bytes == len(operation.extent)
    assert sum(nbytes for _, nbytes in answer.held_bytes) == in_use


def test_device_without_extents_refuses_plans_that_release_them(bench: Bench, plan: TrainingPlan) -> None:
    """PyTorch's allocator on a GPU is one."""
    refuse_impossible(plan, releases_extents=True)
    with pytest.raises(ExecutionRefused, match=r"release bytes 0 to 4999 of map.*cannot do memory of an extent"):
        Executor(without_extents(bench.device), bench.workload(tiny_linear), bench.library).execute(plan, UNLIMITED)
