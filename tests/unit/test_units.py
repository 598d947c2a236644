from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refusal
from vdnnsim.errors import InputError
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.units import (
    Dimension,
    ElementType,
    Precision,
    format_bytes,
    format_rate,
    format_seconds,
    parse_quantity,
    quantity_text,
    rounded_quantity,
)


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("12 GiB", Dimension.BYTES, 12 * 1024 * 1024 * 1024),
        ("12 GB", Dimension.BYTES, 12_000_000_000),
        ("512B", Dimension.BYTES, 512),
        (" 1.5 KiB ", Dimension.BYTES, 1536),
        ("2 TiB", Dimension.BYTES, 2 * 1024**4),
        (".5 kB", Dimension.BYTES, 500),
        ("10 us", Dimension.SECONDS, 1e-5),
        ("2.5 ms", Dimension.SECONDS, 0.0025),
        ("7 ns", Dimension.SECONDS, 7e-9),
        ("0 s", Dimension.SECONDS, 0),
        ("12.8 GB/s", Dimension.BYTES_PER_SECOND, 12.8e9),
        ("1 GiB/s", Dimension.BYTES_PER_SECOND, 1_073_741_824),
        ("7 TFLOP/s", Dimension.FLOP_PER_SECOND, 7e12),
        ("7e12 FLOP/s", Dimension.FLOP_PER_SECOND, 7e12),
        ("250 W", Dimension.WATTS, 250),
        ("1.5 kW", Dimension.WATTS, 1500),
        ("15 pJ/FLOP", Dimension.JOULES_PER_FLOP, 15e-12),
        ("0.27 nJ/B", Dimension.JOULES_PER_BYTE, 270e-12),
        ("1.075 GHz", Dimension.HERTZ, 1.075e9),
        ("24", Dimension.COUNT, 24),
        (24, Dimension.COUNT, 24),
        (0.85, Dimension.COUNT, 0.85),
        (1e-7, Dimension.COUNT, 1e-7),
    ],
)
def test_a_quantity_becomes_si(text: object, dimension: Dimension, expected: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(expected, rel=1e-15)


BYTES, SECONDS = "one of the units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB", "one of the units s, ms, us, ns"


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        *((text, Dimension.BYTES, BYTES) for text in ("12", 12, "GiB", "1,5 GiB", None)),
        *((text, Dimension.BYTES, f"{BYTES}; did you mean GB?") for text in ("12 gb", "12 Gb")),
        *((text, Dimension.SECONDS, SECONDS) for text in ("10 GB", "nan s")),
        *((text, Dimension.SECONDS, "finite number of seconds, zero or more") for text in ("-1 s", "1e999 s")),
        ("15 pJ", Dimension.JOULES_PER_FLOP, "one of the units J/FLOP, nJ/FLOP, pJ/FLOP"),
        ("250", Dimension.WATTS, "one of the units W, mW, kW"),
        *((text, Dimension.COUNT, "a plain number") for text in ("3 GiB", True, float("nan"), float("inf"))),
        (-1, Dimension.COUNT, "a plain number, zero or more"),
    ],
)
def test_what_is_no_quantity_is_refused(text: object, dimension: Dimension, expected: str) -> None:
    message = refusal(InputError, parse_quantity, text, dimension)
    assert message.startswith("found ")
    assert str(text) in message
    assert message.endswith(expected)


@pytest.mark.parametrize(
    ("write", "number", "text"),
    [
        *((format_bytes, 0, "0 B"), (format_bytes, 512, "512 B"), (format_bytes, 1023, "1023 B")),
        *((format_bytes, 1536, "1.50 KiB"), (format_bytes, 1023.4 * 2**20, "1023 MiB")),
        *((format_bytes, 1023.6 * 2**20, "1.00 GiB"), (format_bytes, 20 * 2**20, "20.0 MiB")),
        *((format_bytes, 150 * 2**30, "150 GiB"), (format_bytes, -(2**30), "-1.00 GiB")),
        *((format_seconds, 0.0, "0 s"), (format_seconds, 1.234, "1.23 s"), (format_seconds, 0.0456, "45.6 ms")),
        *((format_seconds, 7.89e-6, "7.89 us"), (format_seconds, 3e-9, "3.00 ns"), (format_seconds, 0.5, "500 ms")),
        # Images per second have no exponent.
        *((format_rate, 0.0, "0"), (format_rate, 0.73184, "0.7318"), (format_rate, 48.826, "48.83")),
        *((format_rate, 9999.4, "9999"), (format_rate, 9999.6, "10000"), (format_rate, 24422.6, "24423")),
    ],
)
def test_numbers_for_people(write: Callable[[float], str], number: float, text: str) -> None:
    assert write(number) == text


