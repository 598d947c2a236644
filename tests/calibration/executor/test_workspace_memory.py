"""Memory of a workspace before, during and after a kernel that is passed 30 B and allocates 50 B itself."""

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from calibration.devices.cpu import CpuDevice
from calibration.executor.compiled_plan import CompiledPlan, KernelCall
from calibration.executor.device_buffers import DeviceBuffers, Residents
from calibration.executor.plan_walk import WorkspaceMemory

WORKSPACE = 0


def call(passed_bytes: int, own_bytes: int) -> KernelCall:
    kernel = SimpleNamespace(passed_bytes=passed_bytes)
    return cast("KernelCall", SimpleNamespace(workspace=WORKSPACE, kernel=kernel, own_bytes=own_bytes))


def held_bytes(buffers: DeviceBuffers) -> int:
    return len(buffers.flat(WORKSPACE)) if WORKSPACE in buffers.held else 0


@pytest.fixture
def buffers(device: CpuDevice) -> DeviceBuffers:
    return DeviceBuffers(device, [None], Residents(device))


def test_shared_workspace_shrinks_while_a_kernel_allocates_itself(buffers: DeviceBuffers) -> None:
    """100 B when no kernel runs, 50 B beside the 50 B that the first kernel allocates, of which it is passed 30."""
    compiled = cast("CompiledPlan", SimpleNamespace(taken_bytes=[100], idle_bytes={WORKSPACE: 100}))
    memory = WorkspaceMemory(compiled, buffers)
    greedy, modest = call(100, 0), call(30, 50)

    memory.allocate(WORKSPACE)
    assert held_bytes(buffers) == 100
    lent = memory.lend(modest)
    assert lent is not None
    assert (len(lent), held_bytes(buffers)) == (30, 50)
    memory.reclaim(modest)
    assert held_bytes(buffers) == 100
    lent = memory.lend(greedy)
    assert lent is not None
    assert len(lent) == 100
    memory.release(WORKSPACE)
    assert held_bytes(buffers) == 0


def test_the_workspace_of_one_kernel_is_never_more_than_it_is_passed(buffers: DeviceBuffers) -> None:
    """What the kernel allocates it frees at its end: 30 B of 80 B, before, during and after it."""
    compiled = cast("CompiledPlan", SimpleNamespace(taken_bytes=[80], idle_bytes={WORKSPACE: 30}))
    memory, modest = WorkspaceMemory(compiled, buffers), call(30, 50)
    for change in (partial(memory.allocate, WORKSPACE), partial(memory.lend, modest), partial(memory.reclaim, modest)):
        change()
        assert held_bytes(buffers) == 30
