import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.measure.machine import fit_line

SIZES = [4 * 2**10 * 4**step for step in range(10)]


@given(latency_s=st.floats(1e-7, 1e-3), bytes_per_s=st.floats(1e8, 1e12))
def test_times_on_a_line_give_the_line(latency_s: float, bytes_per_s: float) -> None:
    line = fit_line([(nbytes, latency_s + nbytes / bytes_per_s) for nbytes in SIZES])

    assert line.latency_s == pytest.approx(latency_s, rel=1e-5, abs=1e-12)
    assert line.bytes_per_s == pytest.approx(bytes_per_s, rel=1e-5)
    assert line.worst == pytest.approx(0, abs=1e-6)


def test_errors_are_relative() -> None:
    """One size, times 1 and 3 s: (b - 1)^2 + (b/3 - 1)^2 is least at b = (1 + 1/3) / (1 + 1/9) = 1.2, not at 2.

    Relative errors are then 0.2 and 0.6, in the mean the root of (0.04 + 0.36) / 2.
    """
    line = fit_line([(1, 1.0), (1, 3.0)])

    assert line.bytes_per_s == pytest.approx(1 / 1.2)
    assert line.residual == pytest.approx(0.2**0.5)
    assert line.worst == pytest.approx(0.6)


def test_a_latency_is_not_negative() -> None:
    """Times 1 and 4 for 1 and 2 bytes would meet the axis at -2; through 0, v = 1 and 1/2: b = 1.5 / 1.25."""
    line = fit_line([(1, 1.0), (2, 4.0)])

    assert line.latency_s == 0.0
    assert line.bytes_per_s == pytest.approx(1.25 / 1.5)


def test_times_that_fall_with_the_size_have_no_rate() -> None:
    """Times 2 and 1: only a latency, u = 1/2 and 1: a = 1.5 / 1.25."""
    line = fit_line([(1, 2.0), (2, 1.0)])

    assert line.latency_s == pytest.approx(1.2)
    assert line.bytes_per_s == pytest.approx(1e15)