@pytest.mark.parametrize(
    ("number", "dimension", "text"),
    [
        (12 * 2**30, Dimension.BYTES, "12 GiB"),
        (512, Dimension.BYTES, "512 B"),
        (12.8e9, Dimension.BYTES_PER_SECOND, "12.8 GB/s"),
        (3e-6, Dimension.SECONDS, "3 us"),
        (1e-5, Dimension.SECONDS, "0.01 ms"),
        (0.0, Dimension.SECONDS, "0 s"),
        (0.5, Dimension.COUNT, "0.5"),
        (132, Dimension.COUNT, "132"),
        (6.7e13, Dimension.FLOP_PER_SECOND, "67 TFLOP/s"),
    ],
)
def test_a_number_is_stated_in_the_unit_that_reads_best(number: float, dimension: Dimension, text: str) -> None:
    """10 us would read better than 0.01 ms, but 10 times the float 1e-6 is not the float 1e-5."""
    assert quantity_text(number, dimension) == text


@given(number=st.floats(0, 1e300), dimension=st.sampled_from(Dimension))
def test_a_stated_number_is_read_back_exactly(number: float, dimension: Dimension) -> None:
    assert parse_quantity(quantity_text(number, dimension), dimension) == number


@pytest.mark.parametrize(
    ("number", "dimension", "text"),
    [
        (7.4671e-6, Dimension.SECONDS, "7.467 us"),
        (1e-5, Dimension.SECONDS, "10 us"),
        (999.96e-6, Dimension.SECONDS, "1 ms"),
        (2.34567e-9, Dimension.SECONDS, "2.346 ns"),
        (5.2e-11, Dimension.SECONDS, "0.052 ns"),
        (55.36123e9, Dimension.BYTES_PER_SECOND, "55.36 GB/s"),
        (43.2109e12, Dimension.FLOP_PER_SECOND, "43.21 TFLOP/s"),
        (0.716666, Dimension.COUNT, "0.7167"),
        (0.0, Dimension.SECONDS, "0 s"),
    ],
)
def test_a_rounded_number_is_stated_in_its_digits(number: float, dimension: Dimension, text: str) -> None:
    """999.96 us are 1,000 us to four digits."""
    assert quantity_text(rounded_quantity(number, dimension, 4), dimension) == text


@given(number=st.floats(1e-9, 1e15), dimension=st.sampled_from(Dimension))
def test_a_rounded_number_is_near_and_short(number: float, dimension: Dimension) -> None:
    """Four digits are within 1 in 2,000; the text has them, and a point, a unit and an exponent at most."""
    rounded = rounded_quantity(number, dimension, 4)
    assert rounded == pytest.approx(number, rel=1 / 2000)
    digits = quantity_text(rounded, dimension).split(" ")[0].partition("e")[0]
    assert len(digits.replace(".", "").strip("0")) <= 4


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fp32", Precision.FLOAT32),
        ("tf32", Precision.TF32),
        ("fp16", Precision.FLOAT16),
        ("bf16", Precision.BFLOAT16),
        ("amp", Precision.AMP_FLOAT16),
        ("amp_bf16", Precision.AMP_BFLOAT16),
    ],
)
def test_short_names_of_precisions(name: str, meant: Precision) -> None:
    """PyTorch's autocast on a GPU is in float16 unless told otherwise."""
    assert Entry("", "precision", name, InputError).choice(Precision, "a precision") is meant
    if meant.autocast is None:
        assert ElementType(name).value == meant.value


@pytest.mark.parametrize("value", ["fp8", "Amp", 32, None])
def test_other_names_of_precisions_are_refused(value: YamlValue) -> None:
    with pytest.raises(InputError, match="a precision"):
        Entry("", "precision", value, InputError).choice(Precision, "a precision")
