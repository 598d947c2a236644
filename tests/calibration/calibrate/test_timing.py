"""How often a work is run: on a device whose clock the work itself moves."""

import pytest
import torch

from calibration.measure.timing import TimeBox, time_work
from tests.calibration.calibrate.fake_device import LAUNCH_S, FakeDevice

WARM_UPS = 2


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def test_a_steady_work_is_run_ten_times(device: FakeDevice) -> None:
    sample = time_work(device, device.compute, device.work(1e-3), TimeBox(budget_s=1.0))

    assert sample.median == pytest.approx(1e-3)
    assert sample.spread == pytest.approx(0, abs=1e-9)
    assert sample.count == 10
    assert device.launched == WARM_UPS + 10


def test_the_first_run_is_not_counted(device: FakeDevice) -> None:
    """Eleven of twelve runs take 1 ms, the first, in which libraries set themselves up, a second."""
    sample = time_work(device, device.compute, device.work(1.0, *[1e-3] * 11), TimeBox(budget_s=1.0))

    assert sample.median == pytest.approx(1e-3)
    assert sample.spread == pytest.approx(0, abs=1e-9)


def test_an_unsteady_work_is_run_until_the_budget_is_used(device: FakeDevice) -> None:
    """2 and 2.2 ms by turns spread by about 9 %; 42 ms hold two batches of ten, 2.1 ms a run."""
    sample = time_work(device, device.compute, device.work(2e-3, 2.2e-3), TimeBox(budget_s=0.0421))

    assert sample.count == 20
    assert sample.spread == pytest.approx(0.2 / 2.1, rel=1e-3)


def test_no_more_than_the_most(device: FakeDevice) -> None:
    sample = time_work(device, device.compute, device.work(2e-3, 2.2e-3), TimeBox(budget_s=10.0, most=30))

    assert sample.count == 30


def test_a_long_work_is_run_a_few_times_whatever_the_budget(device: FakeDevice) -> None:
    sample = time_work(device, device.compute, device.work(1.0), TimeBox(budget_s=0.1, least=5))

    assert sample.count == 5


def test_of_what_is_slower_than_its_patience_the_second_run_counts(device: FakeDevice) -> None:
    sample = time_work(device, device.compute, device.work(2.0, 1.0), TimeBox(budget_s=0.1, patience_s=0.5))

    assert sample.median == pytest.approx(1.0)
    assert sample.count == 1
    assert device.launched == 2


def test_what_spreads_too_much_is_tried_again_and_the_steadiest_counts(device: FakeDevice) -> None:
    """Two warm-ups, ten runs of 1 and 3 ms by turns, then 1 ms ever after: the second attempt does not spread."""
    first = [1e-3, 3e-3] * 6
    sample = time_work(device, device.compute, device.work(*first, *[1e-3] * 100), TimeBox(budget_s=1.0, most=10))

    assert sample.spread == pytest.approx(0, abs=1e-9)
    assert sample.count == 10
    assert device.launched == WARM_UPS + 20


def test_a_gpu_is_kept_busy_until_a_batch_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause before ten launches lasts twice as long as they take, at 3 billion cycles a second or fewer."""

    class Gpu(FakeDevice):
        torch_device = torch.device("cuda", 0)

    cycles: list[int] = []
    monkeypatch.setattr("torch._C._cuda_sleep", cycles.append, raising=False)
    gpu = Gpu()

    time_work(gpu, gpu.compute, gpu.work(1e-5), TimeBox(budget_s=1.0))

    assert cycles == [0, round(2 * LAUNCH_S * 3e9), round(2 * 10 * LAUNCH_S * 3e9)]


def test_what_always_spreads_too_much_is_given_up(device: FakeDevice) -> None:
    """1 and 3 ms by turns: the middle is 2 ms and the quartiles are 1 and 3."""
    sample = time_work(device, device.compute, device.work(1e-3, 3e-3), TimeBox(budget_s=1.0, most=10, attempts=3))

    assert sample.is_refused
    assert sample.spread == pytest.approx(1.0)
    assert device.launched == WARM_UPS + 3 * 10
