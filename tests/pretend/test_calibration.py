"""Context, cache and timing of a pretended GPU for `calibrate`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibration.devices.cuda import CudaDevice
from calibration.measure.timing import TimeBox, time_work
from tests.pretended_gpu import setting
from vdnnsim.units import MIB

pytestmark = pytest.mark.pretend
ROOT = Path(__file__).parents[2]


def test_the_context_is_what_the_card_takes_before_any_tensor(device: CudaDevice) -> None:
    """However much is reserved for tensors, in use or in the cache."""
    assert device.context_bytes() == setting("CONTEXT_BYTES")
    held = device.allocate(100 * MIB)
    assert device.context_bytes() == setting("CONTEXT_BYTES")
    device.release(held)
    del held
    assert device.context_bytes() == setting("CONTEXT_BYTES")


def test_the_cache_is_that_of_the_card(device: CudaDevice) -> None:
    assert device.cache_bytes == setting("L2_BYTES")


def test_a_work_of_many_launches_takes_as_long_as_its_kernels_one_after_the_other(device: CudaDevice) -> None:
    """A fill of 1 KiB takes the GPU a few microseconds, and this host more than 20 to launch, which is slow.

    Ten runs of 1000 take it longer than the longest pause, so the GPU would be timed waiting for it. 1000 fills take as
    long as 100 times 10 do, which any pause covers: to 1 %, and the half microsecond to which CUDA's events tell each.
    """
    block = device.allocate(1024)

    def fills(count: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(count):
                time.sleep(20e-6)
                block.zero_()

        return run

    few, many = (time_work(device, device.compute, fills(n), TimeBox(budget_s=0.2)) for n in (10, 1000))
    device.release(block)

    assert (few.remark, many.remark) == ("", "")
    assert many.median == pytest.approx(100 * few.median, rel=0.01, abs=100 * 0.5e-6)


@pytest.mark.parametrize(("level", "logged"), [(None, False), ("WARNING", True)])
def test_failed_allocation_is_logged_only_on_request(level: str | None, logged: bool) -> None:  # noqa: FBT001
    """PyTorch's C++ logs it since 2.14; a command makes a result of it, here by catching it."""
    script = (
        "from vdnnsim.cli.devices import opened\n"
        "with opened('cuda', 0) as device:\n"
        "    from calibration.devices.interface import OutOfDeviceMemory\n"
        "    try: device.allocate(2 * device.memory_bytes)\n"
        "    except OutOfDeviceMemory: print('refused')\n"
    )
    told = {name: text for name, text in os.environ.items() if name != "TORCH_CPP_LOG_LEVEL"}
    environment = told if level is None else {**told, "TORCH_CPP_LOG_LEVEL": level}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"
    is_new = tuple(map(int, str(torch.__version__).split(".")[:2])) >= (2, 14)
    assert ("memory allocation failed" in done.stderr) is (logged and is_new)
