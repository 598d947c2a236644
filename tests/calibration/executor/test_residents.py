"""Buffers that stay on a device between the runs of a plan, and the memory counted over them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from calibration.devices.cpu import CpuDevice
from calibration.executor.executor import DeviceLaboratory, Execution, Executor
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import UNLIMITED, Bench, assert_results_are_the_references
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.plans.placement import needed_bytes
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
