"""Memory of executed plans to the byte: what is reserved, what stays for the next run, and plans that do not fit."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from calibration.devices.cpu import CpuDevice
from calibration.executor.executor import DeviceLaboratory, Execution, Executor
from calibration.executor.pinned_arena import PinnedArena
from calibration.kernels.interface import Kernel, KernelTensors
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import (
    UNLIMITED,
    Bench,
    Seconds,
    assert_results_are_the_references,
    framework_first,
)
from tests.toy import overflow_of, placement_of
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import DeviceError
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import (
    Allocate,
)
from vdnnsim.plans.placement import DoesNotFit, needed_bytes, place_plan
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.units import KIB

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
