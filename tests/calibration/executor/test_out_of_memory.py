"""A plan that does not fit is a result, whether its arithmetic says so or the device."""

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
from tests.toy import overflow_of, placement_of
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Allocate
from vdnnsim.plans.placement import DoesNotFit, needed_bytes, place_plan
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll


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
