from dataclasses import replace

import pytest

from reports.swap2018.scaling import scaling_title
from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.columns import RUN, result_rows
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.workload import Workload
from vdnnsim.report.findings import caption, verdict
from vdnnsim.report.run.page import result_table
from vdnnsim.report.scale import byte_scale, percent, percents, rate_cells, rate_text, scale_of, time_scale


def test_the_largest_number_decides_the_unit() -> None:
    """3 GiB are the largest, so 512 MiB are 0.50 of the same unit; bytes have no decimals, rates no unit."""
    scale = byte_scale((3 * 2**30, 2**29))
    assert (scale.text(3 * 2**30), scale.number(2**29)) == ("3.00 GiB", "0.50")
    assert (byte_scale((60.0,)).text(31.25), byte_scale(()).text(0)) == ("31 B", "0 B")
    assert scale_of("samples_per_s", (0.125,)).number(0.125) == "0.12"
    # 122 s are long enough for one decimal; 0.312 s need three, and 0.05 s four. Of nothing there are no digits.
    values = (122.04, 0.312, 0.0)
    assert [time_scale(values).with_digits(values).number(value) for value in values] == ["122.040", "0.312", "0.000"]
    assert time_scale(values).with_digits((0.05,)).number(0.05) == "0.0500"
    assert byte_scale((1000.0,)).with_digits((3.0,)).number(3.0) == "3"
    assert time_scale(()).with_digits(()).decimals == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1234.5, "1234 s"), (123.45, "123.5 s"), (1.5, "1.50 s"), (0.002, "2.00 ms"), (3e-6, "3.00 us"), (0.0, "0.00 us")],
)
def test_long_numbers_have_fewer_decimals(seconds: float, text: str) -> None:
    assert time_scale((seconds,)).text(seconds) == text


def test_shares_and_rates_of_a_column() -> None:
    assert [percent(each) for each in (0.75, 1.0, 1.0004, 0.0)] == ["75.0 %", "100.0 %", "100.0 %", "0.0 %"]
    assert percent(0.99999) == "99.9 %"
    # 7.25 % needs two; what is just below all then reads 99.99 %.
    assert percents((1.0, 0.0725, 0.99999)) == ("100.00 %", "7.25 %", "99.99 %")
    assert percents((1.0, 0.5)) == ("100.0 %", "50.0 %")
    # 112.8 needs one decimal for four digits, so 286 has one too.
    assert rate_cells([286.0, 112.84, None]) == ["286.0", "112.8", ""]
    assert rate_cells([None]) == [""]
    # 38 x 1024 = 38912.
    assert rate_text(SEQUENCE, 38.0) == "38 sequences/s, 38912 tokens/s"
    assert rate_text(IMAGE, 1569.0) == "1569 images/s"


SEQUENCE = Sample("sequence", "token", 1024)


def test_rates_of_sequences_have_their_unit_everywhere(result: ScenarioResult, move: PolicyResult) -> None:
    """1/8 sequence/s has 1024 / 8 = 128 tokens/s.

    Without offload, stalls and sequences/s the columns take 7 + 4 + 4 + 9 + 4 + 9 characters and 5 gaps of 2: 47.
    """
    sequences = replace(result, workload=Workload(build_network("gpt2_small"), 1), results=(move,))
    assert caption(sequences).startswith("gpt2_small, batch 1 sequence of 1024 tokens, float32, training on")
    assert "8.00 s per iteration, 0.125 sequences/s, 128 tokens/s. " in verdict(sequences)
    assert scaling_title([sequences]) == "move(m) does 0.125 sequences/s, 128 tokens/s on 1 GPUs"
    wide, narrow = (printed(result_table(sequences), width=width) for width in (120, 48))
    assert wide[3].split()[:2] == ["time", "sequences"]
    assert "not shown: offloaded, stalled, sequences/s; results.csv has all" in " ".join(narrow)
    row = dict(zip(RUN, result_rows(sequences)[0], strict=True))
    assert (row["samples_per_s"], row["tokens_per_s"]) == (0.125, 128.0)
