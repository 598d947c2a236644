import pytest

from calibration.measure.statistics import Sample, summarize


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        # Quartiles of 1 2 3 4 10 are the second and the fourth value: (4 - 2) / 3.
        ([3, 1, 10, 2, 4], Sample(3, 2 / 3, 5)),
        # 1 2 3 4 have three gaps: quartiles 3/4 of a gap from the ends, 1.75 and 3.25, so 1.5 / 2.5.
        ([1, 2, 3, 4], Sample(2.5, 0.6, 4)),
        ([7.0], Sample(7.0, 0.0, 1)),
        # One outlier moves no quartile.
        ([1.0] * 9 + [100.0], Sample(1.0, 0.0, 10)),
    ],
)
def test_median_spread_and_count_of_runs(runs: list[float], expected: Sample) -> None:
    assert summarize(runs) == expected
