from dataclasses import replace

import pytest

from tests.toy import toy_chain, toy_workload
from tests.unit.report.conftest import keep_trace, move_trace
from tests.unit.validation.conftest import one_side
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.operations import Alias, Allocate, HostSynchronize, Release, Stream
from vdnnsim.plans.placement import MemoryLimits, needed_bytes
from vdnnsim.plans.trace import MemoryCount, StallCause
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.validation.row import predicted_peaks


def plan(sizes: tuple[int, ...], *operations: object) -> TrainingPlan:
    buffers = tuple(Buffer(f"b{n}", BufferKind.WORKSPACE, size, Stage.FEATURES) for n, size in enumerate(sizes))
    return TrainingPlan(toy_workload(toy_chain(1)), "p", "m", buffers, operations)  # type: ignore[arg-type]


def take(buffer: int) -> Allocate:
    return Allocate(buffer, 0, Phase.FORWARD)


def limits(device_bytes: int = 2**30) -> MemoryLimits:
    return MemoryLimits(MemoryModel.IDEAL, device_bytes, 2**30, granule_bytes=512)


def test_traces_requested_bytes_and_blocks() -> None:
    """Of 8 s it stalls 2 s for the offload and 2 s on demand; 10 B go to the host."""
    side = one_side()
    assert (side.iteration_s, side.stall_s, side.copy_stall_s, side.offloaded_bytes) == (8.0, 4.0, 4.0, 10)
    assert dict(side.stall_by_cause) == {StallCause.OFFLOAD: 2.0, StallCause.ON_DEMAND: 2.0}
    # 30 B at first, 20 B after the release of x, 60 B at the end; the other plan holds 1020 B.
    assert needed_bytes(move_trace().plan) == 60
    assert needed_bytes(keep_trace().plan) == 1020
    # Aliases request no memory.
    assert needed_bytes(plan((10, 7), take(0), Alias(1, 0), Release(1), Release(0))) == 10
    # 600 B become a block of 1024 B in a segment of 2 MiB; 20 MiB and a byte take a segment of 22 MiB for themselves.
    # The rest of that segment, 2 MiB less a block of 512 B, is more than 1 MiB and so is cut off: 20 MiB + 512 B.
    peaks = predicted_peaks(plan((600, 20 * 2**20 + 1), take(0), take(1)), limits(), caching_allocator=True, times=1)
    assert peaks == MemoryCount(600 + 20 * 2**20 + 1, 1024 + 20 * 2**20 + 512, 24 * 2**20)
    # Largest counts over several runs.
    first, second = MemoryCount(100, 512, 5000), MemoryCount(90, 1024, 4000)
    assert first.largest(second) == MemoryCount(100, 1024, 5000)
    assert MemoryCount(7, None, None).largest(MemoryCount(9, None, None)) == MemoryCount(9, None, None)


@pytest.mark.parametrize(("caching", "device_bytes"), [(False, 2**30), (True, 2**20)])
def test_there_are_no_blocks_without_the_allocator_or_without_room(caching: bool, device_bytes: int) -> None:  # noqa: FBT001
    peaks = predicted_peaks(plan((600,), take(0)), limits(device_bytes), caching_allocator=caching, times=1)
    assert peaks == MemoryCount(600, None, None)


def test_a_plan_is_predicted_as_often_as_it_is_executed() -> None:
    """Of W, which stays, and a workspace, both of 600 B, one of each is ever allocated: in one segment of 2 MiB."""
    buffers = (
        Buffer("W", BufferKind.WEIGHTS, 600, Stage.FEATURES, given=True),
        Buffer("workspace", BufferKind.WORKSPACE, 600, Stage.FEATURES),
    )
    synchronized = HostSynchronize((Stream.COMPUTE,))
    twice = replace(plan(()), buffers=buffers, operations=(take(0), synchronized, take(1), Release(1), Release(0)))
    for times in (1, 3):
        peaks = predicted_peaks(twice, limits(), caching_allocator=True, times=times)
        assert peaks == MemoryCount(1200, 2048, 2 * 2**20)
