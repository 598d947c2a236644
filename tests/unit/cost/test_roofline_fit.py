import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.cost.roofline_fit import Roofline, TimedWork, fit_roofline, mean_error

TOY = Roofline(seconds_per_flop=1 / 2e12, seconds_per_byte=1 / 1e11, overhead_s=5e-6)
"""2 TFLOP/s, 100 GB/s, 5 us: kernels of less than 20 FLOPs a byte are bound by memory."""
PEAKS = Roofline(1 / 4e12, 1 / 2e11, 0.0)


def timed(flop: int, nbytes: int, factor: float = 1.0) -> TimedWork:
    return TimedWork(flop, nbytes, factor * TOY.seconds(flop, nbytes))


MIXED = [timed(flop, nbytes) for flop in (10**7, 10**9, 10**11) for nbytes in (10**5, 10**7, 10**9)]


def test_a_kernel_takes_the_longer_of_its_two_times_and_the_overhead() -> None:
    """2 GFLOP take 1 ms; 1 MB takes 10 us, 1 GB takes 10 ms."""
    assert TOY.seconds(2 * 10**9, 10**6) == pytest.approx(1e-3 + 5e-6)
    assert TOY.seconds(2 * 10**9, 10**9) == pytest.approx(10e-3 + 5e-6)


@pytest.mark.parametrize("outliers", [[], [timed(10**8, 10**6, 20.0), timed(10**10, 10**8, 20.0)]])
def test_the_fit_finds_the_law_in_spite_of_outliers(outliers: list[TimedWork]) -> None:
    """Two of eleven take twenty times as long as the law says: a mean of squares would follow them."""
    found = fit_roofline([*MIXED, *outliers], PEAKS)
    assert found.seconds_per_flop == pytest.approx(TOY.seconds_per_flop, rel=1e-6)
    assert found.seconds_per_byte == pytest.approx(TOY.seconds_per_byte, rel=1e-6)
    assert found.overhead_s == pytest.approx(TOY.overhead_s, rel=1e-6)


def test_noise_averages_out() -> None:
    """Times are 10 % off at most, either way; 150 of them tell the rates within 3 %."""
    chance = random.Random(4)  # noqa: S311  # a fixed sample, no secret
    work = [(int(10 ** chance.uniform(7, 12)), int(10 ** chance.uniform(5, 10))) for _ in range(150)]
    found = fit_roofline([timed(*each, chance.uniform(0.9, 1.1)) for each in work], PEAKS)
    assert found.seconds_per_flop == pytest.approx(TOY.seconds_per_flop, rel=0.03)
    assert found.seconds_per_byte == pytest.approx(TOY.seconds_per_byte, rel=0.03)


def test_a_rate_that_binds_nothing_is_that_of_the_gpu() -> None:
    """Kernels that only move bytes say nothing of arithmetic, and the other way round."""
    streams = fit_roofline([timed(0, 10**6), timed(0, 10**8), timed(0, 10**9)], PEAKS)
    assert streams.seconds_per_byte == pytest.approx(TOY.seconds_per_byte, rel=1e-6)
    assert streams.seconds_per_flop == PEAKS.seconds_per_flop
    computes = fit_roofline([timed(10**9, 1), timed(10**11, 1), timed(10**12, 1)], PEAKS)
    assert computes.seconds_per_flop == pytest.approx(TOY.seconds_per_flop, rel=1e-6)
    assert computes.seconds_per_byte == PEAKS.seconds_per_byte
    # Half the time is as wrong as twice the time.
    second = Roofline(0.0, 1e-8, 0.0)
    assert mean_error(second, [TimedWork(0, 10**8, 0.5)]) == pytest.approx(
        mean_error(second, [TimedWork(0, 10**8, 2.0)])
    )


@given(
    work=st.lists(
        st.tuples(st.integers(0, 10**13), st.integers(1, 10**11), st.floats(1e-7, 10)), min_size=1, max_size=12
    ),
    data=st.data(),
)
def test_whatever_was_measured_the_fit_is_no_worse_than_the_peaks_and_knows_no_order(
    work: list[tuple[int, int, float]], data: st.DataObject
) -> None:
    kernels = [TimedWork(*each) for each in work]
    found = fit_roofline(kernels, PEAKS)
    assert min(found.seconds_per_flop, found.seconds_per_byte) > 0
    assert found.overhead_s >= 0
    assert mean_error(found, kernels) <= mean_error(PEAKS, kernels)
    assert fit_roofline(data.draw(st.permutations(kernels)), PEAKS) == found
