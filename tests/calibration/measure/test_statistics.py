import pytest

from calibration.measure.statistics import Sample, summarize


def test_median_and_spread_of_five_runs() -> None:
    """1 2 3 4 10: the middle is 3, the quartiles are the second and the fourth value, so the spread is (4 - 2) / 3."""
    assert summarize([3, 1, 10, 2, 4]) == Sample(3, 2 / 3, 5)


def test_quartiles_are_interpolated() -> None:
    """1 2 3 4 have three gaps: the quartiles lie 3/4 of a gap from the ends, at 1.75 and 3.25, so 1.5 / 2.5."""
    assert summarize([1, 2, 3, 4]) == Sample(2.5, 0.6, 4)


def test_one_run_does_not_spread() -> None:
    assert summarize([7.0]) == Sample(7.0, 0.0, 1)
    assert Sample(7.0, 0.0, 1).runs == "one run"


def test_one_outlier_does_not_count() -> None:
    """Nine runs of 1 and one of 100: both quartiles are 1."""
    assert summarize([1.0] * 9 + [100.0]) == Sample(1.0, 0.0, 10)


@pytest.mark.parametrize(("spread", "refused"), [(0.25, False), (0.26, True)])
def test_more_than_a_quarter_is_refused(spread: float, *, refused: bool) -> None:
    assert Sample(1.0, spread, 5).is_refused is refused


def test_how_it_was_found_is_said() -> None:
    assert Sample(1.0, 0.034, 12).runs == "median of 12 runs, spread 3 %"
