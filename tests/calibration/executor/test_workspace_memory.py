"""How much memory workspaces hold, before, during and after kernels that take some of it for themselves.

One workspace of 100 B. A kernel is handed 30 B and takes 50 B for itself; another is handed 100 B.
"""

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
    """100 B when no kernel runs, 50 B beside the 50 B that the first kernel takes, of which it is handed 30."""
    compiled = cast("CompiledPlan", SimpleNamespace(taken_bytes=[100], idle_bytes={WORKSPACE: 100}))
    memory = WorkspaceMemory(compiled, buffers)
    greedy, modest = call(100, 0), call(30, 50)

    memory.allocate(WORKSPACE)
    assert held_bytes(buffers) == 100
    handed = memory.lend(modest)
    assert handed is not None
    assert (len(handed), held_bytes(buffers)) == (30, 50)
    memory.reclaim(modest)
    assert held_bytes(buffers) == 100
    handed = memory.lend(greedy)
    assert handed is not None
    assert len(handed) == 100
    memory.release(WORKSPACE)
    assert held_bytes(buffers) == 0


def test_the_workspace_of_one_kernel_is_never_more_than_it_is_handed(buffers: DeviceBuffers) -> None:
    """What the kernel takes for itself it frees with its end: 30 B of 80 B, before, during and after it."""
    compiled = cast("CompiledPlan", SimpleNamespace(taken_bytes=[80], idle_bytes={WORKSPACE: 30}))
    memory, modest = WorkspaceMemory(compiled, buffers), call(30, 50)
    memory.allocate(WORKSPACE)
    before = held_bytes(buffers)
    memory.lend(modest)
    during = held_bytes(buffers)
    memory.reclaim(modest)
    assert (before, during, held_bytes(buffers)) == (30, 30, 30)
