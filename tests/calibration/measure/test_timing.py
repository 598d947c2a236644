"""Number of runs of a work, on a device whose clock the work itself moves."""

import pytest

from calibration.measure.statistics import Sample
from calibration.measure.timing import HOST_LATE, TimeBox, WarmUp, time_work, warm_up
from tests.calibration.measure.fake_device import LAUNCH_S, FakeDevice, FakeGpu

WARM_UPS = 2


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


MS = 1e-3


@pytest.mark.parametrize(
    ("seconds", "box", "expected", "launched"),
    [
        # Eleven of twelve runs take 1 ms, the first, in which libraries set themselves up, a second.
        ([1.0, *[MS] * 11], TimeBox(budget_s=1.0), Sample(MS, 0.0, 10), WARM_UPS + 10),
        # By turns, which spreads by about 9 %: 42 ms hold two batches of ten, 2.1 ms a run; then 30 runs are the most.
        ([2 * MS, 2.2 * MS], TimeBox(budget_s=0.0421), Sample(2.1 * MS, 0.2 / 2.1, 20), WARM_UPS + 20),
        ([2 * MS, 2.2 * MS], TimeBox(budget_s=10.0, most=30), Sample(2.1 * MS, 0.2 / 2.1, 30), WARM_UPS + 30),
        # Of a long work so few runs are made whatever the budget, and one if it is slower than the patience.
        ([1.0], TimeBox(budget_s=0.1, least=5), Sample(1.0, 0.0, 5), WARM_UPS + 5),
        ([2.0, 1.0], TimeBox(budget_s=0.1, patience_s=0.5), Sample(1.0, 0.0, 1), 2),
        # Two warm-ups, ten runs of 1 and 3 ms by turns, then 1 ms ever after: the second attempt does not spread.
        ([*[MS, 3 * MS] * 6, *[MS] * 100], TimeBox(budget_s=1.0, most=10), Sample(MS, 0.0, 10), WARM_UPS + 20),
    ],
    ids=["steady", "until time is up", "until runs are used up", "long", "beyond patience", "steadiest attempt"],
)
def test_how_often_a_work_is_run(
    device: FakeDevice, seconds: list[float], box: TimeBox, expected: Sample, launched: int
) -> None:
    sample = time_work(device, device.compute, device.work(*seconds), box)
    assert sample.median == pytest.approx(expected.median)
    assert sample.spread == pytest.approx(expected.spread, rel=1e-3, abs=1e-9)
    assert (sample.count, device.launched) == (expected.count, launched)


def test_a_gpu_is_kept_busy_until_a_batch_is_queued(gpu: FakeGpu) -> None:
    """The pause before ten launches lasts twice as long as they take, at 3 billion cycles a second or fewer."""
    time_work(gpu, gpu.compute, gpu.work(1e-5), TimeBox(budget_s=1.0))
    assert gpu.pauses == [0, round(2 * LAUNCH_S * 3e9), round(2 * 10 * LAUNCH_S * 3e9)]


def test_a_gpu_that_would_outrun_the_host_is_given_smaller_batches(gpu: FakeGpu) -> None:
    """A run takes the host 20 ms to launch and the GPU 5: ten stand behind no pause of 0.1 s, nor five, but two do."""
    work = gpu.many_launches(issue_s=0.02, lasts_s=5e-3)
    sample = time_work(gpu, gpu.compute, work, TimeBox(budget_s=1.0))
    assert sample.issue_s == pytest.approx(0.02 + LAUNCH_S)
    assert sample.median == pytest.approx(5e-3)
    assert sample.spread == pytest.approx(0, abs=1e-9)
    assert sample.remark == ""


def test_late_host_is_a_remark(gpu: FakeGpu) -> None:
    """One run takes 0.15 s to launch, the longest pause is over after 0.1: of 50 ms the GPU works 5."""
    work = gpu.many_launches(issue_s=0.15, lasts_s=5e-3)
    sample = time_work(gpu, gpu.compute, work, TimeBox(budget_s=0.1))
    assert sample.median == pytest.approx(0.05, rel=1e-3)
    assert sample.remark == HOST_LATE
    assert sample.issue_s == pytest.approx(0.15 + LAUNCH_S)


def test_blocking_work_has_no_pause_before_it(gpu: FakeGpu) -> None:
    """As copies of pageable memory, 0.15 s each in which the host goes no further: it is never late."""
    work = gpu.many_launches(issue_s=0.15, lasts_s=0.15)
    sample = time_work(gpu, gpu.compute, work, TimeBox(budget_s=0.1), is_queued=False)
    assert sample.median == pytest.approx(0.15)
    assert sample.remark == ""
    assert gpu.pauses == []


def test_runs_count_from_where_their_times_no_longer_change(device: FakeDevice) -> None:
    """As under a clock that rises: each run is 5 % shorter than the one before until, after 31, they take 1 ms.

    The second run and three batches of ten fall, the fourth has all of its runs at 1 ms, and the fifth is as long.
    """
    falling = [1e-3 * 1.05**left for left in range(30, 0, -1)]
    work = device.work(1.0, *falling, *[1e-3] * 100)
    sample = time_work(device, device.compute, work, TimeBox(budget_s=1.0))
    assert sample.median == pytest.approx(1e-3)
    assert sample.spread == pytest.approx(0, abs=1e-9)
    assert sample.remark == ""
    assert device.launched == WARM_UPS + 50
    # Each run is 5 % shorter than the one before. The middle of runs three to seven is 0.95^3 = 0.857 of the second.
    # Of 50 ms, which five runs of 19 ms use, no further batch is left to warm up in.
    work = device.work(*[0.02 * 0.95**run for run in range(200)])
    sample = time_work(device, device.compute, work, TimeBox(budget_s=0.05))
    assert sample.remark == "still changed by 14 % after 5 runs"
    assert sample.runs.endswith("; still changed by 14 % after 5 runs")


@pytest.mark.parametrize(
    ("seconds", "extent", "launched", "remark"),
    [
        # Until it takes as long as just before: 1, 1/2 and 1/4 s, then 1/8 s twice.
        ([1.0, 0.5, 0.25, *[0.125] * 100], WarmUp(shortest_s=0.0, longest_s=10.0), 5, ""),
        # 1/8 s is no pace to rest at before 2 s, which 16 runs last.
        ([0.125], WarmUp(shortest_s=2.0, longest_s=10.0), 16, ""),
        # 1, 1/2 and 1/4 s are longer than the 1.6 s that it has.
        (
            [0.5**run for run in range(20)],
            WarmUp(shortest_s=0.0, longest_s=1.6),
            3,
            "still changed from 500 ms to 250 ms after 1.8 s",
        ),
    ],
)
def test_a_device_is_warmed_up(
    device: FakeDevice, seconds: list[float], extent: WarmUp, launched: int, remark: str
) -> None:
    assert warm_up(device, device.compute, device.work(*seconds), extent) == remark
    assert device.launched == launched
