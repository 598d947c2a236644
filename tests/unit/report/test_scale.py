import pytest

from vdnnsim.report.scale import byte_scale, percent, rate_scale, time_scale


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
