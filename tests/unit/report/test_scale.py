import pytest

from vdnnsim.report.scale import byte_scale, percent, percents, rate_scale, time_scale


def test_the_largest_number_decides_the_unit_of_all() -> None:
    """3 GiB are the largest, so 512 MiB are 0.50 of the same unit."""
    scale = byte_scale((3 * 2**30, 2**29))
    assert (scale.text(3 * 2**30), scale.number(2**29)) == ("3.00 GiB", "0.50")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1234.5, "1234 s"), (123.45, "123.5 s"), (1.5, "1.50 s"), (0.002, "2.00 ms"), (3e-6, "3.00 us"), (0.0, "0.00 us")],
)
def test_long_numbers_have_fewer_decimals(seconds: float, text: str) -> None:
    assert time_scale((seconds,)).text(seconds) == text


def test_bytes_have_no_decimals() -> None:
    assert byte_scale((60.0,)).text(31.25) == "31 B"
    assert byte_scale(()).text(0) == "0 B"


def test_rates_have_no_unit() -> None:
    assert rate_scale((0.125,)).number(0.125) == "0.12"


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.75, "75.0 %"), (1.0, "100.0 %"), (0.99999, "99.9 %"), (1.0004, "100.0 %"), (0.0, "0.0 %")]
)
def test_nearly_all_is_not_all(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_the_smallest_number_has_three_digits_in_the_unit_of_the_largest() -> None:
    """122 s are long enough for one decimal; 0.312 s need three, and 0.05 s four. Of nothing there are no digits."""
    values = (122.04, 0.312, 0.0)
    assert [time_scale(values).telling(values).number(value) for value in values] == ["122.040", "0.312", "0.000"]
    assert time_scale(values).telling((0.05,)).number(0.05) == "0.0500"
    assert byte_scale((1000.0,)).telling((3.0,)).number(3.0) == "3"
    assert time_scale(()).telling(()).decimals == 2


def test_shares_of_a_column_have_as_many_decimals() -> None:
    """7.25 % needs two; what is just below all then reads 99.99 %."""
    assert percents((1.0, 0.0725, 0.99999)) == ("100.00 %", "7.25 %", "99.99 %")
    assert percents((1.0, 0.5)) == ("100.0 %", "50.0 %")
