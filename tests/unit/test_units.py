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


_BYTES = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        ("12", Dimension.BYTES, f"found '12', expected a number with one of the units {_BYTES}"),
        (12, Dimension.BYTES, f"found 12, expected a number with one of the units {_BYTES}"),
        (
            "12 gb",
            Dimension.BYTES,
            f"found '12 gb', expected a number with one of the units {_BYTES}; did you mean GB?",
        ),
        (
            "12 Gb",
            Dimension.BYTES,
            f"found '12 Gb', expected a number with one of the units {_BYTES}; did you mean GB?",
        ),
        ("GiB", Dimension.BYTES, f"found 'GiB', expected a number with one of the units {_BYTES}"),
        ("1,5 GiB", Dimension.BYTES, f"found '1,5 GiB', expected a number with one of the units {_BYTES}"),
        (None, Dimension.BYTES, f"found None, expected a number with one of the units {_BYTES}"),
        ("10 GB", Dimension.SECONDS, "found '10 GB', expected a number with one of the units s, ms, us, ns"),
        ("nan s", Dimension.SECONDS, "found 'nan s', expected a number with one of the units s, ms, us, ns"),
        ("-1 s", Dimension.SECONDS, "found '-1 s', expected a finite number of seconds, zero or more"),
        ("1e999 s", Dimension.SECONDS, "found '1e999 s', expected a finite number of seconds, zero or more"),
        (
            "15 pJ",
            Dimension.JOULES_PER_FLOP,
            "found '15 pJ', expected a number with one of the units J/FLOP, nJ/FLOP, pJ/FLOP",
        ),
        ("250", Dimension.WATTS, "found '250', expected a number with one of the units W, mW, kW"),
        ("3 GiB", Dimension.COUNT, "found '3 GiB', expected a plain number"),
        (True, Dimension.COUNT, "found True, expected a plain number"),
        (float("nan"), Dimension.COUNT, "found 'nan', expected a plain number"),
        (float("inf"), Dimension.COUNT, "found 'inf', expected a plain number"),
        (-1, Dimension.COUNT, "found '-1', expected a finite number of a plain number, zero or more"),
    ],
)
def test_what_is_no_quantity_is_refused(text: object, dimension: Dimension, message: str) -> None:
    assert refusal(InputError, parse_quantity, text, dimension) == message


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1536, "1.50 KiB"),
        (1023.4 * 2**20, "1023 MiB"),
        (1023.6 * 2**20, "1.00 GiB"),
        (20 * 2**20, "20.0 MiB"),
        (150 * 2**30, "150 GiB"),
        (-(2**30), "-1.00 GiB"),
    ],
)
def test_bytes_for_people(nbytes: float, text: str) -> None:
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (1.234, "1.23 s"), (0.0456, "45.6 ms"), (7.89e-6, "7.89 us"), (3e-9, "3.00 ns"), (0.5, "500 ms")],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0.0, "0"), (0.73184, "0.7318"), (48.826, "48.83"), (9999.4, "9999"), (9999.6, "10000"), (24422.6, "24423")],
)
def test_images_per_second_for_people_have_no_exponent(per_second: float, text: str) -> None:
    assert format_rate(per_second) == text


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
