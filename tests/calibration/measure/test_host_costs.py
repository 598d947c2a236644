from pathlib import Path

import torch

from calibration.measure.host_costs import host_memory_bytes, measure_host
from calibration.measure.journal import Journal
from calibration.measure.session import Session
from tests.calibration.measure.fake_device import LAUNCH_S, PIN_S, FakeDevice, Killer
from tests.calibration.measure.test_resume import SMALL
from vdnnsim.units import MIB


def test_each_operation_costs_its_launch(tmp_path: Path) -> None:
    """The fake host takes 2^-20 s to put anything on a stream, 2^-10 s to pin a block, and no time to allocate."""
    device = FakeDevice()
    with Journal(tmp_path / "journal", {}) as journal:
        costs = measure_host(device, Session(journal, Killer()), SMALL, device.work(1e-5))
    assert {costs.kernel.median, costs.copy.median, costs.mark.median} == {LAUNCH_S}
    assert costs.allocation.median == 0
    assert [(nbytes, sample.median) for nbytes, sample in costs.pinning] == [(MIB, PIN_S)]
    assert (device.live_bytes, device.pinned_bytes) == (0, 0)


class _Unsteady(FakeDevice):
    """Takes 1, 3, 1, 3, 1 parts to pin its first five large blocks, then 1 part for each."""

    pinned = 0

    def pin(self, nbytes: int) -> torch.Tensor:
        if nbytes == MIB:
            self.pinned += 1
            self.host_s += 2 * PIN_S if self.pinned in (2, 4) else 0
        return super().pin(nbytes)


def test_unsteady_host_costs_are_measured_again(tmp_path: Path) -> None:
    device = _Unsteady()
    with Journal(tmp_path / "journal", {}) as journal:
        costs = measure_host(device, Session(journal, Killer()), SMALL, device.work(1e-5))
    ((_, sample),) = costs.pinning
    assert (sample.median, sample.spread, sample.count) == (PIN_S, 0.0, 5)
    assert device.pinned == 10


def test_a_container_may_have_less_than_the_machine(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    whole = host_memory_bytes(limit)
    limit.write_text("1073741824\n")
    assert host_memory_bytes(limit) == 2**30
    limit.write_text("max\n")
    assert host_memory_bytes(limit) == whole > 2**30
