"""A plan that does not fit is a result, whether its arithmetic says so or the device."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from calibration.devices.cpu import CpuDevice
from calibration.executor.executor import Executor
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
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Allocate
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, Placement, place_plan
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll


def limited(device_bytes: int) -> MemoryLimits:
    return replace(UNLIMITED, device_bytes=device_bytes)


def explicit(_layer: Layer, _phase: Phase, place: int) -> float:
    """Explicit GEMM, which is handed its workspace, is the fastest."""
    return 1.0 - 0.1 * place


def test_a_plan_that_does_not_fit_is_not_begun(bench: Bench) -> None:
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, Base())
    bench.device.begin()
    answer = Executor(bench.device, workload, bench.library).execute(plan, limited(10**6))
    assert answer == place_plan(plan, limited(10**6))
    assert bench.device.peaks().requested_bytes == 0


def test_too_little_host_memory(bench: Bench) -> None:
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    answer = Executor(bench.device, workload, bench.library).execute(plan, replace(UNLIMITED, host_bytes=1000))
    assert isinstance(answer, DoesNotFit)
    assert answer.pool is Pool.PINNED


@pytest.fixture
def device_of(device: CpuDevice) -> Callable[[int], CpuDevice]:
    """A device of so many bytes."""

    def make(memory_bytes: int) -> CpuDevice:
        device.memory_bytes = memory_bytes
        return device

    return make


@pytest.mark.parametrize(("seconds", "later"), [(explicit, 0), (framework_first, 1)])
def test_a_device_that_runs_out_in_the_middle(
    bench: Bench, device_of: Callable[[int], CpuDevice], seconds: Seconds, later: int
) -> None:
    """The plan may use any amount and the device is a byte too small: what the plan's own arithmetic finds, happens.

    That is a workspace in the middle of backward. Where it is the kernel that takes it and not the plan, the kernel
    fails, which stands right behind its Allocate. Afterwards all of the device is free.
    """
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll(), seconds)
    placement = place_plan(plan, UNLIMITED)
    assert isinstance(placement, Placement)
    memory_bytes = placement.pool_bytes - 1
    expected = place_plan(plan, limited(memory_bytes))
    assert isinstance(expected, DoesNotFit)
    assert expected.phase.is_backward
    device = device_of(memory_bytes)

    answer = Executor(device, workload, bench.library).execute(plan, UNLIMITED)

    assert answer == replace(expected, operation=expected.operation + later)
    device.release(device.allocate(memory_bytes))


def test_a_device_that_has_no_room_for_what_is_allocated_first(
    bench: Bench, device_of: Callable[[int], CpuDevice]
) -> None:
    """The gradient slots of base come last of all: a map of conv1_1 of 131,072 B, twice."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, Base())
    slot = next(i for i, buffer in enumerate(plan.buffers) if buffer.name == "gradient slot 2")
    memory_bytes = 131_071 + sum(
        plan.buffers[each.buffer].nbytes
        for each in plan.operations[: plan.operations.index(Allocate(slot, 0, Phase.BACKWARD_DATA))]
        if isinstance(each, Allocate)
    )
    device = device_of(memory_bytes)

    answer = Executor(device, workload, bench.library).execute(plan, UNLIMITED)

    assert isinstance(answer, DoesNotFit)
    assert answer.buffer == slot
    assert (answer.requested_bytes, answer.free_bytes) == (131_072, 131_071)
    assert answer == place_plan(plan, limited(memory_bytes))
    device.release(device.allocate(memory_bytes))


def test_a_host_that_does_not_give_the_arena(bench: Bench) -> None:
    """No machine has 2^60 B; the executor that asked for them goes on with what it has."""
    arena = PinnedArena(bench.device)
    with pytest.raises(DeviceError, match=r"^the machine refuses 1073741824 GiB for copies$"):
        arena.reserve(2**60)
    arena.reserve(10)
    assert arena.slice(0, 10).nbytes == 10


class FailingLibrary:
    """A library whose forward of the loss fails."""

    channels_last = False

    def __init__(self, library: PyTorchLibrary, failure: Exception) -> None:
        self._library = library
        self._failure = failure

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        kernels = self._library.kernels(workload, layer, phase)
        if layer.name == "loss" and phase is Phase.FORWARD:
            return tuple(replace(kernel, run=self._fail) for kernel in kernels)
        return kernels

    def _fail(self, _: KernelTensors) -> None:
        raise self._failure


def test_a_kernel_that_fails_leaves_nothing_behind(bench: Bench, library: PyTorchLibrary) -> None:
    """The failure is the caller's to see; then the device works again, and holds nothing."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    failing = FailingLibrary(library, RuntimeError("the kernel failed"))

    with pytest.raises(RuntimeError, match="the kernel failed"):
        Executor(bench.device, workload, failing).execute(plan, UNLIMITED)

    run = bench.execute(workload, plan)
    assert_results_are_the_references(bench, workload, plan, run)
    placement = place_plan(plan, UNLIMITED)
    assert isinstance(placement, Placement)
    assert run.peaks.requested_bytes == placement.pool_bytes
